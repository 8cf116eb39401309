//! Writes mboxrd files, from which the exact message can be restored.

use std::io::{self, Write};

use super::dates;
use super::generator::GeneratedMessage;

/// The line ending of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineEnd {
    /// Unix line ends. Readers have to restore the carriage returns.
    Lf,
    /// Messages stay byte for byte unchanged.
    CrLf,
}

/// Writes all messages and returns their number.
pub fn write_mbox(
    out: &mut impl Write,
    messages: impl IntoIterator<Item = GeneratedMessage>,
    line_end: LineEnd,
) -> io::Result<usize> {
    let mut count = 0;
    for message in messages {
        append_to_mbox(out, &message, line_end)?;
        count += 1;
    }
    Ok(count)
}

/// Writes one message with its From_ line and the empty line after it.
pub fn append_to_mbox(out: &mut impl Write, message: &GeneratedMessage, line_end: LineEnd) -> io::Result<()> {
    let end: &[u8] = match line_end {
        LineEnd::Lf => b"\n",
        LineEnd::CrLf => b"\r\n",
    };
    write!(out, "From {} {}", message.from.address, dates::ctime(message.received_at))?;
    out.write_all(end)?;
    for line in message.raw.split_inclusive(|&byte| byte == b'\n') {
        if is_from_line(line) {
            out.write_all(b">")?;
        }
        let text = line.strip_suffix(b"\r\n").unwrap_or(line);
        out.write_all(text)?;
        out.write_all(end)?;
    }
    out.write_all(end)
}

/// Returns whether a line is `From ` after any number of `>`. Such a line gets one more `>`, which readers remove.
fn is_from_line(line: &[u8]) -> bool {
    let start = line.iter().position(|&byte| byte != b'>').unwrap_or(line.len());
    line[start..].starts_with(b"From ")
}
