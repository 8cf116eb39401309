//! What is known of messages without their bytes.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use super::answer::Answer;
use super::command::Command;
use super::error::{ImapError, Step};
use super::lex::{Lexer, literal_length, number};
use super::select::object_id;
use super::uid_set::Gathered;
use super::{Client, UidSet, utf7};

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Items {
    /// All that the server has of [`Metadata`].
    All,
    /// Flags only, for a look at what has changed where the server does not tell.
    Flags,
}

/// Only what has changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedSince {
    pub modseq: u64,
    /// Also what has disappeared; only where [`Client::has_qresync`].
    pub vanished: bool,
}

/// What a server says of one message. It lies in the buffer of the connection: take what is needed of it.
#[derive(Debug, Clone, Default)]
pub struct Metadata<'a> {
    pub uid: u32,
    pub size_bytes: Option<u64>,
    pub received_at: Option<Timestamp>,
    pub modseq: Option<u64>,
    /// The same for all copies of a message, for ever (OBJECTID).
    pub email_id: Option<&'a str>,
    pub thread_id: Option<&'a str>,
    /// X-GM-MSGID and X-GM-THRID.
    pub gmail_id: Option<u64>,
    pub gmail_thread: Option<u64>,
    flags: Option<Lexer<'a>>,
    labels: Option<Lexer<'a>>,
    has_uid: bool,
    pub(super) body: Body<'a>,
}

#[derive(Debug, Clone, Default)]
pub enum Body<'a> {
    #[default]
    Absent,
    Nil,
    Text(Cow<'a, [u8]>),
    /// The answer was read only so far: what follows is the literal.
    Follows,
}

impl<'a> Metadata<'a> {
    /// `\Seen`, `$Forwarded`, as the server writes them. Nothing when the answer said nothing about flags.
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

    /// Gmail's labels; its own begin with a backslash.
    pub fn labels(&self) -> impl Iterator<Item = String> + use<'a> {
        let mut words = self.labels.unwrap_or(Lexer::new(b""));
        std::iter::from_fn(move || {
            words.spaces();
            words.name().map(|name| utf7::shown(&name, false))
        })
    }

    pub(super) fn known_uid(&self) -> Option<u32> {
        (self.has_uid && self.uid > 0).then_some(self.uid)
    }

    /// A whole FETCH, with its parentheses.
    pub(super) fn parse(mut items: Lexer<'a>) -> Option<Self> {
        if !items.eat(b'(') {
            return None;
        }
        Self::parse_rest(items)
    }

    /// What follows the opening parenthesis or some of the items.
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

    /// A FETCH that was read up to the announcement of a literal; nothing unless that is the message.
    pub(super) fn parse_up_to_body(mut items: Lexer<'a>) -> Option<Self> {
        let mut found = Self::default();
        items.eat(b'(');
        loop {
            items.spaces();
            if items.is_at_end() {
                return None;
            }
            found.item(&mut items)?;
            if matches!(found.body, Body::Follows) {
                return Some(found);
            }
        }
    }

    fn item(&mut self, items: &mut Lexer<'a>) -> Option<()> {
        let name = items.item()?;
        items.spaces();
        let inside = |items: &mut Lexer<'a>| items.parenthesized();
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
        if is("UID") {
            self.uid = items.number32()?;
            self.has_uid = true;
        } else if is_body(name) {
            self.body = read_body(items)?;
        } else if is("FLAGS") {
            self.flags = Some(inside(items)?);
        } else if is("RFC822.SIZE") {
            self.size_bytes = number(items.atom()?);
        } else if is("INTERNALDATE") {
            self.received_at = items.name().and_then(|text| internal_date(&text));
        } else if is("MODSEQ") {
            self.modseq = inside(items)?.number();
        } else if is("EMAILID") {
            self.email_id = id_or_nil(items)?;
        } else if is("THREADID") {
            self.thread_id = id_or_nil(items)?;
        } else if is("X-GM-MSGID") {
            self.gmail_id = items.number();
        } else if is("X-GM-THRID") {
            self.gmail_thread = items.number();
        } else if is("X-GM-LABELS") {
            self.labels = Some(inside(items)?);
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

fn read_body<'a>(items: &mut Lexer<'a>) -> Option<Body<'a>> {
    let rest = items.rest();
    if memchr::memchr(b'\n', rest).is_none_or(|end| end + 1 == rest.len()) && literal_length(rest).is_some() {
        return Some(Body::Follows);
    }
    if let Some(text) = items.string() {
        return Some(Body::Text(text));
    }
    items.atom()?.eq_ignore_ascii_case(b"NIL").then_some(Body::Nil)
}

/// `(M6d99ac3275bb4e)`, or NIL.
fn id_or_nil<'a>(items: &mut Lexer<'a>) -> Option<Option<&'a str>> {
    if items.peek() != Some(b'(') {
        items.value()?;
        return Some(None);
    }
    Some(object_id(items.parenthesized()?))
}

/// ` 7-Jul-1996 02:44:25 -0700`
pub fn internal_date(text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let mut words = text.split_ascii_whitespace();
    let mut date = words.next()?.split('-');
    let mut time = words.next()?.split(':');
    let (day, month, year) = (date.next()?.parse().ok()?, date.next()?, date.next()?.parse().ok()?);
    let month = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))?;
    let mut next = || time.next()?.parse::<i8>().ok();
    // A leap second is the second before it.
    let (hour, minute, second) = (next()?, next()?, next()?.min(59));
    let local = DateTime::new(year, i8::try_from(month).ok()? + 1, day, hour, minute, second, 0).ok()?;
    let zone: i32 = words.next().unwrap_or("+0000").parse().ok()?;
    let offset = Offset::from_seconds(zone / 100 * 3_600 + zone % 100 * 60).ok()?;
    offset.to_timestamp(local).ok()
}

pub const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl Client {
    /// Tells `each` what is known of these messages, in the server's order, and returns what has disappeared (nothing
    /// unless `since` asks for it). A message that is not there is passed over in silence.
    pub async fn fetch_metadata(
        &mut self,
        uids: &UidSet,
        items: Items,
        since: Option<ChangedSince>,
        mut each: impl FnMut(&Metadata<'_>) + Send,
    ) -> Result<UidSet, ImapError> {
        let modifier = match since {
            Some(ChangedSince { vanished: true, .. }) if !self.enabled.qresync => {
                return Err(ImapError::Unsupported("the server does not tell what has disappeared"));
            }
            Some(ChangedSince { modseq, vanished: true }) => format!(" (CHANGEDSINCE {modseq} VANISHED)"),
            Some(ChangedSince { modseq, vanished: false }) => format!(" (CHANGEDSINCE {modseq})"),
            None => String::new(),
        };
        let wanted = self.wanted(items);
        let ask = |chunk: &UidSet| Command::new(&format!("UID FETCH {chunk} ({wanted}){modifier}"));
        let commands = uids.chunks().iter().map(ask).collect();
        let mut vanished = Gathered::new(self.settings.limits.ranges);
        let mut refused = None;
        let on_answer = |answer: &Answer<'_>| {
            if let Some(list) = answer.fetch() {
                let found = Metadata::parse(list).ok_or(ImapError::Protocol("a FETCH that makes no sense"))?;
                // `n:*` also brings the last message before n; and news of flags come at any time.
                let is_complete = items == Items::Flags || found.size_bytes.is_some() || found.received_at.is_some();
                let is_asked = is_complete && found.known_uid().is_some_and(|uid| uids.contains(uid));
                if is_asked {
                    each(&found);
                }
                return Ok(is_asked);
            }
            Ok(note_vanished(answer, &mut vanished)? && since.is_some_and(|since| since.vanished))
        };
        self.run_all(Step::Fetch, commands, on_answer, |_, refusal| {
            // The messages that were there have been told of.
            let refusal = refusal.filter(|refusal| refusal.code != Some("EXPUNGEISSUED"));
            refused = refused.take().or(refusal);
            Ok(())
        })
        .await?;
        refused.map_or(Ok(vanished.into_set()), |refusal| Err(ImapError::Refused(refusal)))
    }

    fn wanted(&self, items: Items) -> String {
        let mut wanted = "UID FLAGS".to_owned();
        let offers = |name| self.capabilities.has(name);
        let rest = [
            (items == Items::All, " INTERNALDATE RFC822.SIZE"),
            (items == Items::All && offers("OBJECTID"), " EMAILID THREADID"),
            (items == Items::All && self.capabilities.is_gmail(), " X-GM-MSGID X-GM-THRID X-GM-LABELS"),
            (self.capabilities.has_modseq(), " MODSEQ"),
        ];
        rest.iter().filter(|(is_wanted, _)| *is_wanted).for_each(|(_, names)| wanted.push_str(names));
        wanted
    }
}

/// `* VANISHED (EARLIER) 1:5`, and whether it is that.
pub fn note_vanished(answer: &Answer<'_>, vanished: &mut Gathered) -> Result<bool, ImapError> {
    let Some(mut words) = answer.data("VANISHED") else { return Ok(false) };
    if words.peek() == Some(b'(') {
        words.value();
        words.spaces();
    }
    let set = words.atom().and_then(UidSet::parse).ok_or(ImapError::Protocol("a VANISHED that makes no sense"))?;
    vanished.add(set.ranges())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetch_is_read_whatever_the_order_of_its_items() {
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
        assert!(matches!(found.body, Body::Absent));
    }

    #[test]
    fn the_message_is_found_as_string_nothing_or_what_follows() {
        let body = |text: &'static str| Metadata::parse(Lexer::new(text.as_bytes())).map(|found| found.body);
        assert!(matches!(body("(UID 1 BODY[] \"a\\\"b\")"), Some(Body::Text(text)) if *text == *b"a\"b"));
        assert!(matches!(body("(BODY[]<0> NIL UID 1)"), Some(Body::Nil)));
        assert!(matches!(body("(rfc822 {2}\r\nab)"), Some(Body::Text(text)) if *text == *b"ab"));
        assert!(body("(BODY[] nonsense)").is_none());

        let partial = |text: &'static str| Metadata::parse_up_to_body(Lexer::new(text.as_bytes()));
        assert_eq!(partial("(UID 9 BODY[] {5}\r\n").unwrap().known_uid(), Some(9));
        assert_eq!(partial("(FLAGS () BODY[] {5}\r\n").unwrap().known_uid(), None);
        assert!(partial("(UID 9 X-GM-LABELS ({5}\r\n").is_none());
        assert!(partial("(UID 9 BODY[HEADER] {5}\r\n").is_none());
    }

    #[test]
    fn dates_are_read_leniently_and_nonsense_is_no_date() {
        let read = |text: &str| internal_date(text.as_bytes()).map(|at| at.to_string());
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
