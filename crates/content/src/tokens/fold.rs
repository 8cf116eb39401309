//! Folds letters to one spelling, without case, diacritics and width: `Café`, `CAFE` and `ｃａｆｅ́` are the word `cafe`.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{decompose_compatible, is_combining_mark};

/// Returns whether a character can be part of a word, before and after folding.
pub fn is_word(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_alphanumeric() } else { c.is_alphanumeric() || is_combining_mark(c) || is_dropped(c) }
}

/// Returns whether a character belongs to the letter before it, so that both are folded together.
pub fn extends(c: char) -> bool {
    // Half-width voicing marks and Hangul vowels and finals combine with what precedes them.
    !c.is_ascii()
        && (is_combining_mark(c) || is_dropped(c) || matches!(c, '\u{FF9E}' | '\u{FF9F}' | '\u{1160}'..='\u{11FF}'))
}

/// Folds one letter with what extends it: compatibility forms, then without diacritics, then without case, then
/// composed again, since decomposed Hangul and kana would cost three times the space.
pub fn fold(letter: &str, folded: &mut Vec<char>) {
    folded.clear();
    let mut chars = letter.chars();
    if let (Some(only), None) = (chars.next(), chars.next())
        && matches!(only, '\u{4E00}'..='\u{9FFF}' | '\u{AC00}'..='\u{D7A3}')
    {
        return folded.push(only); // folds to itself, and most text in these scripts is this
    }
    for c in letter.chars() {
        decompose_compatible(c, |part| {
            if !is_dropped(part) {
                fold_case(part, folded);
            }
        });
    }
    if folded.len() > 1 {
        *folded = folded.iter().copied().nfc().collect();
    }
}

/// Marks that people leave out when they type, and characters that only guide layout.
fn is_dropped(c: char) -> bool {
    matches!(c,
        '\u{0300}'..='\u{036F}' | '\u{1AB0}'..='\u{1AFF}' | '\u{1DC0}'..='\u{1DFF}' // diacritics
        | '\u{20D0}'..='\u{20FF}' | '\u{FE20}'..='\u{FE2F}' // marks around symbols, half marks
        | '\u{0591}'..='\u{05C7}' | '\u{0640}' | '\u{064B}'..='\u{065F}' | '\u{0670}' // Hebrew and Arabic vowels
        | '\u{00AD}' | '\u{200C}' | '\u{200D}' | '\u{2060}' | '\u{FEFF}' // soft hyphen, joiners
        | '\u{FE00}'..='\u{FE0F}' | '\u{E0100}'..='\u{E01EF}') // variation selectors
}

/// Folds case as Unicode does where that differs from lower case: ß is ss, a final sigma is a sigma.
fn fold_case(c: char, folded: &mut Vec<char>) {
    for lower in c.to_lowercase() {
        match lower {
            'ß' => folded.extend(['s', 's']),
            'ς' => folded.push('σ'),
            lower if is_dropped(lower) => {}
            lower => folded.push(lower),
        }
    }
}
