//! Which messages there are that meet some conditions.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::super::account::Message;
use super::sets::{self, Set};
use super::words::Word;
use super::{Done, End, Session, bad};

#[derive(Debug)]
enum Condition {
    All,
    Uids(Set),
    Numbers(Set),
    Since(Date),
    Before(Date),
    Flag(&'static str),
    Not(Box<Condition>),
}

impl Condition {
    fn holds(&self, number: usize, uid: u32, message: &Message) -> bool {
        let day = || {
            let at = Timestamp::from_second(message.received).unwrap_or(Timestamp::UNIX_EPOCH);
            at.to_zoned(TimeZone::UTC).date()
        };
        match self {
            Self::All => true,
            Self::Uids(set) => set.has(uid),
            Self::Numbers(set) => set.has(number as u32),
            Self::Since(date) => day() >= *date,
            Self::Before(date) => day() < *date,
            Self::Flag(flag) => message.flags.contains(*flag),
            Self::Not(inner) => !inner.holds(number, uid, message),
        }
    }
}

impl Session {
    pub(super) fn search(&mut self, is_uid: bool, rest: &[Word]) -> Done {
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
        let selected = self.selected.as_ref().ok_or_else(|| End::Bad("No folder is open.".to_owned()))?;
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
                let told = extended(&options, &found);
                self.line(&format!("* ESEARCH (TAG \"{}\"){uid}{told}", self.tag));
            }
        }
        Ok("Done.".to_owned())
    }

    fn conditions(&self, words: &[Word]) -> Result<Vec<Condition>, End> {
        let (mut conditions, mut left) = (Vec::new(), words);
        while !left.is_empty() {
            let (condition, rest) = self.condition(left)?;
            conditions.push(condition);
            left = rest;
        }
        if conditions.is_empty() { bad("SEARCH for what?") } else { Ok(conditions) }
    }

    fn condition<'a>(&self, words: &'a [Word]) -> Result<(Condition, &'a [Word]), End> {
        let selected = self.selected.as_ref().ok_or_else(|| End::Bad("No folder is open.".to_owned()))?;
        let (first, rest) = words.split_first().ok_or_else(|| End::Bad("SEARCH for what?".to_owned()))?;
        let value = || rest.first().and_then(Word::text).unwrap_or_default();
        let wrong = || End::Bad("This is no condition.".to_owned());
        let day = || Date::strptime("%d-%b-%Y", value()).map_err(|_| wrong());
        let set = |text: &str, last: Option<u32>| Set::read(text, last.unwrap_or(1)).ok_or_else(wrong);
        let after = rest.get(1..).unwrap_or_default();
        Ok(match first.keyword().as_str() {
            "ALL" => (Condition::All, rest),
            "UID" => (Condition::Uids(set(&value(), selected.uids.last().copied())?), after),
            "SINCE" => (Condition::Since(day()?), after),
            "BEFORE" => (Condition::Before(day()?), after),
            "NOT" => {
                let (inner, rest) = self.condition(rest)?;
                (Condition::Not(Box::new(inner)), rest)
            }
            "SEEN" => (Condition::Flag("\\Seen"), rest),
            "FLAGGED" => (Condition::Flag("\\Flagged"), rest),
            "DELETED" => (Condition::Flag("\\Deleted"), rest),
            "DRAFT" => (Condition::Flag("\\Draft"), rest),
            "ANSWERED" => (Condition::Flag("\\Answered"), rest),
            "UNSEEN" => (Condition::Not(Box::new(Condition::Flag("\\Seen"))), rest),
            "UNFLAGGED" => (Condition::Not(Box::new(Condition::Flag("\\Flagged"))), rest),
            "UNDELETED" => (Condition::Not(Box::new(Condition::Flag("\\Deleted"))), rest),
            other => (Condition::Numbers(set(other, Some(selected.uids.len() as u32))?), rest),
        })
    }
}

/// Nothing is said of what is not there (RFC 4731).
fn extended(options: &[String], found: &[u32]) -> String {
    let is_asked = |name: &str| options.iter().any(|option| option == name);
    let mut told = String::new();
    if let (Some(first), Some(last)) = (found.first(), found.last()) {
        if is_asked("MIN") {
            told.push_str(&format!(" MIN {first}"));
        }
        if is_asked("MAX") {
            told.push_str(&format!(" MAX {last}"));
        }
        if is_asked("ALL") || options.is_empty() {
            told.push_str(&format!(" ALL {}", sets::write(found)));
        }
    }
    if is_asked("COUNT") {
        told.push_str(&format!(" COUNT {}", found.len()));
    }
    told
}
