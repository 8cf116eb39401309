//! SEARCH.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::super::account::ImapMessage;
use super::command_parser::Word;
use super::sequence_set::{self, SequenceSet};
use super::{CommandEnd, CommandResult, Session, bad};

#[derive(Debug)]
enum SearchKey {
    All,
    Uids(SequenceSet),
    Numbers(SequenceSet),
    Since(Date),
    Before(Date),
    Flag(&'static str),
    Not(Box<SearchKey>),
}

impl SearchKey {
    fn holds(&self, number: usize, uid: u32, message: &ImapMessage) -> bool {
        match self {
            Self::All => true,
            Self::Uids(set) => set.has(uid),
            Self::Numbers(set) => set.has(number as u32),
            Self::Since(date) => received_on(message) >= *date,
            Self::Before(date) => received_on(message) < *date,
            Self::Flag(flag) => message.flags.contains(*flag),
            Self::Not(inner) => !inner.holds(number, uid, message),
        }
    }
}

impl Session {
    pub(super) fn search(&mut self, is_uid: bool, rest: &[Word]) -> CommandResult {
        let (returned, rest) = match rest {
            [word, Word::List(options), rest @ ..] if word.keyword() == "RETURN" => {
                if !self.world.offers("ESEARCH") {
                    return bad("ESEARCH is not offered.");
                }
                (Some(options.iter().map(Word::keyword).collect::<Vec<_>>()), rest)
            }
            rest => (None, rest),
        };
        let conditions = self.conditions(rest)?;
        let mailbox = self.mailbox()?;
        let account = mailbox.account();
        let selected = self.selected.as_ref().ok_or_else(|| CommandEnd::Bad("No folder is open.".to_owned()))?;
        let messages = account.folders.get(&selected.folder).map(|folder| &folder.messages);
        let mut found: Vec<u32> = Vec::new();
        for (at, uid) in selected.uids.iter().enumerate() {
            let Some(message) = messages.and_then(|messages| messages.get(uid)) else { continue };
            if conditions.iter().all(|condition| condition.holds(at + 1, *uid, message)) {
                found.push(if is_uid { *uid } else { at as u32 + 1 });
            }
        }
        drop(account);
        match returned {
            None => {
                let found: Vec<String> = found.iter().map(u32::to_string).collect();
                self.line(format!("* SEARCH {}", found.join(" ")).trim_end());
            }
            Some(options) => {
                let uid = if is_uid { " UID" } else { "" };
                let text = extended(&options, &found);
                self.line(&format!("* ESEARCH (TAG \"{}\"){uid}{text}", self.tag));
            }
        }
        Ok("Done.".to_owned())
    }

    fn conditions(&self, words: &[Word]) -> Result<Vec<SearchKey>, CommandEnd> {
        let (mut conditions, mut left) = (Vec::new(), words);
        while !left.is_empty() {
            let (condition, rest) = self.condition(left)?;
            conditions.push(condition);
            left = rest;
        }
        if conditions.is_empty() { bad("SEARCH for what?") } else { Ok(conditions) }
    }

    fn condition<'a>(&self, words: &'a [Word]) -> Result<(SearchKey, &'a [Word]), CommandEnd> {
        let selected = self.selected.as_ref().ok_or_else(|| CommandEnd::Bad("No folder is open.".to_owned()))?;
        let (first, rest) = words.split_first().ok_or_else(|| CommandEnd::Bad("SEARCH for what?".to_owned()))?;
        let value = rest.first().and_then(Word::text).unwrap_or_default();
        let after = rest.get(1..).unwrap_or_default();
        Ok(match first.keyword().as_str() {
            "ALL" => (SearchKey::All, rest),
            "UID" => (SearchKey::Uids(parse_set(&value, selected.uids.last().copied())?), after),
            "SINCE" => (SearchKey::Since(parse_day(&value)?), after),
            "BEFORE" => (SearchKey::Before(parse_day(&value)?), after),
            "NOT" => {
                let (inner, rest) = self.condition(rest)?;
                (SearchKey::Not(Box::new(inner)), rest)
            }
            "SEEN" => (SearchKey::Flag("\\Seen"), rest),
            "FLAGGED" => (SearchKey::Flag("\\Flagged"), rest),
            "DELETED" => (SearchKey::Flag("\\Deleted"), rest),
            "DRAFT" => (SearchKey::Flag("\\Draft"), rest),
            "ANSWERED" => (SearchKey::Flag("\\Answered"), rest),
            "UNSEEN" => (SearchKey::Not(Box::new(SearchKey::Flag("\\Seen"))), rest),
            "UNFLAGGED" => (SearchKey::Not(Box::new(SearchKey::Flag("\\Flagged"))), rest),
            "UNDELETED" => (SearchKey::Not(Box::new(SearchKey::Flag("\\Deleted"))), rest),
            other => (SearchKey::Numbers(parse_set(other, Some(selected.uids.len() as u32))?), rest),
        })
    }
}

fn received_on(message: &ImapMessage) -> Date {
    let at = Timestamp::from_second(message.received).unwrap_or(Timestamp::UNIX_EPOCH);
    at.to_zoned(TimeZone::UTC).date()
}

fn invalid_search_key() -> CommandEnd {
    CommandEnd::Bad("This is no condition.".to_owned())
}

fn parse_day(text: &str) -> Result<Date, CommandEnd> {
    Date::strptime("%d-%b-%Y", text).map_err(|_| invalid_search_key())
}

fn parse_set(text: &str, last: Option<u32>) -> Result<SequenceSet, CommandEnd> {
    SequenceSet::read(text, last.unwrap_or(1)).ok_or_else(invalid_search_key)
}

fn has_option(options: &[String], name: &str) -> bool {
    options.iter().any(|option| option == name)
}

/// Renders an ESEARCH response, which leaves out what does not exist (RFC 4731).
fn extended(options: &[String], found: &[u32]) -> String {
    let mut text = String::new();
    if let (Some(first), Some(last)) = (found.first(), found.last()) {
        if has_option(options, "MIN") {
            text.push_str(&format!(" MIN {first}"));
        }
        if has_option(options, "MAX") {
            text.push_str(&format!(" MAX {last}"));
        }
        if has_option(options, "ALL") || options.is_empty() {
            text.push_str(&format!(" ALL {}", sequence_set::write(found)));
        }
    }
    if has_option(options, "COUNT") {
        text.push_str(&format!(" COUNT {}", found.len()));
    }
    text
}
