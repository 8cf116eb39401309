//! Folder names, derived from the names of directories and files.

use std::ffi::OsStr;

use domain::Sha256;
use encoding_rs::UTF_16BE;

pub const INBOX: &str = "INBOX";

/// The longest name, in characters. Databases index names, and PostgreSQL takes 2.7 KB at most.
const MAX_FOLDER_NAME_CHARS: usize = 400;
/// How many digits of its hash end a name that was cut.
const NAME_HASH_CHARS: usize = 12;

/// Returns a folder name as it is stored: non-empty segments joined by `/`, without control characters, of a length
/// that any database can index. Mail in no folder is in the inbox, whose name has one spelling.
pub fn folder_name(name: &str) -> String {
    let plain: String = name.chars().filter(|c| !c.is_control()).collect();
    let segments: Vec<&str> = plain.split('/').filter(|segment| !segment.trim().is_empty()).collect();
    match segments.as_slice() {
        [] => INBOX.to_owned(),
        [only] if only.eq_ignore_ascii_case(INBOX) => INBOX.to_owned(),
        segments => cut(segments.join("/")),
    }
}

pub fn joined(segments: &[String]) -> String {
    folder_name(&segments.join("/"))
}

/// Cuts a name that is too long; it then ends with a hash of the whole, so that different names stay different.
fn cut(name: String) -> String {
    if name.chars().count() <= MAX_FOLDER_NAME_CHARS {
        return name;
    }
    let start: String = name.chars().take(MAX_FOLDER_NAME_CHARS - NAME_HASH_CHARS - 1).collect();
    format!("{start}~{}", &Sha256::of(name.as_bytes()).hex()[..NAME_HASH_CHARS])
}

/// Returns the segment that a directory adds: Apple Mail's `Sent.mbox` and Thunderbird's `Sent.sbd` are called `Sent`.
pub fn of_directory(name: &OsStr) -> String {
    let name = name.to_string_lossy();
    without_suffix(&name, &[".mbox", ".mbx", ".sbd"]).to_owned()
}

pub fn of_mbox(name: &OsStr) -> String {
    let name = name.to_string_lossy();
    without_suffix(&name, &[".mbox", ".mbx"]).to_owned()
}

/// Returns the segments of a Maildir++ directory: `.Sent.2024` is `Sent/2024`.
pub fn of_maildir(name: &OsStr) -> Vec<String> {
    let name = name.to_string_lossy();
    match name.strip_prefix('.') {
        Some(dotted) => dotted.split('.').filter(|part| !part.is_empty()).map(decode_utf7).collect(),
        None => vec![decode_utf7(&name)],
    }
}

fn without_suffix<'a>(name: &'a str, suffixes: &[&str]) -> &'a str {
    let stem = suffixes.iter().find_map(|suffix| {
        let cut = name.len().checked_sub(suffix.len()).filter(|&cut| cut > 0)?;
        name.get(cut..)?.eq_ignore_ascii_case(suffix).then(|| &name[..cut])
    });
    stem.unwrap_or(name)
}

/// Decodes IMAP's modified UTF-7 (RFC 3501 §5.1.3), in which servers write names on disk. Anything else stays as it is.
fn decode_utf7(name: &str) -> String {
    let mut decoded = String::with_capacity(name.len());
    let mut rest = name;
    while let Some((plain, after)) = rest.split_once('&') {
        decoded.push_str(plain);
        match after.split_once('-') {
            Some(("", after)) => {
                decoded.push('&');
                rest = after;
            }
            Some((encoded, after)) if let Some(text) = decode_base64(encoded) => {
                decoded.push_str(&text);
                rest = after;
            }
            _ => {
                decoded.push('&');
                rest = after;
            }
        }
    }
    decoded + rest
}

fn decode_base64(encoded: &str) -> Option<String> {
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for digit in encoded.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b',' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    let (text, is_broken) = UTF_16BE.decode_without_bom_handling(&bytes);
    (!is_broken).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maildir_names_are_split_and_decoded() {
        assert_eq!(of_maildir(OsStr::new(".Sent.2024")), ["Sent", "2024"]);
        assert_eq!(of_maildir(OsStr::new(".Entw&APw-rfe")), ["Entwürfe"]);
        assert_eq!(of_maildir(OsStr::new("R&D &- &ZeVnLIqe-")), ["R&D & 日本語"]);
    }

    #[test]
    fn folder_name_is_valid_in_any_database() {
        assert_eq!(joined(&of_maildir(OsStr::new(".a&AAA-b.&AAcACg-.c"))), "ab/c");
        assert_eq!(folder_name("/Work//2024\n/ /"), "Work/2024");
        assert_eq!(
            (folder_name("inBox"), folder_name("\0"), folder_name("")),
            (INBOX.into(), INBOX.into(), INBOX.into())
        );
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let [longest, one, other] = [400, 401, 402].map(|count| folder_name(&"ü".repeat(count)));

        assert_eq!(longest, "ü".repeat(400));
        assert_eq!((one.chars().count(), other.chars().count()), (400, 400));
        assert_ne!(one, other);
        assert_eq!(folder_name(&one), one, "a name that was cut is a name");
    }

    #[test]
    fn file_names_lose_what_names_their_format() {
        assert_eq!(joined(&[of_mbox(OsStr::new("Sent.MBOX"))]), "Sent");
        assert_eq!(joined(&[of_mbox(OsStr::new("inbox.mbox"))]), "INBOX");
        assert_eq!(joined(&[of_directory(OsStr::new("Work.sbd")), of_mbox(OsStr::new("2024"))]), "Work/2024");
        assert_eq!(of_mbox(OsStr::new(".mbox")), ".mbox");
    }
}
