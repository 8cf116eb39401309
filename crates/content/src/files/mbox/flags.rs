//! Flags that mail programs write into a message's header, since an mbox has no other place for them.

use domain::Flags;

use crate::files::sniff;

/// Returns the flags in `Status` and `X-Status` (mutt, Dovecot, Evolution) and `X-Mozilla-Status` (Thunderbird).
pub fn of_header(raw: &[u8]) -> Flags {
    let header = raw.split(|&b| b == b'\n').map(<[u8]>::trim_ascii_end).take_while(|line| !line.is_empty());
    let mut names = Vec::new();
    for line in header.filter(|line| sniff::is_header(line)) {
        let Some(colon) = line.iter().position(|&b| b == b':') else { continue };
        let value = line[colon + 1..].trim_ascii();
        match line[..colon].to_ascii_lowercase().as_slice() {
            b"status" | b"x-status" => names.extend(value.iter().filter_map(by_letter)),
            b"x-mozilla-status" => names.extend(by_bits(value)),
            _ => {}
        }
    }
    Flags::from_names(names)
}

fn by_letter(letter: &u8) -> Option<&'static str> {
    match letter {
        b'R' => Some("seen"),
        b'A' => Some("answered"),
        b'F' => Some("flagged"),
        b'T' => Some("draft"),
        b'D' => Some("deleted"),
        _ => None, // O, seen by a program but not by a person
    }
}

fn by_bits(hex: &[u8]) -> impl Iterator<Item = &'static str> {
    let bits = str::from_utf8(hex).ok().and_then(|hex| u32::from_str_radix(hex, 16).ok()).unwrap_or_default();
    let names = [(0x1, "seen"), (0x2, "answered"), (0x4, "flagged"), (0x8, "deleted"), (0x1000, "forwarded")];
    names.into_iter().filter(move |(bit, _)| bits & bit != 0).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_from_the_header_only() {
        fn names(raw: &str) -> String {
            of_header(raw.as_bytes()).names().join(" ")
        }

        assert_eq!(names("Status: RO\r\nX-Status: AF\r\n\r\nStatus: D"), "answered flagged seen");
        assert_eq!(names("X-Mozilla-Status: 1009\nTo: a\n"), "deleted forwarded seen");
        assert_eq!(names("X-Mozilla-Status: x\n"), "");
    }
}
