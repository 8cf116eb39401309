//! Writes messages as mboxrd, from which our reader restores the exact bytes and any other reader the message.

use std::io::{self, Write};

use jiff::Timestamp;

use super::separator::LENGTH_MARK;

/// What a line of a message must not begin with, with or without quotes before it.
const SEPARATOR: &[u8] = b"From ";

/// Appends one message.
pub fn write_message(out: &mut impl Write, raw: &[u8], sender: Option<&str>, time: Timestamp) -> io::Result<()> {
    let mut message = MessageWriter::begin(out, raw.len() as u64, sender, time)?;
    message.write_all(raw)?;
    message.finish().map(drop)
}

/// Appends one message whose bytes come piece by piece.
#[derive(Debug)]
pub struct MessageWriter<W> {
    out: W,
    place: LinePosition,
    is_empty: bool,
}

/// The position within a line.
#[derive(Debug, Clone, Copy)]
enum LinePosition {
    /// After this many `>` and bytes of the separator, none of them written yet: what follows decides.
    Start {
        quotes: u64,
        matched: usize,
    },
    Within,
}

const LINE_START: LinePosition = LinePosition::Start { quotes: 0, matched: 0 };

impl<W: Write> MessageWriter<W> {
    /// Begins a message. Its length goes into the separator, because a line end is added where the message has none;
    /// `time` is kept to the second.
    pub fn begin(mut out: W, length: u64, sender: Option<&str>, time: Timestamp) -> io::Result<Self> {
        // A space would end the sender and let the rest be read as a date.
        let is_one_word =
            |sender: &&str| !sender.is_empty() && !sender.contains(|c: char| c.is_whitespace() || c.is_control());
        let sender = sender.filter(is_one_word).unwrap_or("MAILER-DAEMON");
        let date = time.strftime("%a %b %e %H:%M:%S %Y");
        writeln!(out, "From {sender} {date} {LENGTH_MARK}{length}")?;
        Ok(Self { out, place: LINE_START, is_empty: true })
    }

    /// Ends the message and gives back what it was written to.
    pub fn finish(mut self) -> io::Result<W> {
        let is_after_line_end = matches!(self.place, LinePosition::Start { quotes: 0, matched: 0 });
        if let LinePosition::Start { quotes, matched } = self.place {
            self.write_withheld(quotes, matched)?;
        }
        if !self.is_empty && !is_after_line_end {
            self.out.write_all(b"\n")?;
        }
        self.out.write_all(b"\n")?;
        Ok(self.out)
    }

    /// Takes one byte at the start of a line.
    fn decide(&mut self, byte: u8, quotes: u64, matched: usize) -> io::Result<()> {
        if byte == b'>' && matched == 0 {
            self.place = LinePosition::Start { quotes: quotes + 1, matched };
        } else if byte == SEPARATOR[matched] {
            self.place = LinePosition::Start { quotes, matched: matched + 1 };
            if matched + 1 == SEPARATOR.len() {
                self.write_withheld(quotes + 1, SEPARATOR.len())?;
            }
        } else {
            self.write_withheld(quotes, matched)?;
            self.out.write_all(&[byte])?;
            self.place = if byte == b'\n' { LINE_START } else { LinePosition::Within };
        }
        Ok(())
    }

    /// Writes what was held back.
    fn write_withheld(&mut self, mut quotes: u64, matched: usize) -> io::Result<()> {
        const SOME: [u8; 64] = [b'>'; 64];
        while quotes > 0 {
            let now = quotes.min(SOME.len() as u64);
            self.out.write_all(&SOME[..now as usize])?;
            quotes -= now;
        }
        self.out.write_all(&SEPARATOR[..matched])?;
        self.place = LinePosition::Within;
        Ok(())
    }
}

impl<W: Write> Write for MessageWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.is_empty &= bytes.is_empty();
        let mut rest = bytes;
        while let Some((&byte, after)) = rest.split_first() {
            rest = match self.place {
                LinePosition::Start { quotes, matched } => {
                    self.decide(byte, quotes, matched)?;
                    after
                }
                LinePosition::Within => {
                    let end = rest.iter().position(|&b| b == b'\n').map_or(rest.len(), |at| at + 1);
                    self.out.write_all(&rest[..end])?;
                    if rest[end - 1] == b'\n' {
                        self.place = LINE_START;
                    }
                    &rest[end..]
                }
            };
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
