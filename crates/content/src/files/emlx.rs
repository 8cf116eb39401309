//! Apple Mail's `.emlx`: a line with the message's length, the message, then a property list about it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use domain::Flags;
use jiff::Timestamp;

/// The most that a file may hold besides the message.
pub const MAX_EMLX_OVERHEAD_BYTES: u64 = 1 << 20;

/// What the property list says about the message.
#[derive(Debug)]
pub struct EmlxProperties {
    pub flags: Flags,
    pub envelope_time: Option<Timestamp>,
}

/// Reads the length of the message and moves the file to the message's start. Returns `None`, with the file at its own
/// start, if the file names no length: then all of it is the message.
pub fn read_message_length(file: &mut File) -> io::Result<Option<u64>> {
    let mut head = Vec::new();
    file.take(32).read_to_end(&mut head)?;
    let line_end = head.iter().position(|&b| b == b'\n');
    let length = line_end.and_then(|end| str::from_utf8(&head[..end]).ok()?.trim().parse().ok());
    let start = if length.is_some() { line_end.map_or(0, |end| end as u64 + 1) } else { 0 };
    file.seek(SeekFrom::Start(start))?;
    Ok(length)
}

/// Reads on behind the message.
pub fn read_properties(file: &mut File) -> io::Result<EmlxProperties> {
    let mut list = Vec::new();
    file.take(MAX_EMLX_OVERHEAD_BYTES).read_to_end(&mut list)?;
    let list = String::from_utf8_lossy(&list);
    let seconds = integer(&list, "date-received");
    Ok(EmlxProperties {
        flags: flags(integer(&list, "flags").unwrap_or_default()),
        envelope_time: seconds.and_then(|seconds| Timestamp::from_second(seconds).ok()),
    })
}

fn flags(bits: i64) -> Flags {
    let names = [(0, "seen"), (1, "deleted"), (2, "answered"), (4, "flagged"), (6, "draft"), (8, "forwarded")];
    Flags::from_names(names.into_iter().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, name)| name))
}

/// Returns the number after a key. A property list is XML, but Apple Mail writes these pairs in one way only.
fn integer(list: &str, key: &str) -> Option<i64> {
    let (_, after) = list.split_once(&format!("<key>{key}</key>"))?;
    let value = after.trim_start().strip_prefix("<integer>").or_else(|| after.trim_start().strip_prefix("<real>"))?;
    value.split(['<', '.']).next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use domain::MessageLimits;

    use super::*;
    use crate::files::{self, FileMessage, ImportProblem, MailFileFormat};
    use crate::spool::Spool;

    /// Reads a file twice: with its message in memory, and with its message in the spool.
    fn unwrapped(raw: &[u8]) -> Result<(Vec<u8>, FileMessage), ImportProblem> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.emlx");
        fs::write(&path, raw).unwrap();
        let read = |message_bytes| {
            let spool = Spool { message_bytes, ..Spool::new(folder.path()) };
            let found = files::open(&path, MailFileFormat::Auto, &MessageLimits::default(), &spool)?.next().unwrap()?;
            Ok((found.raw.read().unwrap(), found))
        };
        let held = read(1000);
        assert_eq!(held.as_ref().ok().map(|(raw, _)| raw), read(1).as_ref().ok().map(|(raw, _)| raw));
        held
    }

    #[test]
    fn first_line_gives_the_message_length() {
        let list = "<plist><dict><key>date-received</key>\n<integer>1700000000</integer>\n<key>flags</key><integer>21</integer>";
        let (raw, found) = unwrapped(format!("5   \nTo: a{list}").as_bytes()).unwrap();

        assert_eq!(raw, b"To: a");
        assert_eq!(found.flags, Flags::from_names(["answered", "flagged", "seen"]));
        assert_eq!(found.envelope_time.map(Timestamp::as_second), Some(1_700_000_000));
    }

    #[test]
    fn truncated_file_is_refused() {
        let told = unwrapped(b"6\nTo: a").unwrap_err().to_string();

        assert!(told.ends_with("a.emlx ends in the middle of the message; copy or export the file again"), "{told}");
        assert_eq!(unwrapped(b"5\nTo: a").unwrap().0, b"To: a");
        assert_eq!(unwrapped(b"To: a\n").unwrap().0, b"To: a\n");
    }
}
