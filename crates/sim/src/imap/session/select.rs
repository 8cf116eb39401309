//! The folder that is open: what the other side knows of it, and what is new there.

use super::super::account::{Account, Message};
use super::super::folders::Folder;
use super::folders::missing;
use super::sets::{self, Set};
use super::words::Word;
use super::{Done, End, Session, bad};

/// What the other side knows.
#[derive(Debug)]
pub struct Selected {
    pub folder: u32,
    uid_validity: u32,
    /// The messages, in the order of their numbers.
    pub uids: Vec<u32>,
    /// Changes up to here were told.
    told: u64,
    pub is_read_only: bool,
}

/// `QRESYNC (UIDVALIDITY modseq [known])`
#[derive(Debug)]
struct Resync {
    uid_validity: u32,
    modseq: u64,
    known: Option<String>,
}

const FLAGS: &str = "\\Answered \\Flagged \\Deleted \\Seen \\Draft $Label1";

impl Session {
    pub(super) fn has_modseq(&self) -> bool {
        self.world.offers("CONDSTORE") || self.world.offers("QRESYNC")
    }

    pub(super) fn select(&mut self, is_read_only: bool, rest: &[Word]) -> Done {
        let name = self.read_name(rest.first())?;
        let resync = self.parameters(rest.get(1))?;
        if self.selected.take().is_some() && self.enabled.qresync {
            self.line("* OK [CLOSED] The folder that was open is closed.");
        }
        let mailbox = self.mailbox()?;
        let account = mailbox.account();
        let number = account.find(&name).ok_or_else(missing)?;
        let folder = &account.folders[&number];
        let mut lines = vec![
            format!("* FLAGS ({FLAGS})"),
            format!("* OK [PERMANENTFLAGS ({})] ", if is_read_only { "" } else { "\\* \\Seen \\Flagged \\Deleted" }),
            format!("* {} EXISTS", folder.messages.len()),
            "* 0 RECENT".to_owned(),
            format!("* OK [UIDVALIDITY {}] ", folder.uid_validity),
            format!("* OK [UIDNEXT {}] ", folder.uid_next),
        ];
        if self.has_modseq() {
            lines.push(format!("* OK [HIGHESTMODSEQ {}] ", folder.highest_modseq));
        }
        if self.world.offers("OBJECTID") {
            lines.push(format!("* OK [MAILBOXID ({})] ", folder.id));
        }
        let uids: Vec<u32> = folder.messages.keys().copied().collect();
        if let Some(resync) = resync.filter(|resync| resync.uid_validity == folder.uid_validity) {
            lines.extend(since(folder, &resync, &uids));
        }
        self.selected = Some(Selected {
            folder: number,
            uid_validity: folder.uid_validity,
            uids,
            told: account.modseq(),
            is_read_only,
        });
        drop(account);
        lines.iter().for_each(|line| self.line(line));
        Ok(if is_read_only { "[READ-ONLY] Done.".to_owned() } else { "[READ-WRITE] Done.".to_owned() })
    }

    fn parameters(&mut self, word: Option<&Word>) -> Result<Option<Resync>, End> {
        let Some(word) = word else { return Ok(None) };
        match word.list() {
            Some([one]) if one.keyword() == "CONDSTORE" && self.has_modseq() => {
                self.enabled.condstore = true;
                Ok(None)
            }
            Some([one, Word::List(values)]) if one.keyword() == "QRESYNC" && self.enabled.qresync => {
                let number = |at: usize| values.get(at).and_then(Word::text).and_then(|text| text.parse::<u64>().ok());
                let (Some(validity), Some(modseq)) = (number(0), number(1)) else {
                    return bad("QRESYNC needs a UIDVALIDITY and a modification number.");
                };
                let known = values.get(2).and_then(Word::text);
                Ok(Some(Resync { uid_validity: validity as u32, modseq, known }))
            }
            _ => bad("There is no such parameter, or it was not enabled."),
        }
    }

    /// Without expunging where it was opened to be read only.
    pub(super) fn close(&mut self, is_expunging: bool) -> Done {
        if self.selected.as_ref().is_some_and(|selected| is_expunging && !selected.is_read_only) {
            self.expunge_silently()?;
        }
        self.selected = None;
        Ok("Done.".to_owned())
    }

    /// What happened in the open folder since it was last told. Whether it is still the same folder.
    pub(super) fn tell_news(&mut self) -> bool {
        let (Some(mut selected), Some(mailbox)) = (self.selected.take(), self.user.clone()) else { return true };
        let lines = {
            let account = mailbox.account();
            let same = account.folders.get(&selected.folder);
            let Some(folder) = same.filter(|folder| folder.uid_validity == selected.uid_validity) else { return false };
            let mut lines = self.tell_gone(folder, &mut selected);
            lines.extend(self.tell_come(&account, folder, &mut selected));
            selected.told = account.modseq();
            lines
        };
        self.selected = Some(selected);
        lines.iter().for_each(|line| self.line(line));
        true
    }

    fn tell_gone(&self, folder: &Folder, selected: &mut Selected) -> Vec<String> {
        let gone: Vec<u32> = selected.uids.iter().copied().filter(|uid| !folder.messages.contains_key(uid)).collect();
        if gone.is_empty() {
            return Vec::new();
        }
        let lines = match self.enabled.qresync {
            true => vec![format!("* VANISHED {}", sets::write(&gone))],
            // From the end, so that the numbers of the others hold.
            false => {
                let is_gone = |(_, uid): &(usize, &u32)| !folder.messages.contains_key(uid);
                let numbers = selected.uids.iter().enumerate().filter(is_gone).map(|(at, _)| at + 1);
                numbers.collect::<Vec<_>>().iter().rev().map(|number| format!("* {number} EXPUNGE")).collect()
            }
        };
        selected.uids.retain(|uid| folder.messages.contains_key(uid));
        lines
    }

    fn tell_come(&self, account: &Account, folder: &Folder, selected: &mut Selected) -> Vec<String> {
        let mut lines = Vec::new();
        for (at, uid) in selected.uids.iter().enumerate() {
            if let Some(message) = folder.messages.get(uid).filter(|message| message.modseq > selected.told) {
                lines.push(format!("* {} FETCH ({})", at + 1, self.flags_of(*uid, message)));
            }
        }
        let last = selected.uids.last().copied().unwrap_or(0);
        let come: Vec<u32> = folder.messages.range(last + 1..).map(|(uid, _)| *uid).collect();
        if !come.is_empty() && account.modseq() > selected.told {
            selected.uids.extend(come);
            lines.push(format!("* {} EXISTS", selected.uids.len()));
        }
        lines
    }

    pub(super) fn flags_of(&self, uid: u32, message: &Message) -> String {
        let modseq = if self.enabled.condstore { format!(" MODSEQ ({})", message.modseq) } else { String::new() };
        format!("UID {uid} FLAGS ({}){modseq}", flags(message))
    }

    /// The messages of the open folder that a set means, with their numbers.
    pub(super) fn meant(&self, is_uid: bool, word: Option<&Word>) -> Result<Vec<(usize, u32)>, End> {
        let selected = self.selected.as_ref().ok_or_else(|| End::Bad("No folder is open.".to_owned()))?;
        let last = match is_uid {
            true => selected.uids.last().copied().unwrap_or(1),
            false => selected.uids.len() as u32,
        };
        let set = word.and_then(Word::text).and_then(|text| Set::read(&text, last));
        let set = set.ok_or_else(|| End::Bad("This is no set of messages.".to_owned()))?;
        let is_meant = |(at, uid): &(usize, u32)| set.has(if is_uid { *uid } else { *at as u32 });
        Ok(selected.uids.iter().enumerate().map(|(at, uid)| (at + 1, *uid)).filter(is_meant).collect())
    }
}

pub fn flags(message: &Message) -> String {
    message.flags.iter().cloned().collect::<Vec<_>>().join(" ")
}

/// What went and what changed since.
fn since(folder: &Folder, resync: &Resync, uids: &[u32]) -> Vec<String> {
    let known = resync.known.as_ref().and_then(|known| Set::read(known, folder.uid_next));
    let is_known = |uid: &u32| known.as_ref().is_none_or(|known| known.has(*uid));
    let gone: Vec<u32> = folder.vanished_since(resync.modseq).into_iter().filter(is_known).collect();
    let mut lines = Vec::new();
    if !gone.is_empty() {
        lines.push(format!("* VANISHED (EARLIER) {}", sets::write(&gone)));
    }
    for (at, uid) in uids.iter().enumerate().filter(|(_, uid)| is_known(uid)) {
        let message = &folder.messages[uid];
        if message.modseq > resync.modseq {
            let (flags, modseq) = (flags(message), message.modseq);
            lines.push(format!("* {} FETCH (UID {uid} FLAGS ({flags}) MODSEQ ({modseq}))", at + 1));
        }
    }
    lines
}
