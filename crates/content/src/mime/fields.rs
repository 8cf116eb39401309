//! Extracts an email's fields from its header section: people, dates, subject, references.

use domain::{Recipient, RecipientKind};

use super::defects::{Defect, Defects};
use super::headers::{HeaderReader, HeaderSection};
use super::{ParsedEmail, addresses, dates};

/// Fills everything of an email that is in its headers.
pub fn read(section: &HeaderSection<'_>, reader: &HeaderReader, email: &mut ParsedEmail, defects: &mut Defects) {
    let mut seen = SingleHeaders::default();
    let mut lists: [Vec<Recipient>; 4] = Default::default();
    for header in &section.headers {
        let name = String::from_utf8_lossy(header.name).into_owned();
        let lower = name.to_ascii_lowercase();
        let value = header.value;
        match lower.as_str() {
            "subject" if seen.is_first(0, defects) => {
                email.subject = Some(reader.text(value, defects)).filter(|subject| !subject.is_empty());
            }
            "from" if seen.is_first(1, defects) => {
                email.from = addresses::parse(&reader.line(value, defects), defects).into_iter().next();
            }
            "date" if seen.is_first(2, defects) => {
                email.sent_at = dates::parse(&reader.text(value, defects));
                if email.sent_at.is_none() {
                    defects.add(Defect::BadDate);
                }
            }
            "message-id" if seen.is_first(3, defects) => {
                email.message_id = message_ids(&reader.text(value, defects)).into_iter().next();
            }
            "in-reply-to" if email.in_reply_to.is_none() => {
                email.in_reply_to = replied_to(&reader.text(value, defects));
            }
            "references" => email.references.extend(message_ids(&reader.text(value, defects))),
            "received" if email.received_at.is_none() => {
                email.received_at = dates::received(&reader.line(value, defects));
            }
            _ => {
                if let Some((place, kind)) = recipient_kind(&lower) {
                    let found = addresses::parse(&reader.line(value, defects), defects);
                    lists[place].extend(found.into_iter().map(|address| Recipient { kind, address }));
                }
            }
        }
        email.headers.push((name, reader.text(value, defects)));
    }
    email.recipients = lists.into_iter().flatten().collect();
}

fn recipient_kind(name: &str) -> Option<(usize, RecipientKind)> {
    match name {
        "to" => Some((0, RecipientKind::To)),
        "cc" => Some((1, RecipientKind::Cc)),
        "bcc" => Some((2, RecipientKind::Bcc)),
        "reply-to" => Some((3, RecipientKind::ReplyTo)),
        _ => None,
    }
}

/// Which of the headers that may occur only once were found.
#[derive(Default)]
struct SingleHeaders([bool; 4]);

impl SingleHeaders {
    fn is_first(&mut self, which: usize, defects: &mut Defects) -> bool {
        let is_first = !std::mem::replace(&mut self.0[which], true);
        if !is_first {
            defects.add(Defect::DuplicateHeader);
        }
        is_first
    }
}

/// Returns the ids in angle brackets; without any, the words that could be ids.
pub fn message_ids(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find('<') {
        let tail = rest.get(open + 1..).unwrap_or_default();
        // An id that lost its closing bracket ends where the next one starts.
        let end = tail.find(['>', '<']).unwrap_or(tail.len());
        found.extend(message_id(tail.get(..end).unwrap_or_default()));
        rest = tail.get(end..).unwrap_or_default();
    }
    if found.is_empty() {
        let outside = without_comments(text);
        found.extend(outside.split(|c: char| c.is_whitespace() || c == ',').filter_map(message_id));
    }
    found
}

fn message_id(text: &str) -> Option<String> {
    // White space inside is a bad fold; behind a complete id it is the start of junk.
    let text = text.trim();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let first = text.get(..end).unwrap_or_default();
    let is_complete = first.split_once('@').is_some_and(|(_, host)| !host.is_empty());
    let text = if is_complete { first } else { text };
    let id: String = text.chars().filter(|c| !c.is_whitespace() && !matches!(c, '<' | '>')).collect();
    (!id.is_empty()).then_some(id)
}

/// Returns the id in In-Reply-To. Old mailers wrote a sentence there ("Your message of Friday"); only an id is of use.
fn replied_to(text: &str) -> Option<String> {
    let is_id = text.contains('<') || !text.contains(char::is_whitespace) || text.contains('@');
    let ids = message_ids(text);
    let with_at = ids.iter().find(|id| id.contains('@')).or(ids.first());
    with_at.filter(|_| is_id).cloned()
}

fn without_comments(text: &str) -> String {
    let mut depth = 0usize;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(raw: &str) -> (ParsedEmail, Vec<String>) {
        let mut defects = Defects::default();
        let section = HeaderSection::read(raw.as_bytes(), 0, 10_000, |_| false, &mut defects);
        let mut email = ParsedEmail::default();
        read(&section, &HeaderReader::default(), &mut email, &mut defects);
        (email, defects.names())
    }

    #[test]
    fn the_first_of_a_repeated_header_counts() {
        let (email, defects) = read_all("Subject: one\nSUBJECT: two\nMessage-ID: <a@x>\nmessage-id: <b@x>\n");

        assert_eq!(email.subject.as_deref(), Some("one"));
        assert_eq!(email.message_id.as_deref(), Some("a@x"));
        assert_eq!(email.headers.len(), 4);
        assert_eq!(email.headers[1].0, "SUBJECT");
        assert_eq!(defects, ["duplicate_header"]);
    }

    #[test]
    fn recipients_are_sorted_by_kind_and_all_headers_count() {
        let (email, _) = read_all("Cc: c@x.test\nReply-To: r@x.test\nTo: a@x.test\nCc: d@x.test\nTo: b@x.test\n");

        let order: Vec<&str> = email.recipients.iter().map(|r| r.address.address.as_str()).collect();
        assert_eq!(order, ["a@x.test", "b@x.test", "c@x.test", "d@x.test", "r@x.test"]);
    }

    #[test]
    fn ids_are_found_without_their_brackets() {
        assert_eq!(message_ids("<a@x>"), ["a@x"]);
        assert_eq!(message_ids(" a@x (comment)"), ["a@x"]);
        assert_eq!(message_ids("< a b@x >"), ["ab@x"]);
        assert_eq!(message_ids("<a@x ' '>"), ["a@x"]);
        assert_eq!(message_ids("<a@x<b@x>"), ["a@x", "b@x"]);
        assert_eq!(message_ids("a@x b@x"), ["a@x", "b@x"]);
        assert_eq!(message_ids("<>"), Vec::<String>::new());
        assert_eq!(replied_to("Your message of \"Fri, 4 Jul\" <a@x>").as_deref(), Some("a@x"));
        assert_eq!(replied_to("Your message of Friday"), None);
    }

    #[test]
    fn the_topmost_readable_received_date_counts() {
        let (email, _) = read_all(
            "Received: nonsense\nReceived: a; Fri, 4 Jul 2003 10:00:00 +0000\nReceived: b; 1 Jan 2001 00:00 GMT\n",
        );

        assert_eq!(email.received_at.unwrap().to_string(), "2003-07-04T10:00:00Z");
    }
}
