//! The relevance of an email for a query, from that email alone: statistics over other mail would reveal one tenant's
//! mail to another, and change an email's score while a person pages through the results.

use domain::search::SearchQuery;

use super::hits;
use crate::tokens::{EmailText, SearchField};

const SUBJECT_WEIGHT: u32 = 8;
const PERSON_WEIGHT: u32 = 4;
const FILENAME_WEIGHT: u32 = 4;
const BODY_WEIGHT: u32 = 2;

/// Returns the sum over the phrases that must be there, and over the fields, of weight × 1000 × n / (n + 1) for n hits:
/// the first hit in a field counts half of what endless hits would. A subject weighs 8, the sender, the recipients and
/// the file names 4 each, the body 2; all recipients are one field, as are all file names.
pub fn score(email: &EmailText, query: &SearchQuery) -> u32 {
    let mut score = 0;
    let mut add = |weight: u32, field: Option<SearchField>, texts: &mut dyn Iterator<Item = &str>| {
        let mut counts = vec![0_u32; query.all_of.len()];
        for hit in texts.flat_map(|text| hits::find(text, field, &query.all_of)) {
            counts[hit.phrase] += 1;
        }
        score += counts.iter().map(|count| weight * (1000 * count / (count + 1))).sum::<u32>();
    };
    let from = email.from.into_iter();
    add(SUBJECT_WEIGHT, Some(SearchField::Subject), &mut email.subject.into_iter());
    add(
        PERSON_WEIGHT,
        Some(SearchField::From),
        &mut from.flat_map(|person| [person.name.as_deref().unwrap_or_default(), &person.address]),
    );
    let to = email.recipients.iter().copied();
    add(
        PERSON_WEIGHT,
        Some(SearchField::To),
        &mut to.flat_map(|person| [person.name.as_deref().unwrap_or_default(), &person.address]),
    );
    add(FILENAME_WEIGHT, Some(SearchField::Filename), &mut email.filenames.iter().copied());
    add(BODY_WEIGHT, None, &mut email.body.into_iter());
    score
}

#[cfg(test)]
mod tests {
    use domain::Address;

    use super::*;
    use crate::query::parse;

    fn in_subject(subject: &str, query: &str) -> u32 {
        score(&EmailText { subject: Some(subject), ..EmailText::default() }, &parse(query).unwrap())
    }

    fn in_body(body: &str, query: &str) -> u32 {
        score(&EmailText { body: Some(body), ..EmailText::default() }, &parse(query).unwrap())
    }

    #[test]
    fn subject_outweighs_any_number_of_body_hits() {
        assert_eq!(in_subject("offer", "offer"), 4000);
        assert_eq!(in_body("offer", "offer"), 1000);
        assert!(in_body(&"offer ".repeat(1000), "offer") < 2000);
        assert!(in_body("offer offer", "offer") > in_body("offer", "offer"));
    }

    #[test]
    fn a_field_search_counts_in_its_field() {
        let alice = Address { name: None, address: "alice@x.test".to_owned() };
        let email = EmailText { from: Some(&alice), body: Some("alice"), ..EmailText::default() };

        assert_eq!(score(&email, &parse("from:alice").unwrap()), 2000);
        assert_eq!(score(&email, &parse("alice").unwrap()), 3000);
        assert_eq!(score(&email, &parse("").unwrap()), 0);
    }
}
