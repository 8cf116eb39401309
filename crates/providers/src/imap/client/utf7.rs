//! Decodes folder names: modified UTF-7 (RFC 3501, 5.1.3) or UTF-8.

use base64::Engine;
use base64::alphabet::Alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Decodes a name if it is well-formed modified UTF-7.
pub fn decode(wire: &[u8]) -> Option<String> {
    let mut text = String::with_capacity(wire.len());
    let mut rest = wire;
    while let Some(&byte) = rest.first() {
        match byte {
            b'&' => {
                let end = rest.iter().position(|byte| *byte == b'-')?;
                if end == 1 {
                    text.push('&');
                } else {
                    decode_shifted(&rest[1..end], &mut text)?;
                }
                rest = &rest[end + 1..];
            }
            0x20..=0x7e => {
                text.push(char::from(byte));
                rest = &rest[1..];
            }
            _ => return None,
        }
    }
    Some(text)
}

fn decode_shifted(base64: &[u8], text: &mut String) -> Option<()> {
    let alphabet = Alphabet::new("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+,").ok()?;
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true);
    let bytes = GeneralPurpose::new(&alphabet, config).decode(base64).ok()?;
    if bytes.len() % 2 != 0 {
        return None;
    }
    let units = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    for decoded in char::decode_utf16(units) {
        text.push(decoded.ok()?);
    }
    Some(())
}

/// Returns the name for people; one that cannot be decoded keeps its characters as far as they are text.
pub fn display_name(wire: &[u8], is_utf8: bool) -> String {
    let text = if is_utf8 { None } else { decode(wire) };
    let text = text.unwrap_or_else(|| String::from_utf8_lossy(wire).into_owned());
    // Databases do not store NUL, and a list of folders has no line breaks.
    text.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modified_utf7_is_decoded() {
        for (wire, text) in [
            ("INBOX", "INBOX"),
            ("Entw&APw-rfe", "Entwürfe"),
            ("&ZeVnLIqe-", "日本語"),
            ("~peter/mail/&U,BTFw-/&ZeVnLIqe-", "~peter/mail/台北/日本語"),
            ("R&-D", "R&D"),
            ("&2D3eAA-", "😀"),
            ("&-&-", "&&"),
        ] {
            assert_eq!(decode(wire.as_bytes()).as_deref(), Some(text), "{wire}");
        }
    }

    #[test]
    fn other_names_are_shown_as_they_are() {
        for wire in ["a&b", "&APw", "&A-", "&2D0-", "&!!-", "é"] {
            assert_eq!(decode(wire.as_bytes()), None, "{wire}");
            assert_eq!(display_name(wire.as_bytes(), false), wire);
        }
        assert_eq!(display_name(b"\xff\xfea\0\r\n", false), "\u{fffd}\u{fffd}a");
        assert_eq!(display_name("Entw&APw-rfe".as_bytes(), true), "Entw&APw-rfe");
    }
}
