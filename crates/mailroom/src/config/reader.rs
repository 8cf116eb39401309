//! Reads typed values from raw settings, with an error sentence for each invalid one.

use super::layers::{RawSetting, RawValue, SettingLayers, SettingOrigin};
use super::{ConfigError, ShownSetting};
use domain::units::{DURATION_UNITS, QuantityError, SIZE_UNITS, parse_duration, parse_size};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Reads settings one by one and records each for `config show`.
#[derive(Debug)]
pub(super) struct SettingsReader {
    layers: SettingLayers,
    home: Option<PathBuf>,
    shown: Vec<ShownSetting>,
}

impl SettingsReader {
    pub fn new(layers: SettingLayers, home: Option<PathBuf>) -> Self {
        Self { layers, home, shown: Vec::new() }
    }

    pub fn into_shown(self) -> Vec<ShownSetting> {
        self.shown
    }

    pub fn show(&mut self, key: &'static str, value: impl Into<String>, source: &impl ToString) {
        self.shown.push(ShownSetting { key, value: value.into(), source: source.to_string() });
    }

    pub fn folder(&mut self, key: &'static str) -> Result<PathBuf, ConfigError> {
        let (text, origin) = self.required_text(key, "a folder")?;
        let path = self.expand(Path::new(&text))?;
        self.show(key, path.display().to_string(), &origin);
        Ok(path)
    }

    pub fn size(&mut self, key: &'static str, allowed: RangeInclusive<u64>) -> Result<u64, ConfigError> {
        let setting = self.setting(key);
        let text = quoted(&setting.value);
        let size = match parse_size(&text) {
            Ok(size) if allowed.contains(&size) => size,
            refused => {
                let bounds = (format_size(*allowed.start()), format_size(*allowed.end()));
                let expected = SIZE.expected(refused.err(), &text, bounds);
                return Err(invalid_setting(key, &setting.origin, &expected));
            }
        };
        self.show(key, text, &setting.origin);
        Ok(size)
    }

    pub fn duration(&mut self, key: &'static str, allowed: RangeInclusive<Duration>) -> Result<Duration, ConfigError> {
        let setting = self.setting(key);
        let text = quoted(&setting.value);
        let duration = match parse_duration(&text) {
            Ok(duration) if allowed.contains(&duration) => duration,
            refused => {
                let bounds = (format_duration(*allowed.start()), format_duration(*allowed.end()));
                let expected = DURATION.expected(refused.err(), &text, bounds);
                return Err(invalid_setting(key, &setting.origin, &expected));
            }
        };
        self.show(key, text, &setting.origin);
        Ok(duration)
    }

    pub fn count(&mut self, key: &'static str, allowed: RangeInclusive<usize>) -> Result<usize, ConfigError> {
        let setting = self.setting(key);
        let text = quoted(&setting.value);
        // TOML allows 1_000, and so do we, from the environment too.
        match text.replace('_', "").parse() {
            Ok(count) if allowed.contains(&count) => {
                self.show(key, text, &setting.origin);
                Ok(count)
            }
            _ => {
                let (least, most) = (allowed.start(), allowed.end());
                let expected = format!("must be a whole number from {least} to {most}, not {text}");
                Err(invalid_setting(key, &setting.origin, &expected))
            }
        }
    }

    pub fn is_given(&self, key: &'static str) -> bool {
        self.layers.get(key).is_some()
    }

    /// Reads one of several words.
    pub fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)]) -> Result<T, ConfigError> {
        let setting = self.setting(key);
        let text = quoted(&setting.value);
        let Some((_, value)) = choices.iter().find(|(word, _)| word.eq_ignore_ascii_case(&text)) else {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            return Err(invalid_setting(
                key,
                &setting.origin,
                &format!("must be one of {}, not {text}", words.join(", ")),
            ));
        };
        self.show(key, text, &setting.origin);
        Ok(*value)
    }

    /// Reads an optional text. It is not recorded for `config show`: it may be a secret.
    pub fn text(&self, key: &'static str, expected: &str) -> Result<Option<(String, SettingOrigin)>, ConfigError> {
        let Some(RawSetting { value, origin }) = self.layers.get(key) else { return Ok(None) };
        match value {
            RawValue::Text(text) if text.trim().is_empty() => {
                Err(invalid_setting(key, origin, &format!("must be {expected}, but is empty")))
            }
            RawValue::Text(text) => Ok(Some((text.clone(), origin.clone()))),
            other => Err(invalid_setting(key, origin, &format!("must be {expected} in quotes, not {}", quoted(other)))),
        }
    }

    /// Reads a list, or one text with commas. Returns `None` if it is empty.
    pub fn list(&self, key: &'static str, expected: &str) -> Result<Option<(Vec<String>, SettingOrigin)>, ConfigError> {
        let Some(RawSetting { value, origin }) = self.layers.get(key) else { return Ok(None) };
        let texts: Vec<&str> = match value {
            // From the environment: with commas, or in TOML syntax.
            RawValue::Text(text) => {
                let text = text.trim();
                let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
                inside.split(',').map(|text| text.trim().trim_matches('"')).collect()
            }
            RawValue::List(texts) => texts.iter().map(String::as_str).collect(),
            other => {
                return Err(invalid_setting(
                    key,
                    origin,
                    &format!("must be {expected} in a list, not {}", quoted(other)),
                ));
            }
        };
        let texts = texts.into_iter().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        Ok(Some((texts.collect(), origin.clone())).filter(|(texts, _): &(Vec<String>, _)| !texts.is_empty()))
    }

    /// Reads a secret from its own key or from the file that `file_key` names. Returns it with its source.
    pub fn secret(
        &mut self,
        key: &'static str,
        file_key: &'static str,
        expected: &str,
    ) -> Result<Option<(String, String)>, ConfigError> {
        let direct = self.text(key, expected)?;
        let Some((path, origin)) = self.text(file_key, "the path of a file")? else {
            return Ok(direct.map(|(text, origin)| (text, origin.to_string())));
        };
        if let Some((_, other)) = direct {
            return Err(ConfigError::new(format!(
                "`{key}` ({other}) and `{file_key}` ({origin}) are both given; keep one of them"
            )));
        }
        let path = self.expand(Path::new(&path))?;
        let text = std::fs::read_to_string(&path).map_err(|e| {
            invalid_setting(file_key, &origin, &format!("names {}, which cannot be read: {e}", path.display()))
        })?;
        if text.trim().is_empty() {
            return Err(invalid_setting(file_key, &origin, &format!("names {}, which is empty", path.display())));
        }
        self.show(file_key, path.display().to_string(), &origin);
        Ok(Some((text.trim().to_owned(), format!("{file_key} in {origin}"))))
    }

    /// Expands `~` and `~/…` to the home folder.
    pub fn expand(&self, path: &Path) -> Result<PathBuf, ConfigError> {
        let Ok(below) = path.strip_prefix("~") else { return Ok(path.to_owned()) };
        match &self.home {
            Some(home) => Ok(home.join(below)),
            None => Err(ConfigError::new(format!("cannot expand {}: HOME is not set", path.display()))),
        }
    }

    fn required_text(&self, key: &'static str, expected: &str) -> Result<(String, SettingOrigin), ConfigError> {
        Ok(self.text(key, expected)?.expect("default.toml sets every key that is read this way"))
    }

    fn setting(&self, key: &'static str) -> RawSetting {
        self.layers.get(key).cloned().expect("default.toml sets every key that is read this way")
    }
}

/// How errors speak of a number with a unit.
struct QuantityKind {
    name: &'static str,
    units: &'static str,
    example: &'static str,
}

const SIZE: QuantityKind = QuantityKind { name: "a size", units: SIZE_UNITS, example: "50 MB" };
const DURATION: QuantityKind = QuantityKind { name: "a duration", units: DURATION_UNITS, example: "30s" };

impl QuantityKind {
    /// Says what a refused text must be. Without an error, it is out of bounds.
    fn expected(&self, error: Option<QuantityError>, text: &str, (least, most): (String, String)) -> String {
        let Self { name, units, example } = self;
        match error {
            None | Some(QuantityError::TooLarge) => format!("must be from {least} to {most}, not {text}"),
            Some(QuantityError::NoUnit) => {
                format!("must have a unit after {text}, one of {units}, as in \"{example}\"")
            }
            Some(QuantityError::Malformed) => format!("must be {name} such as \"{example}\", not {text}"),
        }
    }
}

/// Returns the error "`log.level` must be … (mailroom.toml line 3)".
pub(super) fn invalid_setting(key: &str, source: impl std::fmt::Display, expected: &str) -> ConfigError {
    ConfigError::new(format!("`{key}` {expected} ({source})"))
}

/// Formats a value for an error message: on one line, and cut if it is long.
fn quoted(value: &RawValue) -> String {
    const MAX_QUOTED_CHARS: usize = 60;
    match value {
        RawValue::Text(text) if text.trim().is_empty() => "an empty text".to_owned(),
        RawValue::Text(text) | RawValue::Number(text) if text.chars().count() <= MAX_QUOTED_CHARS => {
            text.escape_debug().to_string()
        }
        RawValue::Text(text) | RawValue::Number(text) => {
            format!("{}…", text.chars().take(MAX_QUOTED_CHARS).collect::<String>().escape_debug())
        }
        RawValue::Word(word) => (*word).to_owned(),
        RawValue::List(_) => "a list".to_owned(),
        RawValue::Other(what) => (*what).to_owned(),
    }
}

/// Formats a bound, which is a power of 1024.
fn format_size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

fn format_duration(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds > 0 && seconds % 86_400 == 0 => format!("{}d", seconds / 86_400),
        seconds => format!("{seconds}s"),
    }
}
