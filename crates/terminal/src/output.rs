//! Output of commands: the one place that prints.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Prints results to standard output. A closed pipe (`| head`) ends the process silently, as in other programs.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    pub json: bool,
}

impl Output {
    pub fn line(self, text: &str) -> Result<(), Failure> {
        write(format!("{text}\n").as_bytes())
    }

    /// Prints one object as a line of JSON.
    pub fn object(self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(|e| Failure::problem(format!("cannot print: {e}")))?;
        self.line(&text)
    }

    pub fn bytes(self, bytes: &[u8]) -> Result<(), Failure> {
        write(bytes)
    }

    /// Copies a source to standard output.
    pub fn copy(self, source: &mut impl io::Read) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        ended(io::copy(source, &mut out).and_then(|_| out.flush()))
    }

    /// Prints a table with a heading; columns are as wide as their widest cell.
    pub fn table<const N: usize>(self, heading: [&str; N], rows: &[[String; N]]) -> Result<(), Failure> {
        self.grid(&heading.map(str::to_owned), rows)
    }

    /// Prints a table whose columns are not known before.
    pub fn grid(self, heading: &[String], rows: &[impl AsRef<[String]>]) -> Result<(), Failure> {
        let mut widths: Vec<usize> = heading.iter().map(|title| title.chars().count()).collect();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row.as_ref()) {
                *width = (*width).max(cell.chars().count());
            }
        }
        self.line(&padded(heading, &widths))?;
        let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
        self.line(&padded(&rule, &widths))?;
        rows.iter().try_for_each(|row| self.line(&padded(row.as_ref(), &widths)))
    }

    pub fn is_terminal(self) -> bool {
        io::stdout().is_terminal()
    }
}

fn padded(cells: &[String], widths: &[usize]) -> String {
    let cells: Vec<String> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
    cells.join("  ").trim_end().to_owned()
}

fn write(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    ended(out.write_all(bytes).and_then(|()| out.flush()))
}

fn ended(outcome: io::Result<()>) -> Result<(), Failure> {
    match outcome {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        outcome => Ok(outcome?),
    }
}

/// Prints a sentence to standard error. Control characters are replaced: it may contain file names.
pub fn note(sentence: &str) {
    // A failing standard error cannot be reported anywhere.
    let _ = writeln!(io::stderr(), "{}", plain(sentence.trim_end()));
}

/// Formats a number such as `12,345`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a size such as `177.3 MB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Formats foreign text as one line of at most `most` characters.
pub fn one_line(text: &str, most: usize) -> String {
    let plain = plain(text);
    match plain.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &plain[..end]),
        None => plain,
    }
}

/// Replaces control characters: those of a mail or a file name must not reach a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_sizes_are_readable() {
        assert_eq!((count(7), count(1_234), count(1_234_567)), ("7".into(), "1,234".into(), "1,234,567".into()));
        assert_eq!((size(12), size(1_500), size(177_300_000)), ("12 bytes".into(), "1.5 KB".into(), "177.3 MB".into()));
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(one_line("a\u{1b}[31mb\nc", 20), "a [31mb c");
        assert_eq!(one_line("abcdef", 3), "abc…");
    }
}
