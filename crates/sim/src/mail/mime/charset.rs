//! The character sets of real mail. Each is computed, or covers the letters of our lexicons by a table.

use std::borrow::Cow;
use std::sync::LazyLock;

use crate::mail::lexicon::Language;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charset {
    Utf8,
    Latin1,
    /// ISO-8859-2.
    CentralEuropean,
    /// ISO-8859-7.
    Greek,
    Windows1251,
    /// Seven-bit Japanese: escape sequences switch between ASCII and two bytes per letter.
    Iso2022Jp,
    Gb2312,
}

impl Charset {
    /// Returns the legacy character set of a language, if it is supported.
    pub fn legacy(language: Language) -> Option<Self> {
        match language {
            Language::English | Language::German | Language::French | Language::Spanish => Some(Self::Latin1),
            Language::Polish => Some(Self::CentralEuropean),
            Language::Greek => Some(Self::Greek),
            Language::Russian => Some(Self::Windows1251),
            Language::Arabic => None,
            Language::Chinese => Some(Self::Gb2312),
            Language::Japanese => Some(Self::Iso2022Jp),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Latin1 => "iso-8859-1",
            Self::CentralEuropean => "iso-8859-2",
            Self::Greek => "iso-8859-7",
            Self::Windows1251 => "windows-1251",
            Self::Iso2022Jp => "iso-2022-jp",
            Self::Gb2312 => "gb2312",
        }
    }

    /// Encodes text. Returns `None` if the set lacks one of its letters.
    pub fn encode(self, text: &str) -> Option<Cow<'_, [u8]>> {
        match self {
            Self::Utf8 => Some(Cow::Borrowed(text.as_bytes())),
            Self::Iso2022Jp => iso_2022_jp(text).map(Cow::Owned),
            Self::Gb2312 => gb_2312(text).map(Cow::Owned),
            _ => text
                .chars()
                .map(|letter: char| if letter.is_ascii() { Some(letter as u8) } else { self.high_half(letter) })
                .collect::<Option<Vec<u8>>>()
                .map(Cow::Owned),
        }
    }

    fn high_half(self, letter: char) -> Option<u8> {
        let code = u32::from(letter);
        let byte = match self {
            Self::Utf8 | Self::Iso2022Jp | Self::Gb2312 => None,
            Self::Latin1 => (0xA0..=0xFF).contains(&code).then_some(code),
            Self::CentralEuropean => POLISH.iter().find(|(known, _)| *known == letter).map(|(_, byte)| *byte),
            // The Greek block lies in the set as it lies in Unicode; « and » stand where Latin-1 has them.
            Self::Greek => match code {
                0xAB | 0xBB => Some(code),
                0x0386 | 0x0388..=0x038A | 0x038C | 0x038E..=0x03A1 | 0x03A3..=0x03CE => Some(code - 0x02D0),
                _ => None,
            },
            Self::Windows1251 => match code {
                0xAB | 0xBB => Some(code),
                0x0410..=0x044F => Some(code - 0x0350),
                0x0401 => Some(0xA8),
                0x0451 => Some(0xB8),
                0x2013 => Some(0x96),
                0x2014 => Some(0x97),
                0x2116 => Some(0xB9),
                _ => None,
            },
        };
        byte.and_then(|byte| u8::try_from(byte).ok())
    }
}

/// Letters with their two bytes, sorted by letter.
type DoubleByte = LazyLock<Vec<(char, [u8; 2])>>;

/// For ISO-2022-JP.
static JIS: DoubleByte = LazyLock::new(|| double_byte(include_str!("../../../data/jis_x_0208.txt")));
/// With the high bits set, as EUC-CN has them.
static GB: DoubleByte = LazyLock::new(|| double_byte(include_str!("../../../data/gb_2312.txt")));

/// Parses lines such as `日 467C`.
fn double_byte(table: &str) -> Vec<(char, [u8; 2])> {
    table.lines().map(|line| letter_code(line).expect("every line has a letter and its code")).collect()
}

fn letter_code(line: &str) -> Option<(char, [u8; 2])> {
    let (letter, code) = line.split_once(' ')?;
    Some((letter.chars().next()?, u16::from_str_radix(code, 16).ok()?.to_be_bytes()))
}

fn find(table: &DoubleByte, letter: char) -> Option<[u8; 2]> {
    let place = table.binary_search_by_key(&letter, |(known, _)| *known).ok()?;
    Some(table[place].1)
}

fn iso_2022_jp(text: &str) -> Option<Vec<u8>> {
    const TO_ASCII: &[u8] = b"\x1B(B";
    const TO_JAPANESE: &[u8] = b"\x1B$B";
    let mut bytes = Vec::with_capacity(text.len());
    let mut is_ascii = true;
    for letter in text.chars() {
        // Lines begin and end in ASCII (RFC 1468), which this ensures since line ends are ASCII themselves.
        if letter.is_ascii() != is_ascii {
            is_ascii = !is_ascii;
            bytes.extend_from_slice(if is_ascii { TO_ASCII } else { TO_JAPANESE });
        }
        if is_ascii {
            bytes.push(letter as u8);
        } else {
            bytes.extend_from_slice(&find(&JIS, letter)?);
        }
    }
    if !is_ascii {
        bytes.extend_from_slice(TO_ASCII);
    }
    Some(bytes)
}

fn gb_2312(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii() {
            bytes.push(letter as u8);
        } else {
            bytes.extend_from_slice(&find(&GB, letter)?);
        }
    }
    Some(bytes)
}

const POLISH: [(char, u32); 18] = [
    ('Ą', 0xA1),
    ('Ł', 0xA3),
    ('Ś', 0xA6),
    ('Ź', 0xAC),
    ('Ż', 0xAF),
    ('ą', 0xB1),
    ('ł', 0xB3),
    ('ś', 0xB6),
    ('ź', 0xBC),
    ('ż', 0xBF),
    ('Ć', 0xC6),
    ('Ę', 0xCA),
    ('Ń', 0xD1),
    ('Ó', 0xD3),
    ('ć', 0xE6),
    ('ę', 0xEA),
    ('ń', 0xF1),
    ('ó', 0xF3),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(charset: Charset, text: &str) -> Option<Vec<u8>> {
        charset.encode(text).map(Cow::into_owned)
    }

    #[test]
    fn letters_encode_as_standardized() {
        assert_eq!(encoded(Charset::Latin1, "Grüße").unwrap(), b"Gr\xFC\xDFe");
        assert_eq!(encoded(Charset::CentralEuropean, "żółw").unwrap(), b"\xBF\xF3\xB3w");
        assert_eq!(encoded(Charset::Greek, "Ώρα").unwrap(), b"\xBF\xF1\xE1");
        assert_eq!(encoded(Charset::Windows1251, "Ёж №1").unwrap(), b"\xA8\xE6 \xB91");
        assert_eq!(encoded(Charset::Iso2022Jp, "A日").unwrap(), b"A\x1B$BF|\x1B(B");
        assert_eq!(encoded(Charset::Gb2312, "A会").unwrap(), b"A\xBB\xE1");
        assert_eq!(encoded(Charset::Latin1, "€"), None);
    }

    #[test]
    fn legacy_charsets_cover_their_languages() {
        for language in Language::ALL {
            let Some(charset) = Charset::legacy(language) else { continue };
            let lexicon = language.lexicon();
            for text in lexicon.sentences.iter().chain(&lexicon.things).chain(&lexicon.verbs).chain(&lexicon.subjects) {
                assert!(charset.encode(text).is_some(), "{text} in {charset:?}");
            }
        }
    }
}
