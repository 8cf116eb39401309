//! Messages as mboxrd, from which our reader restores the exact bytes and any other reader the message.

use std::io::{self, Write};

use jiff::Timestamp;

use super::is_quoted;
use super::separator::LENGTH_MARK;

/// Appends one message. A line end is added where the message has none, so its length goes into the separator; `time`
/// is kept to the second.
pub fn write_message(out: &mut impl Write, raw: &[u8], sender: Option<&str>, time: Timestamp) -> io::Result<()> {
    // A space would end the sender and let the rest be read as a date.
    let is_one_word =
        |sender: &&str| !sender.is_empty() && !sender.contains(|c: char| c.is_whitespace() || c.is_control());
    let sender = sender.filter(is_one_word).unwrap_or("MAILER-DAEMON");
    let date = time.strftime("%a %b %e %H:%M:%S %Y");
    writeln!(out, "From {sender} {date} {LENGTH_MARK}{}", raw.len())?;

    for line in raw.split_inclusive(|&b| b == b'\n') {
        if line.starts_with(b"From ") || is_quoted(line) {
            out.write_all(b">")?;
        }
        out.write_all(line)?;
    }
    if !raw.is_empty() && !raw.ends_with(b"\n") {
        out.write_all(b"\n")?;
    }
    out.write_all(b"\n")
}
