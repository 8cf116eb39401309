//! The character sets real mail still arrives in. Each is computed or comes from a table of a few letters.

use super::super::words::Language;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charset {
    Utf8,
    Latin1,
    /// ISO-8859-2.
    CentralEuropean,
    /// ISO-8859-7.
    Greek,
    Windows1251,
}

impl Charset {
    /// What an old client would have chosen for the language, where we know how to write it.
    pub fn legacy(language: Language) -> Option<Self> {
        match language {
            Language::English | Language::German | Language::French | Language::Spanish => Some(Self::Latin1),
            Language::Polish => Some(Self::CentralEuropean),
            Language::Greek => Some(Self::Greek),
            Language::Russian => Some(Self::Windows1251),
            Language::Arabic | Language::Chinese | Language::Japanese => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Latin1 => "iso-8859-1",
            Self::CentralEuropean => "iso-8859-2",
            Self::Greek => "iso-8859-7",
            Self::Windows1251 => "windows-1251",
        }
    }

    /// The text in this character set, or `None` when it has a letter that the set has not.
    pub fn encode(self, text: &str) -> Option<Vec<u8>> {
        if self == Self::Utf8 {
            return Some(text.as_bytes().to_vec());
        }
        let mut bytes = Vec::with_capacity(text.len());
        for letter in text.chars() {
            bytes.push(if letter.is_ascii() { letter as u8 } else { self.high_half(letter)? });
        }
        Some(bytes)
    }

    fn high_half(self, letter: char) -> Option<u8> {
        let code = u32::from(letter);
        let byte = match self {
            Self::Utf8 => return None,
            Self::Latin1 => (0xA0..=0xFF).contains(&code).then_some(code),
            Self::CentralEuropean => POLISH.iter().find(|(known, _)| *known == letter).map(|(_, byte)| *byte),
            // The Greek block lies in the set as it lies in Unicode; « and » stand where Latin-1 has them.
            Self::Greek => match code {
                0xAB | 0xBB => Some(code),
                0x0388..=0x038A | 0x038C | 0x038E..=0x03A1 | 0x03A3..=0x03CE => Some(code - 0x02D0),
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

    #[test]
    fn letters_take_the_bytes_of_their_standard() {
        assert_eq!(Charset::Latin1.encode("Grüße").unwrap(), b"Gr\xFC\xDFe");
        assert_eq!(Charset::CentralEuropean.encode("żółw").unwrap(), b"\xBF\xF3\xB3w");
        assert_eq!(Charset::Greek.encode("Ώρα").unwrap(), b"\xBF\xF1\xE1");
        assert_eq!(Charset::Windows1251.encode("Ёж №1").unwrap(), b"\xA8\xE6 \xB91");
        assert_eq!(Charset::Latin1.encode("€"), None);
    }
}
