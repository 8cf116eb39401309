//! Snippets of search results with the hits marked, and the relevance score.

mod hits;
mod score;

use std::ops::Range;

use domain::search::SearchQuery;

use crate::tokens::SearchField;
use hits::SearchHit;
pub use score::score;

/// Returns the stretch of `text` that holds the most of what was searched, in at most `max_chars` characters, with
/// `marks` before and after each hit and `…` where text was left out. Without a hit it is the beginning.
///
/// `field` says what the text is, so that `subject:offer` is marked in subjects only; the body is `None`. White space
/// is collapsed, and characters that could steer a terminal are left out; marks are put in as given. For HTML, pass
/// marks that no text contains, escape the snippet, and replace them.
pub fn snippet(
    text: &str,
    field: Option<SearchField>,
    query: &SearchQuery,
    max_chars: usize,
    marks: (&str, &str),
) -> String {
    let hits = hits::find(text, field, &query.all_of);
    let first = best_start(&hits, max_chars);
    let start = first.map_or(0, |hit| back(text, hit.bytes.start, max_chars / 4));
    render(text, start, &merged(&hits), max_chars, marks)
}

/// Returns the hit from which on the window covers the most different phrases; then the most hits, then the earliest.
fn best_start(hits: &[SearchHit], max_chars: usize) -> Option<&SearchHit> {
    let reach = max_chars * 3 / 4;
    let mut best: Option<(&SearchHit, (u32, usize))> = None;
    let mut end = 0;
    for (at, hit) in hits.iter().enumerate() {
        while end < hits.len() && hits[end].chars.end <= hit.chars.start + reach {
            end += 1;
        }
        let within = &hits[at..end.max(at + 1)];
        let phrases = within.iter().fold(0_u64, |seen, hit| seen | 1 << (hit.phrase % 64)).count_ones();
        let value = (phrases, within.len());
        if best.is_none_or(|(_, most)| value > most) {
            best = Some((hit, value));
        }
    }
    best.map(|(hit, _)| hit)
}

/// Returns a position up to `chars` characters before `from`, at the start of a word if there is one.
fn back(text: &str, from: usize, chars: usize) -> usize {
    let Some((earliest, _)) = text[..from].char_indices().rev().take(chars).last() else { return from };
    if earliest == 0 {
        return 0;
    }
    let before = &text[earliest..from];
    before.find(char::is_whitespace).map_or(from, |space| earliest + space)
}

/// Returns the ranges to mark: hits merged where they overlap, as neighbouring pairs of a script without spaces do.
fn merged(hits: &[SearchHit]) -> Vec<Range<usize>> {
    let mut places: Vec<Range<usize>> = Vec::new();
    for hit in hits {
        match places.last_mut() {
            Some(last) if hit.bytes.start < last.end => last.end = last.end.max(hit.bytes.end),
            _ => places.push(hit.bytes.clone()),
        }
    }
    places
}

fn render(text: &str, start: usize, places: &[Range<usize>], max_chars: usize, marks: (&str, &str)) -> String {
    let mut shown = String::from(if start > 0 { "…" } else { "" });
    let mut places = places.iter().skip_while(|place| place.start < start).peekable();
    let (mut count, mut is_space_due, mut is_marked) = (0, false, false);
    for (at, c) in text[start..].char_indices().map(|(at, c)| (start + at, c)) {
        if is_marked && places.next_if(|place| place.end <= at).is_some() {
            shown.push_str(marks.1);
            is_marked = false;
        }
        if c.is_whitespace() || c.is_control() {
            is_space_due = count > 0;
            continue;
        }
        if is_direction(c) {
            continue;
        }
        if count + 1 + usize::from(is_space_due) > max_chars {
            shown.push_str(if is_marked { marks.1 } else { "" });
            shown.push('…');
            return shown;
        }
        if std::mem::take(&mut is_space_due) {
            shown.push(' ');
            count += 1;
        }
        if !is_marked && places.peek().is_some_and(|place| place.start <= at) {
            shown.push_str(marks.0);
            is_marked = true;
        }
        shown.push(c);
        count += 1;
    }
    shown.push_str(if is_marked { marks.1 } else { "" });
    shown
}

/// Returns whether a character reorders the text around it, with which a subject can be made to read as another.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;
    use crate::query::parse;

    fn marked(text: &str, query: &str, max_chars: usize) -> String {
        snippet(text, None, &parse(query).unwrap(), max_chars, ("[", "]"))
    }

    #[test]
    fn hits_are_marked_as_written() {
        assert_eq!(
            marked("Past  due\n\tINVOICE, café", "invoice \"past due\" cafe", 80),
            "[Past due] [INVOICE], [café]"
        );
        assert_eq!(marked("invoices", "invo*", 80), "[invoices]");
        assert_eq!(marked("大東京都", "東京都", 80), "大[東京都]");
        assert_eq!(marked("over", "-over", 80), "over");
    }

    #[test]
    fn the_window_with_most_of_the_query_is_shown() {
        let text = format!("alpha {} alpha beta {}", "x ".repeat(100), "y ".repeat(100));

        assert_eq!(marked(&text, "alpha beta", 20), "…x [alpha] [beta] y y y y…");
        assert_eq!(marked(&text, "nothing", 9), "alpha x x…");
    }

    #[test]
    fn a_field_is_marked_only_where_it_was_searched() {
        let query = parse("subject:offer").unwrap();

        assert_eq!(snippet("offer", Some(SearchField::Subject), &query, 80, ("[", "]")), "[offer]");
        assert_eq!(snippet("offer", None, &query, 80, ("[", "]")), "offer");
    }

    #[test]
    fn nothing_in_a_text_steers_a_terminal() {
        assert_eq!(marked("a\u{1b}(0 \0b\u{202e}c", "a", 80), "[a] (0 bc");
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(1),
            ..ProptestConfig::default()
        })]

        #[test]
        fn any_text_fits_and_is_marked_in_pairs(text in "[a東京 é\\n\\PC]{0,60}", max_chars in 0_usize..40) {
            let shown = snippet(&text, None, &parse("a 東京 é*").unwrap(), max_chars, ("\u{1}", "\u{2}"));

            let marks: String = shown.chars().filter(|c| matches!(c, '\u{1}' | '\u{2}')).collect();
            prop_assert_eq!(marks.replace("\u{1}\u{2}", ""), "");
            prop_assert!(shown.chars().count() <= max_chars + marks.len() + 2);
        }
    }
}
