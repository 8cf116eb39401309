//! The relevance of an email for a query, from that email alone: statistics over other mail would reveal one tenant's
//! mail to another, and change an email's score while a person pages through the results.

use domain::Address;
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
    let from = email.from.into_iter().flat_map(name_and_address);
    let to = email.recipients.iter().copied().flat_map(name_and_address);
    let filenames = email.filenames.iter().copied();
    SUBJECT_WEIGHT * hit_score(query, Some(SearchField::Subject), email.subject.into_iter())
        + PERSON_WEIGHT * hit_score(query, Some(SearchField::From), from)
        + PERSON_WEIGHT * hit_score(query, Some(SearchField::To), to)
        + FILENAME_WEIGHT * hit_score(query, Some(SearchField::Filename), filenames)
        + BODY_WEIGHT * hit_score(query, None, email.body.into_iter())
}

/// Returns the score of one field before it is weighed.
fn hit_score<'a>(query: &SearchQuery, field: Option<SearchField>, texts: impl Iterator<Item = &'a str>) -> u32 {
    let mut counts = vec![0_u32; query.all_of.len()];
    for hit in texts.flat_map(|text| hits::find(text, field, &query.all_of)) {
        counts[hit.phrase] += 1;
    }
    counts.iter().map(|count| 1000 * count / (count + 1)).sum()
}

fn name_and_address(person: &Address) -> [&str; 2] {
    [person.name.as_deref().unwrap_or_default(), &person.address]
}

#[cfg(test)]
mod tests {
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
