//! From what was written to typed values, each with a sentence for when it can't be.

use super::layers::{Layers, Origin, Setting, Value};
use super::units::{BadQuantity, DURATION_UNITS, SIZE_UNITS, parse_duration, parse_size};
use super::{ConfigError, Shown};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Reads settings one by one and remembers each for `config show`.
#[derive(Debug)]
pub(super) struct Reader {
    layers: Layers,
    home: Option<PathBuf>,
    shown: Vec<Shown>,
}

impl Reader {
    pub fn new(layers: Layers, home: Option<PathBuf>) -> Self {
        Self { layers, home, shown: Vec::new() }
    }

    pub fn into_shown(self) -> Vec<Shown> {
        self.shown
    }

    pub fn show(&mut self, key: &'static str, value: impl Into<String>, source: &impl ToString) {
        self.shown.push(Shown { key, value: value.into(), source: source.to_string() });
    }

    pub fn folder(&mut self, key: &'static str) -> Result<PathBuf, ConfigError> {
        let (text, origin) = self.required_text(key, "a folder")?;
        let path = self.expand(Path::new(&text))?;
        self.show(key, path.display().to_string(), &origin);
        Ok(path)
    }

    pub fn size(&mut self, key: &'static str, allowed: RangeInclusive<u64>) -> Result<u64, ConfigError> {
        let setting = self.setting(key);
        let wrong = |wants: String| refuse(key, &setting.origin, &wants);
        let text = written(&setting.value);
        let size = match parse_size(&text) {
            Ok(size) if allowed.contains(&size) => size,
            Ok(_) | Err(BadQuantity::TooLarge) => {
                let (least, most) = (human(*allowed.start()), human(*allowed.end()));
                return Err(wrong(format!("may be from {least} to {most}, not {text}")));
            }
            Err(BadQuantity::NoUnit) => {
                return Err(wrong(format!("wants a unit after {text}, one of {SIZE_UNITS}, as in \"50 MB\"")));
            }
            Err(BadQuantity::NotOne) => return Err(wrong(format!("wants a size like \"50 MB\", not {text}"))),
        };
        self.show(key, text, &setting.origin);
        Ok(size)
    }

    pub fn duration(&mut self, key: &'static str, allowed: RangeInclusive<Duration>) -> Result<Duration, ConfigError> {
        let setting = self.setting(key);
        let wrong = |wants: String| refuse(key, &setting.origin, &wants);
        let text = written(&setting.value);
        let duration = match parse_duration(&text) {
            Ok(duration) if allowed.contains(&duration) => duration,
            Ok(_) | Err(BadQuantity::TooLarge) => {
                let (least, most) = (human_duration(*allowed.start()), human_duration(*allowed.end()));
                return Err(wrong(format!("may be from {least} to {most}, not {text}")));
            }
            Err(BadQuantity::NoUnit) => {
                return Err(wrong(format!("wants a unit after {text}, one of {DURATION_UNITS}, as in \"30s\"")));
            }
            Err(BadQuantity::NotOne) => return Err(wrong(format!("wants a duration like \"30s\", not {text}"))),
        };
        self.show(key, text, &setting.origin);
        Ok(duration)
    }

    pub fn count(&mut self, key: &'static str, allowed: RangeInclusive<usize>) -> Result<usize, ConfigError> {
        let setting = self.setting(key);
        let text = written(&setting.value);
        // TOML allows 1_000, and so do we, from the environment too.
        match text.replace('_', "").parse() {
            Ok(count) if allowed.contains(&count) => {
                self.show(key, text, &setting.origin);
                Ok(count)
            }
            _ => {
                let (least, most) = (allowed.start(), allowed.end());
                let wants = format!("wants a whole number from {least} to {most}, not {text}");
                Err(refuse(key, &setting.origin, &wants))
            }
        }
    }

    pub fn is_given(&self, key: &'static str) -> bool {
        self.layers.get(key).is_some()
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)]) -> Result<T, ConfigError> {
        let setting = self.setting(key);
        let text = written(&setting.value);
        let Some((_, value)) = choices.iter().find(|(word, _)| word.eq_ignore_ascii_case(&text)) else {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            return Err(refuse(key, &setting.origin, &format!("wants one of {}, not {text}", words.join(", "))));
        };
        self.show(key, text, &setting.origin);
        Ok(*value)
    }

    /// A text that may be absent. It is not shown, because its reader may have something to hide.
    pub fn text(&self, key: &'static str, wants: &str) -> Result<Option<(String, Origin)>, ConfigError> {
        let Some(Setting { value, origin }) = self.layers.get(key) else { return Ok(None) };
        match value {
            Value::Text(text) if text.trim().is_empty() => {
                Err(refuse(key, origin, &format!("wants {wants}, and is empty")))
            }
            Value::Text(text) => Ok(Some((text.clone(), origin.clone()))),
            other => Err(refuse(key, origin, &format!("wants {wants} in quotes, not {}", written(other)))),
        }
    }

    /// Texts, from a list or from one text with commas; `None` when there are none.
    pub fn list(&self, key: &'static str, wants: &str) -> Result<Option<(Vec<String>, Origin)>, ConfigError> {
        let Some(Setting { value, origin }) = self.layers.get(key) else { return Ok(None) };
        let texts: Vec<&str> = match value {
            // From the environment: with commas, or as it stands in a file.
            Value::Text(text) => {
                let text = text.trim();
                let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
                inside.split(',').map(|text| text.trim().trim_matches('"')).collect()
            }
            Value::List(texts) => texts.iter().map(String::as_str).collect(),
            other => return Err(refuse(key, origin, &format!("wants {wants} in a list, not {}", written(other)))),
        };
        let texts = texts.into_iter().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        Ok(Some((texts.collect(), origin.clone())).filter(|(texts, _): &(Vec<String>, _)| !texts.is_empty()))
    }

    /// A secret from its own key or from the file that `file_key` names, and where it came from.
    pub fn secret(
        &mut self,
        key: &'static str,
        file_key: &'static str,
        wants: &str,
    ) -> Result<Option<(String, String)>, ConfigError> {
        let direct = self.text(key, wants)?;
        let Some((path, origin)) = self.text(file_key, "the path of a file")? else {
            return Ok(direct.map(|(text, origin)| (text, origin.to_string())));
        };
        if let Some((_, other)) = direct {
            return Err(ConfigError::new(format!(
                "`{key}` ({other}) and `{file_key}` ({origin}) are both given; keep one of them"
            )));
        }
        let path = self.expand(Path::new(&path))?;
        let unreadable = |why: String| refuse(file_key, &origin, &format!("names {}, {why}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|e| unreadable(format!("which can't be read: {e}")))?;
        if text.trim().is_empty() {
            return Err(unreadable("which is empty".to_owned()));
        }
        self.show(file_key, path.display().to_string(), &origin);
        Ok(Some((text.trim().to_owned(), format!("{file_key} in {origin}"))))
    }

    /// `~` and `~/…` become the home folder; nothing else is touched.
    pub fn expand(&self, path: &Path) -> Result<PathBuf, ConfigError> {
        let Ok(below) = path.strip_prefix("~") else { return Ok(path.to_owned()) };
        match &self.home {
            Some(home) => Ok(home.join(below)),
            None => Err(ConfigError::new(format!("can't expand {}: HOME is not set", path.display()))),
        }
    }

    fn required_text(&self, key: &'static str, wants: &str) -> Result<(String, Origin), ConfigError> {
        Ok(self.text(key, wants)?.expect("default.toml sets every key that is read this way"))
    }

    fn setting(&self, key: &'static str) -> Setting {
        self.layers.get(key).cloned().expect("default.toml sets every key that is read this way")
    }
}

/// "`log.level` wants … (mailroom.toml line 3)".
pub(super) fn refuse(key: &str, source: impl std::fmt::Display, wants: &str) -> ConfigError {
    ConfigError::new(format!("`{key}` {wants} ({source})"))
}

/// A value as it stands in a sentence: on one line, and not longer than one.
fn written(value: &Value) -> String {
    const LONGEST: usize = 60;
    match value {
        Value::Text(text) if text.trim().is_empty() => "an empty text".to_owned(),
        Value::Text(text) | Value::Number(text) if text.chars().count() <= LONGEST => text.escape_debug().to_string(),
        Value::Text(text) | Value::Number(text) => {
            format!("{}…", text.chars().take(LONGEST).collect::<String>().escape_debug())
        }
        Value::Word(word) => (*word).to_owned(),
        Value::List(_) => "a list".to_owned(),
        Value::Other(what) => (*what).to_owned(),
    }
}

/// Bounds are powers of 1024, so that they read well.
fn human(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

fn human_duration(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds > 0 && seconds % 86_400 == 0 => format!("{}d", seconds / 86_400),
        seconds => format!("{seconds}s"),
    }
}
