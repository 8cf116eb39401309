//! FETCH.

use bytes::Bytes;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::super::account::{ImapAccount, ImapMessage};
use super::command_parser::Word;
use super::sequence_set::{self, SequenceSet};
use super::{CommandEnd, CommandResult, Session, bad};

/// A FETCH data item.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FetchItem {
    Uid,
    Flags,
    InternalDate,
    Size,
    Modseq,
    EmailId,
    ThreadId,
    Bytes { section: BodySection, part: Option<(usize, usize)>, is_peek: bool, name: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodySection {
    All,
    Header,
    Text,
}

/// The modifier of FETCH, as in `(CHANGEDSINCE 5 VANISHED)`.
#[derive(Debug, Clone, Copy, Default)]
struct FetchModifier {
    since: Option<u64>,
    has_vanished: bool,
}

impl Session {
    pub(super) fn fetch(&mut self, is_uid: bool, rest: &[Word]) -> CommandResult {
        let targets = self.messages_in_set(is_uid, rest.first())?;
        let mut items = self.items(rest.get(1))?;
        let modifier = self.modifier(is_uid, rest.get(2))?;
        if is_uid && !items.contains(&FetchItem::Uid) {
            items.insert(0, FetchItem::Uid);
        }
        if modifier.since.is_some() && !items.contains(&FetchItem::Modseq) {
            items.push(FetchItem::Modseq);
        }
        self.enabled.condstore |= items.contains(&FetchItem::Modseq);
        self.mark_as_seen(&targets, &items)?;
        let mailbox = self.mailbox()?;
        let account = mailbox.account();
        let Some(folder) = self.selected.as_ref().and_then(|selected| account.folders.get(&selected.folder)) else {
            return Ok("Done.".to_owned()); // it is told afterwards that the folder is gone
        };
        let mut out: Vec<Bytes> = Vec::new();
        if let (Some(modseq), true) = (modifier.since, modifier.has_vanished) {
            let set = rest.first().and_then(Word::text).and_then(|text| SequenceSet::read(&text, folder.uid_next));
            let mut gone = folder.vanished_since(modseq);
            gone.retain(|uid| set.as_ref().is_some_and(|set| set.has(*uid)));
            if !gone.is_empty() {
                out.push(Bytes::from(format!("* VANISHED (EARLIER) {}\r\n", sequence_set::write(&gone))));
            }
        }
        for (number, uid) in targets {
            let Some(message) = folder.messages.get(&uid) else { continue };
            if modifier.since.is_none_or(|since| message.modseq > since) {
                self.show(&mut out, &account, number, uid, message, &items);
            }
        }
        drop(account);
        self.out.extend(out);
        Ok("Done.".to_owned())
    }

    /// Sets \Seen if an item reads the body without PEEK.
    fn mark_as_seen(&mut self, targets: &[(usize, u32)], items: &[FetchItem]) -> Result<(), CommandEnd> {
        let is_marking = items.iter().any(|item| matches!(item, FetchItem::Bytes { is_peek: false, .. }));
        let Some(selected) = self.selected.as_ref().filter(|selected| is_marking && !selected.is_read_only) else {
            return Ok(());
        };
        let folder = selected.folder;
        self.mailbox()?.change(|account| {
            for (_, uid) in targets {
                // Messages that are gone by now are skipped.
                let _ = account.set_flags(folder, *uid, |flags| flags.extend(["\\Seen".to_owned()]));
            }
        });
        Ok(())
    }

    fn items(&self, word: Option<&Word>) -> Result<Vec<FetchItem>, CommandEnd> {
        let words = match word {
            Some(Word::List(words)) => words.clone(),
            Some(atom) if atom.keyword() == "FAST" => {
                ["FLAGS", "INTERNALDATE", "RFC822.SIZE"].map(|name| Word::Atom(name.to_owned())).to_vec()
            }
            Some(one) => vec![one.clone()],
            None => return bad("FETCH of what?"),
        };
        words.iter().map(|word| self.item(&word.keyword())).collect()
    }

    fn item(&self, name: &str) -> Result<FetchItem, CommandEnd> {
        Ok(match name {
            "UID" => FetchItem::Uid,
            "FLAGS" => FetchItem::Flags,
            "INTERNALDATE" => FetchItem::InternalDate,
            "RFC822.SIZE" => FetchItem::Size,
            "MODSEQ" if self.has_modseq() => FetchItem::Modseq,
            "EMAILID" if self.world.offers("OBJECTID") => FetchItem::EmailId,
            "THREADID" if self.world.offers("OBJECTID") => FetchItem::ThreadId,
            "RFC822" => bytes_of(BodySection::All, None, false, "RFC822"),
            "RFC822.HEADER" => bytes_of(BodySection::Header, None, true, "RFC822.HEADER"),
            "RFC822.TEXT" => bytes_of(BodySection::Text, None, false, "RFC822.TEXT"),
            other => match section(other) {
                Some(item) => item,
                None => return bad(&format!("FETCH knows no {other} here.")),
            },
        })
    }

    fn modifier(&mut self, is_uid: bool, word: Option<&Word>) -> Result<FetchModifier, CommandEnd> {
        let Some(word) = word else { return Ok(FetchModifier::default()) };
        let words: Vec<String> = word.list().unwrap_or_default().iter().map(Word::keyword).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (since, has_vanished) = match words[..] {
            ["CHANGEDSINCE", since] => (since, false),
            ["CHANGEDSINCE", since, "VANISHED"] if self.enabled.qresync && is_uid => (since, true),
            _ => return bad("There is no such modifier, or it was not enabled."),
        };
        match since.parse() {
            Ok(since) if self.has_modseq() => Ok(FetchModifier { since: Some(since), has_vanished }),
            _ => bad("CHANGEDSINCE is not offered, or of no number."),
        }
    }

    fn show(
        &self,
        out: &mut Vec<Bytes>,
        account: &ImapAccount,
        number: usize,
        uid: u32,
        message: &ImapMessage,
        items: &[FetchItem],
    ) {
        let mut text = format!("* {number} FETCH (");
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                text.push(' ');
            }
            match item {
                FetchItem::Uid => text.push_str(&format!("UID {uid}")),
                FetchItem::Flags => text.push_str(&format!("FLAGS ({})", super::select::flags(message))),
                FetchItem::InternalDate => {
                    text.push_str(&format!("INTERNALDATE \"{}\"", internal_date(message.received)));
                }
                FetchItem::Size => {
                    text.push_str(&format!("RFC822.SIZE {}", self.world.letters.size(&message.content)));
                }
                FetchItem::Modseq => text.push_str(&format!("MODSEQ ({})", message.modseq)),
                FetchItem::EmailId => text.push_str(&format!("EMAILID ({})", account.email_id(message))),
                FetchItem::ThreadId => text.push_str(&format!("THREADID ({})", account.thread_id(message))),
                FetchItem::Bytes { section, part, name, .. } => {
                    let pieces = cut(self.world.letters.pieces(&message.content), *section, *part);
                    let length: usize = pieces.iter().map(Bytes::len).sum();
                    text.push_str(&format!("{name} {{{length}}}\r\n"));
                    out.push(Bytes::from(std::mem::take(&mut text)));
                    out.extend(pieces);
                }
            }
        }
        text.push_str(")\r\n");
        out.push(Bytes::from(text));
    }
}

fn bytes_of(section: BodySection, part: Option<(usize, usize)>, is_peek: bool, name: &str) -> FetchItem {
    FetchItem::Bytes { section, part, is_peek, name: name.to_owned() }
}

/// Parses a body section, as in `BODY.PEEK[HEADER]<0.100>`.
fn section(name: &str) -> Option<FetchItem> {
    let (is_peek, rest) = match name.strip_prefix("BODY.PEEK[") {
        Some(rest) => (true, rest),
        None => (false, name.strip_prefix("BODY[")?),
    };
    let (inner, rest) = rest.split_once(']')?;
    let section = match inner {
        "" => BodySection::All,
        "HEADER" => BodySection::Header,
        "TEXT" => BodySection::Text,
        _ => return None,
    };
    if rest.is_empty() {
        return Some(bytes_of(section, None, is_peek, &format!("BODY[{inner}]")));
    }
    let (from, count) = rest.strip_prefix('<')?.strip_suffix('>')?.split_once('.')?;
    let (from, count) = (from.parse().ok()?, count.parse().ok()?);
    Some(bytes_of(section, Some((from, count)), is_peek, &format!("BODY[{inner}]<{from}>")))
}

/// Cuts a section, or a part of it, out of a message.
fn cut(pieces: Vec<Bytes>, section: BodySection, part: Option<(usize, usize)>) -> Vec<Bytes> {
    if section == BodySection::All && part.is_none() {
        return pieces;
    }
    let whole = Bytes::from(pieces.concat());
    let head = whole.windows(4).position(|four| four == b"\r\n\r\n").map_or(whole.len(), |at| at + 4);
    let chosen = match section {
        BodySection::All => whole,
        BodySection::Header => whole.slice(..head),
        BodySection::Text => whole.slice(head..),
    };
    let (from, count) = part.unwrap_or((0, usize::MAX));
    let from = from.min(chosen.len());
    vec![chosen.slice(from..from.saturating_add(count).min(chosen.len()))]
}

fn internal_date(seconds: i64) -> String {
    let at = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(TimeZone::UTC);
    at.strftime("%d-%b-%Y %H:%M:%S +0000").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut_section(name: &str) -> String {
        let pieces = vec![Bytes::from_static(b"A: b\r\n\r"), Bytes::from_static(b"\ntext")];
        match section(name) {
            Some(FetchItem::Bytes { section, part, .. }) => {
                String::from_utf8(cut(pieces, section, part).concat()).unwrap()
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn body_sections_are_cut_out_of_a_message() {
        assert_eq!(cut_section("BODY[]"), "A: b\r\n\r\ntext");
        assert_eq!(cut_section("BODY.PEEK[HEADER]"), "A: b\r\n\r\n");
        assert_eq!(cut_section("BODY[TEXT]"), "text");
        assert_eq!(cut_section("BODY.PEEK[]<6.100>"), "\r\ntext");
        assert_eq!(cut_section("BODY.PEEK[]<99.1>"), "");
        assert_eq!(section("BODY[1.2]"), None);
        assert_eq!(internal_date(1_000_000_000), "09-Sep-2001 01:46:40 +0000");
    }
}
