//! Fetches and parses message metadata: everything but the bytes.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use super::command::Command;
use super::error::{ImapError, Step};
use super::lex::{Lexer, literal_length, number};
use super::response::ServerResponse;
use super::select::object_id;
use super::uid_set::UidCollector;
use super::{Client, UidSet, utf7};

/// The data items that are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchItems {
    /// All of [`Metadata`] that the server offers.
    All,
    /// Flags only, to find changes where the server has no modification sequences.
    Flags,
}

/// The CHANGEDSINCE modifier (RFC 7162).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedSince {
    pub modseq: u64,
    /// With VANISHED: also expunged UIDs. Requires [`Client::has_qresync`].
    pub vanished: bool,
}

/// One FETCH response. It borrows from the connection's buffer.
#[derive(Debug, Clone, Default)]
pub struct Metadata<'a> {
    pub uid: u32,
    pub size_bytes: Option<u64>,
    pub received_at: Option<Timestamp>,
    pub modseq: Option<u64>,
    /// EMAILID: the same for all copies of a message, permanently (RFC 8474).
    pub email_id: Option<&'a str>,
    pub thread_id: Option<&'a str>,
    /// X-GM-MSGID and X-GM-THRID.
    pub gmail_id: Option<u64>,
    pub gmail_thread: Option<u64>,
    flags: Option<Lexer<'a>>,
    labels: Option<Lexer<'a>>,
    has_uid: bool,
    pub(super) body: FetchedBody<'a>,
}

/// The `BODY[]` item of a FETCH response.
#[derive(Debug, Clone, Default)]
pub enum FetchedBody<'a> {
    #[default]
    Absent,
    Nil,
    Text(Cow<'a, [u8]>),

    Follows,
}

impl<'a> Metadata<'a> {
    /// Returns the flags as the server writes them (`\Seen`, `$Forwarded`), or `None` if the response has no FLAGS.
    pub fn flags(&self) -> Option<impl Iterator<Item = &'a str> + use<'a>> {
        let mut words = self.flags?;
        Some(std::iter::from_fn(move || {
            loop {
                words.spaces();
                if let Ok(word) = std::str::from_utf8(words.atom()?) {
                    return Some(word);
                }
            }
        }))
    }

    /// Returns Gmail's labels; system labels begin with a backslash.
    pub fn labels(&self) -> impl Iterator<Item = String> + use<'a> {
        let mut words = self.labels.unwrap_or(Lexer::new(b""));
        std::iter::from_fn(move || {
            words.spaces();
            words.name().map(|name| utf7::display_name(&name, false))
        })
    }

    pub(super) fn known_uid(&self) -> Option<u32> {
        (self.has_uid && self.uid > 0).then_some(self.uid)
    }

    /// Parses the items of a FETCH response, with their parentheses.
    pub(super) fn parse(mut items: Lexer<'a>) -> Option<Self> {
        if !items.eat(b'(') {
            return None;
        }
        Self::parse_rest(items)
    }

    /// Parses the items after the opening parenthesis or after some items.
    pub(super) fn parse_rest(mut items: Lexer<'a>) -> Option<Self> {
        let mut found = Self::default();
        loop {
            items.spaces();
            if items.eat(b')') {
                return Some(found);
            }
            found.item(&mut items)?;
        }
    }

    /// Parses a FETCH response that was read up to a literal. Returns `None` unless the literal is the message.
    pub(super) fn parse_up_to_body(mut items: Lexer<'a>) -> Option<Self> {
        let mut found = Self::default();
        items.eat(b'(');
        loop {
            items.spaces();
            if items.is_at_end() {
                return None;
            }
            found.item(&mut items)?;
            if matches!(found.body, FetchedBody::Follows) {
                return Some(found);
            }
        }
    }

    fn item(&mut self, items: &mut Lexer<'a>) -> Option<()> {
        let name = items.item()?;
        items.spaces();
        if name.eq_ignore_ascii_case(b"UID") {
            self.uid = items.number32()?;
            self.has_uid = true;
        } else if is_body(name) {
            self.body = read_body(items)?;
        } else if name.eq_ignore_ascii_case(b"FLAGS") {
            self.flags = Some(items.parenthesized()?);
        } else if name.eq_ignore_ascii_case(b"RFC822.SIZE") {
            self.size_bytes = number(items.atom()?);
        } else if name.eq_ignore_ascii_case(b"INTERNALDATE") {
            self.received_at = items.name().and_then(|text| internal_date(&text));
        } else if name.eq_ignore_ascii_case(b"MODSEQ") {
            self.modseq = items.parenthesized()?.number();
        } else if name.eq_ignore_ascii_case(b"EMAILID") {
            self.email_id = id_or_nil(items)?;
        } else if name.eq_ignore_ascii_case(b"THREADID") {
            self.thread_id = id_or_nil(items)?;
        } else if name.eq_ignore_ascii_case(b"X-GM-MSGID") {
            self.gmail_id = items.number();
        } else if name.eq_ignore_ascii_case(b"X-GM-THRID") {
            self.gmail_thread = items.number();
        } else if name.eq_ignore_ascii_case(b"X-GM-LABELS") {
            self.labels = Some(items.parenthesized()?);
        } else {
            items.value()?;
        }
        Some(())
    }
}

fn is_body(name: &[u8]) -> bool {
    name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case(b"BODY[]") && (name.len() == 6 || name[6] == b'<'))
        || name.eq_ignore_ascii_case(b"RFC822")
}

fn read_body<'a>(items: &mut Lexer<'a>) -> Option<FetchedBody<'a>> {
    let rest = items.rest();
    if memchr::memchr(b'\n', rest).is_none_or(|end| end + 1 == rest.len()) && literal_length(rest).is_some() {
        return Some(FetchedBody::Follows);
    }
    if let Some(text) = items.string() {
        return Some(FetchedBody::Text(text));
    }
    items.atom()?.eq_ignore_ascii_case(b"NIL").then_some(FetchedBody::Nil)
}

/// Reads `(M6d99ac3275bb4e)`, or NIL.
fn id_or_nil<'a>(items: &mut Lexer<'a>) -> Option<Option<&'a str>> {
    if items.peek() != Some(b'(') {
        items.value()?;
        return Some(None);
    }
    Some(object_id(items.parenthesized()?))
}

/// Parses an INTERNALDATE, ` 7-Jul-1996 02:44:25 -0700`.
pub fn internal_date(text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let mut words = text.split_ascii_whitespace();
    let mut date = words.next()?.split('-');
    let mut time = words.next()?.split(':');
    let (day, month, year) = (date.next()?.parse().ok()?, date.next()?, date.next()?.parse().ok()?);
    let month = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))?;
    let (hour, minute) = (time.next()?.parse().ok()?, time.next()?.parse().ok()?);
    // A leap second counts as the second before it.
    let second = time.next()?.parse::<i8>().ok()?.min(59);
    let local = DateTime::new(year, i8::try_from(month).ok()? + 1, day, hour, minute, second, 0).ok()?;
    let zone: i32 = words.next().unwrap_or("+0000").parse().ok()?;
    let offset = Offset::from_seconds(zone / 100 * 3_600 + zone % 100 * 60).ok()?;
    offset.to_timestamp(local).ok()
}

pub const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl Client {
    /// Passes the metadata of these messages to `each`, in the server's order, and returns the expunged UIDs (none unless
    /// `since` asks for them). A message that does not exist is left out.
    pub async fn fetch_metadata(
        &mut self,
        uids: &UidSet,
        items: FetchItems,
        since: Option<ChangedSince>,
        mut each: impl FnMut(&Metadata<'_>) + Send,
    ) -> Result<UidSet, ImapError> {
        let modifier = match since {
            Some(ChangedSince { vanished: true, .. }) if !self.enabled.qresync => {
                return Err(ImapError::Unsupported("the server does not offer QRESYNC"));
            }
            Some(ChangedSince { modseq, vanished: true }) => format!(" (CHANGEDSINCE {modseq} VANISHED)"),
            Some(ChangedSince { modseq, vanished: false }) => format!(" (CHANGEDSINCE {modseq})"),
            None => String::new(),
        };
        let names = self.item_names(items);
        let chunks = uids.chunks();
        let commands = chunks.iter().map(|chunk| Command::new(&format!("UID FETCH {chunk} ({names}){modifier}")));
        let commands = commands.collect();
        let mut vanished = UidCollector::new(self.settings.limits.ranges);
        let mut refused = None;
        let on_response = |response: &ServerResponse<'_>| {
            if let Some(list) = response.fetch() {
                let found = Metadata::parse(list).ok_or(ImapError::Protocol("a FETCH response is malformed"))?;
                // `n:*` also returns the last message before n, and unsolicited flags may come at any time.
                let is_complete =
                    items == FetchItems::Flags || found.size_bytes.is_some() || found.received_at.is_some();
                let is_solicited = is_complete && found.known_uid().is_some_and(|uid| uids.contains(uid));
                if is_solicited {
                    each(&found);
                }
                return Ok(is_solicited);
            }
            Ok(note_vanished(response, &mut vanished)? && since.is_some_and(|since| since.vanished))
        };
        self.run_pipelined(Step::Fetch, commands, on_response, |_, refusal| {
            // The messages that still exist were returned.
            let refusal = refusal.filter(|refusal| refusal.code != Some("EXPUNGEISSUED"));
            refused = refused.take().or(refusal);
            Ok(())
        })
        .await?;
        refused.map_or(Ok(vanished.into_set()), |refusal| Err(ImapError::Refused(refusal)))
    }

    fn item_names(&self, items: FetchItems) -> String {
        let mut item_names = "UID FLAGS".to_owned();
        let rest = [
            (items == FetchItems::All, " INTERNALDATE RFC822.SIZE"),
            (items == FetchItems::All && self.capabilities.has("OBJECTID"), " EMAILID THREADID"),
            (items == FetchItems::All && self.capabilities.is_gmail(), " X-GM-MSGID X-GM-THRID X-GM-LABELS"),
            (self.capabilities.has_modseq(), " MODSEQ"),
        ];
        rest.iter().filter(|(is_wanted, _)| *is_wanted).for_each(|(_, names)| item_names.push_str(names));
        item_names
    }
}

/// Collects the UIDs of `* VANISHED (EARLIER) 1:5`. Returns whether the response is one.
pub fn note_vanished(response: &ServerResponse<'_>, vanished: &mut UidCollector) -> Result<bool, ImapError> {
    let Some(mut words) = response.data("VANISHED") else { return Ok(false) };
    if words.peek() == Some(b'(') {
        words.value();
        words.spaces();
    }
    let set = words.atom().and_then(UidSet::parse).ok_or(ImapError::Protocol("a VANISHED response is malformed"))?;
    vanished.add(set.ranges())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetch_items_are_parsed_in_any_order() {
        let text = b"(X-UNKNOWN (a (b)) FLAGS (\\Seen $Junk NonJunk) INTERNALDATE \"17-Jul-1996 02:44:25 -0700\" RFC822.SIZE 4286 \
            MODSEQ (624140003) EMAILID (M6d99ac3275bb4e) THREADID NIL X-GM-MSGID 1278455344230334865 \
            X-GM-LABELS (\\Inbox \"\\\\Sent\" \"Entw&APw-rfe\" {3}\r\na)b) BODY[HEADER.FIELDS (A B)] {1}\r\n) UID 7)";

        let found = Metadata::parse(Lexer::new(text)).unwrap();

        assert_eq!((found.uid, found.size_bytes, found.modseq), (7, Some(4_286), Some(624_140_003)));
        assert_eq!(found.received_at.unwrap().to_string(), "1996-07-17T09:44:25Z");
        assert_eq!(found.flags().unwrap().collect::<Vec<_>>(), ["\\Seen", "$Junk", "NonJunk"]);
        assert_eq!((found.email_id, found.thread_id), (Some("M6d99ac3275bb4e"), None));
        let cyrus = Metadata::parse(Lexer::new(b"(UID 7 EMAILID (M6_d-9) THREADID (NIL))")).unwrap();
        assert_eq!((cyrus.email_id, cyrus.thread_id), (Some("M6_d-9"), None));
        assert_eq!(found.gmail_id, Some(1_278_455_344_230_334_865));
        assert_eq!(found.labels().collect::<Vec<_>>(), ["\\Inbox", "\\Sent", "Entwürfe", "a)b"]);
        assert!(matches!(found.body, FetchedBody::Absent));
    }

    fn body(text: &'static str) -> Option<FetchedBody<'static>> {
        Metadata::parse(Lexer::new(text.as_bytes())).map(|found| found.body)
    }

    fn partial(text: &'static str) -> Option<Metadata<'static>> {
        Metadata::parse_up_to_body(Lexer::new(text.as_bytes()))
    }

    fn read(text: &str) -> Option<String> {
        internal_date(text.as_bytes()).map(|at| at.to_string())
    }

    #[test]
    fn body_is_a_string_nil_or_a_literal() {
        assert!(matches!(body("(UID 1 BODY[] \"a\\\"b\")"), Some(FetchedBody::Text(text)) if *text == *b"a\"b"));
        assert!(matches!(body("(BODY[]<0> NIL UID 1)"), Some(FetchedBody::Nil)));
        assert!(matches!(body("(rfc822 {2}\r\nab)"), Some(FetchedBody::Text(text)) if *text == *b"ab"));
        assert!(body("(BODY[] nonsense)").is_none());

        assert_eq!(partial("(UID 9 BODY[] {5}\r\n").unwrap().known_uid(), Some(9));
        assert_eq!(partial("(FLAGS () BODY[] {5}\r\n").unwrap().known_uid(), None);
        assert!(partial("(UID 9 X-GM-LABELS ({5}\r\n").is_none());
        assert!(partial("(UID 9 BODY[HEADER] {5}\r\n").is_none());
    }

    #[test]
    fn dates_are_parsed_leniently() {
        assert_eq!(read(" 1-Feb-2024 23:59:60 +0130").as_deref(), Some("2024-02-01T22:29:59Z"));
        assert_eq!(read("01-FEB-2024 00:00:00").as_deref(), Some("2024-02-01T00:00:00Z"));
        for text in [
            "",
            "1-Feb-2024",
            "32-Jan-2024 00:00:00 +0000",
            "1-Foo-2024 00:00:00 +0000",
            "1-Feb-99999 1:1:1 +0000",
            "1-Feb-2024 00:00:00 +9999999",
            "-1-Feb-2024 00:00:00",
            "1-Feb-2024 25:00:00 +0000",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
