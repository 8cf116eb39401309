//! Decodes bytes in a declared, undeclared or wrongly declared charset to Unicode.

use std::borrow::Cow;

use encoding_rs::{EUC_KR, Encoding, GBK, ISO_2022_JP, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};
use mail_parser::decoders::charsets::map::charset_decoder;

use super::defects::{Defect, Defects};

/// How text with a charset label is decoded.
enum Charset {
    Ascii,
    Standard(&'static Encoding),
    /// Seven-bit Korean and Chinese: two-byte characters switched on and off by the given marks.
    Iso2022Kr,
    Hz,
    /// UTF-7 and DOS code pages, which browsers (and so `encoding_rs`) do not know.
    Other(fn(&[u8]) -> String),
}

/// Decodes text in its declared charset. Text that is not valid in it falls back to UTF-8, then to the declared charset
/// with replacement characters, so that one bad byte does not cost the whole text.
pub fn decode(bytes: &[u8], label: Option<&str>, defects: &mut Defects) -> String {
    let label = label.map(clean_label).filter(|label| !label.is_empty());
    let Some(label) = label else {
        return undeclared(bytes, Defect::UnknownCharset, defects).into_owned();
    };
    match find(&label) {
        None => {
            defects.add(Defect::UnknownCharset);
            undeclared(bytes, Defect::UnknownCharset, defects).into_owned()
        }
        Some(Charset::Ascii) => {
            if !bytes.is_ascii() {
                defects.add(Defect::WrongCharset);
            }
            undeclared(bytes, Defect::WrongCharset, defects).into_owned()
        }
        Some(Charset::Standard(encoding)) => standard(bytes, encoding, defects),
        Some(Charset::Iso2022Kr) => shift_in_out(bytes, &ISO_2022_KR),
        Some(Charset::Hz) => shift_in_out(bytes, &HZ),
        Some(Charset::Other(decode)) => decode(bytes),
    }
}

/// Decodes a header that should have been ASCII: as UTF-8 (RFC 6532), else as the body declares, else as windows-1252.
pub fn decode_header<'a>(bytes: &'a [u8], body_charset: Option<&str>, defects: &mut Defects) -> Cow<'a, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    defects.add(Defect::RawHeaderBytes);
    if let Some(Charset::Standard(encoding)) = body_charset.map(clean_label).and_then(|label| find(&label)) {
        // Declared UTF-8 is refuted already: its windows-1252 reading is the better guess.
        if encoding != UTF_8
            && let Some(text) = encoding.decode_without_bom_handling_and_without_replacement(bytes)
        {
            return Cow::Owned(text.into_owned());
        }
    }
    // UTF-8 cut in the middle of a character by a limit or a careless fold is still UTF-8.
    if is_mostly_utf8(bytes) {
        return String::from_utf8_lossy(bytes);
    }
    WINDOWS_1252.decode_without_bom_handling(bytes).0
}

/// Returns the bytes of a text in this charset, for a text that was already decoded in another one.
pub fn encode<'a>(text: &'a str, label: &str) -> Cow<'a, [u8]> {
    match find(&clean_label(label)) {
        Some(Charset::Standard(encoding)) if encoding.output_encoding() == encoding => encoding.encode(text).0,
        _ => Cow::Borrowed(text.as_bytes()),
    }
}

/// Returns whether a declared charset is one we can read.
pub fn is_known(label: &str) -> bool {
    find(&clean_label(label)).is_some()
}

fn undeclared<'a>(bytes: &'a [u8], defect: Defect, defects: &mut Defects) -> Cow<'a, str> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    defects.add(defect);
    if is_mostly_utf8(bytes) {
        return String::from_utf8_lossy(bytes);
    }
    WINDOWS_1252.decode_without_bom_handling(bytes).0
}

fn standard(bytes: &[u8], encoding: &'static Encoding, defects: &mut Defects) -> String {
    if encoding == ISO_2022_JP && memchr::memmem::find(bytes, b"\x1B(B\x1B").is_some() {
        return standard(&without_idle_escapes(bytes), encoding, defects);
    }
    // Gateways turn UTF-16 into ASCII and leave the label; real UTF-16 has NUL in it as soon as it has a line end.
    if (encoding == UTF_16LE || encoding == UTF_16BE) && !bytes.contains(&0) && bytes.is_ascii() {
        defects.add(Defect::WrongCharset);
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let (text, used, had_errors) = encoding.decode(bytes);
    if !had_errors {
        return text.into_owned();
    }
    defects.add(Defect::WrongCharset);
    if used == UTF_8 {
        if is_mostly_utf8(bytes) {
            return text.into_owned();
        }
        return WINDOWS_1252.decode_without_bom_handling(bytes).0.into_owned();
    }
    match std::str::from_utf8(bytes) {
        Ok(utf8) if !bytes.is_ascii() => utf8.to_owned(),
        _ => text.into_owned(),
    }
}

/// Removes escapes to ASCII that are followed by another escape: browsers' rules call them errors, and joined encoded
/// words are full of them.
fn without_idle_escapes(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, tail)) = rest.split_first() {
        match rest {
            [0x1B, b'(', b'B', after @ ..] if after.first() == Some(&0x1B) => rest = after,
            _ => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    out
}

/// Returns whether at least half of the non-ASCII runs are valid UTF-8: a cut or a stray byte, not another charset.
fn is_mostly_utf8(bytes: &[u8]) -> bool {
    let (mut valid, mut invalid) = (0usize, 0usize);
    for chunk in bytes.utf8_chunks() {
        valid += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        invalid += usize::from(!chunk.invalid().is_empty());
    }
    valid > 0 && valid >= invalid
}

/// Returns the label in lower case, without quotes and without what some mailers write after the name.
fn clean_label(label: &str) -> String {
    let label = label.trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | ';' | ','));
    let end = label.find(|c: char| c.is_whitespace() || matches!(c, ';' | '"' | '\'' | '*')).unwrap_or(label.len());
    label.get(..end).unwrap_or_default().to_ascii_lowercase()
}

fn find(label: &str) -> Option<Charset> {
    match label {
        "us-ascii" | "ascii" | "ansi_x3.4-1968" | "7bit" | "us_ascii" | "usascii" | "iso646-us" => {
            return Some(Charset::Ascii);
        }
        "iso-2022-kr" | "csiso2022kr" => return Some(Charset::Iso2022Kr),
        "hz-gb-2312" | "hz" => return Some(Charset::Hz),
        // A label that stands for "I don't know" in WHATWG's table; mail that says so is ordinary text.
        "replacement" | "x-user-defined" => return None,
        _ => {}
    }
    if let Some(encoding) = Encoding::for_label_no_replacement(label.as_bytes()) {
        return Some(Charset::Standard(encoding));
    }
    if let Some(encoding) = Encoding::for_label_no_replacement(alias(label).as_bytes()) {
        return Some(Charset::Standard(encoding));
    }
    // The table of mail-parser reads only the first 45 bytes of a label; a longer one is no charset.
    (label.len() <= 45).then(|| charset_decoder(label.as_bytes()).map(Charset::Other)).flatten()
}

/// Spellings met in mail that the web does not use.
fn alias(label: &str) -> Cow<'_, str> {
    let plain = match label {
        "cp932" | "ms932" | "cswindows31j" | "x-ms-cp932" | "shift-jis" | "shiftjis" | "x-shift-jis" => "shift_jis",
        "cp936" | "ms936" | "windows-936" | "gb18030-2000" | "euc-cn" | "x-euc-cn" | "gb-2312" | "cn-gb" => "gb18030",
        "cp949" | "ms949" | "uhc" | "x-windows-949" | "ks_c_5601" | "ks-c-5601" | "ks_c_5601-1992"
        | "ks-c-5601-1987" => "euc-kr",
        "cp950" | "ms950" | "x-windows-950" | "windows-950" | "big-5" => "big5",
        "cp65001" | "65001" | "utf" | "utf-8-mac" | "utf-8n" | "x-utf-8" | "unicode-utf-8" | "utf-8-sig" => "utf-8",
        "cp874" | "tis620" => "windows-874",
        "iso-2022-jp-1" | "iso-2022-jp-2" | "iso-2022-jp-3" | "iso-2022-jp-ms" | "cp50220" | "cp50221" | "cp50222" => {
            "iso-2022-jp"
        }
        "eucjp" | "cp51932" | "eucjp-ms" | "ujis" => "euc-jp",
        "cp10000" | "x-mac-western" => "macintosh",
        "cp20866" => "koi8-r",
        "cp21866" => "koi8-u",
        "ansi" | "latin-1" | "iso-latin-1" | "8bit" | "windows-ansi" | "western" => "windows-1252",
        _ => {
            // `windows1252`, `win-1251`, `cp-1250`, `iso8859-1`, `iso_8859_1` and `x-iso-8859-1` in all their spellings.
            let short = label.strip_prefix("x-").unwrap_or(label);
            for prefix in ["windows", "win", "cp", "ms", "ibm"] {
                if let Some(rest) = short.strip_prefix(prefix) {
                    let number = rest.trim_start_matches(['-', '_']);
                    if number.len() == 4 && number.starts_with("125") {
                        return Cow::Owned(format!("windows-{number}"));
                    }
                }
            }
            if let Some(rest) = short.strip_prefix("iso") {
                let rest = rest.trim_start_matches(['-', '_']).replace('_', "-");
                if let Some(number) = rest.strip_prefix("8859") {
                    return Cow::Owned(format!("iso-8859-{}", number.trim_start_matches('-')));
                }
            }
            return Cow::Owned(label.replace('_', "-"));
        }
    };
    Cow::Borrowed(plain)
}

/// A seven-bit encoding in which marks switch between ASCII and two-byte characters.
struct ShiftEncoding {
    on: &'static [u8],
    off: &'static [u8],
    /// Sequences that mean nothing to us or stand for a single character.
    replaced: &'static [(&'static [u8], &'static [u8])],
    wide: &'static Encoding,
}

static ISO_2022_KR: ShiftEncoding =
    ShiftEncoding { on: b"\x0E", off: b"\x0F", replaced: &[(b"\x1B$)C", b"")], wide: EUC_KR };
static HZ: ShiftEncoding =
    ShiftEncoding { on: b"~{", off: b"~}", replaced: &[(b"~~", b"~"), (b"~\n", b"")], wide: GBK };

fn shift_in_out(bytes: &[u8], shifts: &ShiftEncoding) -> String {
    let mut wide = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    let mut is_wide = false;
    'next: while let Some((&byte, tail)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(if is_wide { shifts.off } else { shifts.on }) {
            is_wide = !is_wide;
            rest = after;
            continue;
        }
        for (from, to) in shifts.replaced {
            if let Some(after) = rest.strip_prefix(*from).filter(|_| !is_wide) {
                wide.extend_from_slice(to);
                rest = after;
                continue 'next;
            }
        }
        // A line always begins in ASCII, which keeps one lost mark from spoiling the rest.
        is_wide &= byte != b'\n';
        wide.push(if is_wide && byte.is_ascii_graphic() { byte | 0x80 } else { byte });
        rest = tail;
    }
    shifts.wide.decode_without_bom_handling(&wide).0.into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], label: Option<&str>) -> (String, Vec<String>) {
        let mut defects = Defects::default();
        let text = decode(bytes, label, &mut defects);
        (text, defects.names())
    }

    #[test]
    fn charsets_go_by_many_names() {
        assert_eq!(read(b"\x93\xFA\x96{", Some("CP932")).0, "日本");
        assert_eq!(read(b"\xC4\xE3", Some("\"gb2312\"")).0, "你");
        assert_eq!(read(b"\xC7\xD1", Some("ks_c_5601-1987")).0, "한");
        assert_eq!(read(b"\xC7\xD1", Some("ks_c_5601")).0, "한");
        assert_eq!(read(b"\x1B$BF|K\\\x1B(B", Some("iso-2022-jp")).0, "日本");
        assert_eq!(read(b"\x1B$BF|\x1B(B\x1B$BK\\\x1B(B", Some("iso-2022-jp")), ("日本".to_owned(), vec![]));
        assert_eq!(read(b"\xE9", Some("iso8859_1")).0, "é");
        assert_eq!(read(b"\xE0", Some("win-1251")).0, "а");
        assert_eq!(read(b"Hi +AOk-!", Some("utf-7")).0, "Hi é!");
        assert_eq!(read(b"\x82", Some("cp850")).0, "é");
        assert!(read(b"\xE9", Some("latin1")).1.is_empty());
    }

    #[test]
    fn shifted_charsets_are_read() {
        assert_eq!(read(b"\x1B$)C\x0EGQ\x0F!", Some("iso-2022-kr")).0, "한!");
        assert_eq!(read(b"a~{Dc~}~~", Some("hz-gb-2312")).0, "a你~");
    }

    #[test]
    fn undeclared_text_is_utf8_or_windows_1252() {
        assert_eq!(read("é".as_bytes(), None), ("é".to_owned(), vec![]));
        assert_eq!(read(b"caf\xE9", None), ("café".to_owned(), vec!["unknown_charset".to_owned()]));
        assert_eq!(read(b"plain", Some("x-unknown")), ("plain".to_owned(), vec!["unknown_charset".to_owned()]));
    }

    #[test]
    fn a_wrong_declaration_does_not_spoil_the_text() {
        assert_eq!(read(b"caf\xE9", Some("us-ascii")), ("café".to_owned(), vec!["wrong_charset".to_owned()]));
        assert_eq!(read(b"caf\xE9", Some("utf-8")), ("café".to_owned(), vec!["wrong_charset".to_owned()]));
        assert_eq!(read(b"\xC3\xA9\xC3\xA9\xC3", Some("utf-8")).0, "éé\u{FFFD}");
        assert_eq!(read("日本語".as_bytes(), Some("iso-2022-jp")).0, "日本語");
    }

    #[test]
    fn raw_headers_follow_the_body_when_they_are_not_utf8() {
        let mut defects = Defects::default();

        assert_eq!(decode_header("é".as_bytes(), Some("gbk"), &mut defects), "é");
        assert!(defects.names().is_empty());
        assert_eq!(decode_header(b"\xC4\xE3", Some("gbk"), &mut defects), "你");
        assert_eq!(decode_header(b"\xE9t\xE9", None, &mut defects), "été");
        assert_eq!(defects.names(), ["raw_header_bytes"]);
    }
}
