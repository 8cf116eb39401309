//! Splits a text into folded words, each with its position.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;

use super::fold::{extends, fold, is_word};
use super::is_unspaced;

/// Longer words are cut: people do not search for them, and an encoded blob in a body must not fill the index.
const MAX_WORD_BYTES: usize = 64;

/// More marks than this on one letter are abuse; they are folded as letters of their own.
const MAX_LETTER_CHARS: usize = 16;

/// Returns the folded words of `text` in order. A run of a script without spaces gives every pair of neighbours, and
/// its last character alone, so that a token starts at each character.
///
/// A token holds ASCII letters and digits in lower case and characters beyond ASCII, nothing else.
pub fn words(text: &str) -> Words<'_> {
    Words {
        text,
        at: 0,
        is_folding: false,
        spaced: String::new(),
        spaced_at: 0..0,
        unspaced: None,
        ready: VecDeque::new(),
    }
}

#[derive(Debug)]
pub struct Words<'a> {
    text: &'a str,
    at: usize,
    /// In a run that is not plain ASCII.
    is_folding: bool,
    /// The word that is being folded.
    spaced: String,
    spaced_at: Range<usize>,
    /// The last character of a run without spaces.
    unspaced: Option<(char, Range<usize>)>,
    ready: VecDeque<(String, Range<usize>)>,
}

impl<'a> Iterator for Words<'a> {
    type Item = (Cow<'a, str>, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        let (mut word, range) = self.next_mixed_case()?;
        if word.bytes().any(|b| b.is_ascii_uppercase()) {
            word.to_mut().make_ascii_lowercase();
        }
        Some((word, range))
    }
}

impl<'a> Words<'a> {
    /// Returns the next word, but a borrowed one keeps its ASCII capitals: a caller that copies it can lower them in
    /// place.
    pub(super) fn next_mixed_case(&mut self) -> Option<(Cow<'a, str>, Range<usize>)> {
        loop {
            if let Some((word, range)) = self.ready.pop_front() {
                return Some((Cow::Owned(word), range));
            }
            if self.is_folding {
                self.fold_letter();
            } else if let Some(range) = self.find_plain_word()? {
                return Some((Cow::Borrowed(cut(&self.text[range.clone()])), range));
            }
        }
    }

    /// Returns the next run of ASCII letters and digits; `Some(None)` when a run with other letters starts instead.
    fn find_plain_word(&mut self) -> Option<Option<Range<usize>>> {
        let bytes = self.text.as_bytes();
        let mut start = self.at;
        loop {
            start += bytes[start..].iter().position(|&b| b.is_ascii_alphanumeric() || b >= 0x80)?;
            let mut end = start;
            while end < bytes.len() && bytes[end].is_ascii_alphanumeric() {
                end += 1;
            }
            let after = if bytes.get(end).is_some_and(|&b| b >= 0x80) { self.text[end..].chars().next() } else { None };
            if after.is_some_and(is_word) {
                self.at = start;
                self.is_folding = true;
                return Some(None);
            }
            if end > start {
                self.at = end;
                return Some(Some(start..end));
            }
            start = end + after.map_or(1, char::len_utf8);
        }
    }

    /// Takes one letter and its marks, and readies the words that it ends.
    fn fold_letter(&mut self) {
        let start = self.at;
        let mut chars = self.text[start..].chars();
        let Some(first) = chars.next().filter(|&c| is_word(c)) else {
            self.finish_run();
            self.is_folding = false;
            return;
        };
        self.at += first.len_utf8();
        for c in chars.take(MAX_LETTER_CHARS).take_while(|&c| extends(c)) {
            self.at += c.len_utf8();
        }
        let mut folded = Vec::with_capacity(4);
        fold(&self.text[start..self.at], &mut folded);
        for c in folded {
            self.take(c, start..self.at);
        }
    }

    fn take(&mut self, c: char, at: Range<usize>) {
        if !is_word(c) {
            self.finish_run(); // ½ folds to 1⁄2: two words
        } else if is_unspaced(c) {
            self.finish_spaced();
            if let Some((before, before_at)) = self.unspaced.replace((c, at.clone())) {
                self.ready.push_back((String::from_iter([before, c]), before_at.start..at.end));
            }
        } else {
            self.finish_unspaced();
            if self.spaced.is_empty() {
                self.spaced_at = at.clone();
            }
            self.spaced_at.end = at.end;
            if self.spaced.len() <= MAX_WORD_BYTES {
                self.spaced.push(c);
            }
        }
    }

    fn finish_run(&mut self) {
        self.finish_spaced();
        self.finish_unspaced();
    }

    fn finish_spaced(&mut self) {
        // Marks without a letter are no word.
        if self.spaced.chars().any(char::is_alphanumeric) {
            let keep = cut(&self.spaced).len();
            self.spaced.truncate(keep);
            self.ready.push_back((std::mem::take(&mut self.spaced), self.spaced_at.clone()));
        }
        self.spaced.clear();
    }

    fn finish_unspaced(&mut self) {
        if let Some((last, at)) = self.unspaced.take() {
            self.ready.push_back((last.to_string(), at));
        }
    }
}

fn cut(word: &str) -> &str {
    &word[..word.floor_char_boundary(MAX_WORD_BYTES)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    fn all(text: &str) -> Vec<String> {
        words(text).map(|(word, _)| word.into_owned()).collect()
    }

    #[test]
    fn punctuation_separates_and_case_is_lost() {
        assert_eq!(
            all("Don't re_send, ALICE.smith@Example.com!"),
            ["don", "t", "re", "send", "alice", "smith", "example", "com"]
        );
        assert_eq!(all("–word—word’s\u{a0}x"), ["word", "word", "s", "x"]);
        assert_eq!(all(" \n…"), [""; 0]);
    }

    #[test]
    fn spellings_of_a_word_fold_to_one() {
        assert_eq!(all("Café cafe\u{301} ＣＡＦＥ"), ["cafe"; 3]);
        assert_eq!(all("Straße STRASSE ﬁne İstanbul ΣΊΣΥΦΟΣ"), ["strasse", "strasse", "fine", "istanbul", "σισυφοσ"]);
        assert_eq!(all("in\u{ad}voice"), ["invoice"]);
        assert_eq!(all("\u{1112}\u{1161}\u{11ab} 한"), ["한", "한"]);
    }

    #[test]
    fn character_may_fold_to_several_words() {
        assert_eq!(all("½ ⑴ \u{FDFA}")[..3], ["1", "2", "1"]);
        assert_eq!(all("\u{301} ❤\u{fe0f}"), [""; 0]);
    }

    #[test]
    fn unspaced_run_becomes_overlapping_pairs() {
        assert_eq!(all("東京都tower ｶﾞｽ"), ["東京", "京都", "都", "tower", "ガス", "ス"]);
        assert_eq!(all("한국어 단어"), ["한국어", "단어"]);
        assert_eq!(all("ไทย"), ["ไท", "ทย", "ย"]);
    }

    #[test]
    fn a_word_knows_its_place() {
        let text = "a Café 東京x";
        let places: Vec<_> = words(text).map(|(_, at)| &text[at]).collect();

        assert_eq!(places, ["a", "Café", "東京", "京", "x"]);
    }

    #[test]
    fn a_long_word_is_cut_between_characters() {
        assert_eq!(all(&"x".repeat(1000))[0].len(), 64);
        assert_eq!(all(&format!("{}ж", "x".repeat(63)))[0], "x".repeat(63));
    }

    fn is_folded(c: char) -> bool {
        c.is_ascii_lowercase() || c.is_ascii_digit() || (!c.is_ascii() && is_word(c))
    }

    fn assert_clean(text: &str) {
        for (token, at) in words(text) {
            assert!(text.get(at).is_some_and(|source| !source.is_empty()));
            assert!(!token.is_empty() && token.len() <= MAX_WORD_BYTES);
            assert!(token.chars().all(is_folded), "{token:?} of {text:?}");
            assert_eq!(words(&token).next().unwrap().0, token, "of {text:?}");
        }
    }

    #[test]
    fn folding_is_idempotent_for_every_character() {
        for c in '\0'..=char::MAX {
            assert_clean(c.encode_utf8(&mut [0; 4]));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(1),
            ..ProptestConfig::default()
        })]

        #[test]
        fn tokens_are_stable_and_hold_no_separator(text in any::<String>()) {
            assert_clean(&text);
        }
    }
}
