//! Folder names in modified UTF-7 (RFC 3501, section 5.1.3).

use base64::Engine;
use base64::alphabet::Alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

fn engine() -> Option<GeneralPurpose> {
    let alphabet = Alphabet::new("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+,").ok()?;
    let config = GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true);
    Some(GeneralPurpose::new(&alphabet, config))
}

pub fn encode(name: &str) -> String {
    let mut encoded = String::new();
    let mut shifted: Vec<u8> = Vec::new();
    for letter in name.chars() {
        if matches!(letter, ' '..='~') {
            append_shifted(&mut encoded, &mut shifted);
            encoded.push(letter);
            if letter == '&' {
                encoded.push('-');
            }
        } else {
            let mut units = [0; 2];
            letter.encode_utf16(&mut units).iter().for_each(|unit| shifted.extend(unit.to_be_bytes()));
        }
    }
    append_shifted(&mut encoded, &mut shifted);
    encoded
}

/// Appends the collected UTF-16 units in modified base64, and clears them.
fn append_shifted(encoded: &mut String, shifted: &mut Vec<u8>) {
    if !shifted.is_empty() {
        let base64 = engine().map(|engine| engine.encode(&*shifted)).unwrap_or_default();
        encoded.push_str(&format!("&{base64}-"));
        shifted.clear();
    }
}

/// Decodes a name. Returns `None` if it is malformed.
pub fn decode(wire: &str) -> Option<String> {
    let mut text = String::new();
    let mut rest = wire;
    while let Some(at) = rest.find('&') {
        text.push_str(&rest[..at]);
        let (shifted, left) = rest[at + 1..].split_once('-')?;
        match shifted {
            "" => text.push('&'),
            base64 => {
                let bytes = engine()?.decode(base64).ok()?;
                let units = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
                text.push_str(&char::decode_utf16(units).collect::<Result<String, _>>().ok()?);
            }
        }
        rest = left;
    }
    text.push_str(rest);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_names_round_trip() {
        for (name, wire) in [
            ("INBOX", "INBOX"),
            ("A & B", "A &- B"),
            ("Entwürfe", "Entw&APw-rfe"),
            ("~peter/mail/台北/日本語", "~peter/mail/&U,BTFw-/&ZeVnLIqe-"),
        ] {
            assert_eq!(encode(name), wire);
            assert_eq!(decode(wire).as_deref(), Some(name));
        }
        assert_eq!(decode("&AAA"), None);
    }
}
