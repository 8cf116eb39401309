//! SELECT and EXAMINE: the selected folder, and the changes announced to the client.

use super::super::account::{ImapAccount, ImapMessage};
use super::super::folders::ImapFolder;
use super::command_parser::Word;
use super::folders::missing;
use super::sequence_set::{self, SequenceSet};
use super::{CommandEnd, CommandResult, Session, bad};

/// The selected folder as the client knows it.
#[derive(Debug)]
pub struct SelectedFolder {
    pub folder: u32,
    uid_validity: u32,
    /// UIDs in the order of sequence numbers.
    pub uids: Vec<u32>,
    /// The modseq up to which changes were announced.
    announced_modseq: u64,
    pub is_read_only: bool,
}

/// The parameters of `QRESYNC (UIDVALIDITY modseq [known])`.
#[derive(Debug)]
struct QresyncParameters {
    uid_validity: u32,
    modseq: u64,
    known: Option<String>,
}

const SUPPORTED_FLAGS: &str = "\\Answered \\Flagged \\Deleted \\Seen \\Draft $Label1";

impl Session {
    pub(super) fn has_modseq(&self) -> bool {
        self.world.offers("CONDSTORE") || self.world.offers("QRESYNC")
    }

    pub(super) fn select(&mut self, is_read_only: bool, rest: &[Word]) -> CommandResult {
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
            format!("* FLAGS ({SUPPORTED_FLAGS})"),
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
            lines.extend(changes_since(folder, &resync, &uids));
        }
        self.selected = Some(SelectedFolder {
            folder: number,
            uid_validity: folder.uid_validity,
            uids,
            announced_modseq: account.modseq(),
            is_read_only,
        });
        drop(account);
        lines.iter().for_each(|line| self.line(line));
        Ok(if is_read_only { "[READ-ONLY] Done.".to_owned() } else { "[READ-WRITE] Done.".to_owned() })
    }

    fn parameters(&mut self, word: Option<&Word>) -> Result<Option<QresyncParameters>, CommandEnd> {
        let Some(word) = word else { return Ok(None) };
        match word.list() {
            Some([one]) if one.keyword() == "CONDSTORE" && self.has_modseq() => {
                self.enabled.condstore = true;
                Ok(None)
            }
            Some([one, Word::List(values)]) if one.keyword() == "QRESYNC" && self.enabled.qresync => {
                let (Some(validity), Some(modseq)) = (number_at(values, 0), number_at(values, 1)) else {
                    return bad("QRESYNC needs a UIDVALIDITY and a modification number.");
                };
                let known = values.get(2).and_then(Word::text);
                Ok(Some(QresyncParameters { uid_validity: validity as u32, modseq, known }))
            }
            _ => bad("There is no such parameter, or it was not enabled."),
        }
    }

    /// Closes the folder and expunges it, unless it is read-only.
    pub(super) fn close(&mut self, is_expunging: bool) -> CommandResult {
        if self.selected.as_ref().is_some_and(|selected| is_expunging && !selected.is_read_only) {
            self.expunge_silently()?;
        }
        self.selected = None;
        Ok("Done.".to_owned())
    }

    /// Announces changes of the selected folder. Returns `false` if the folder was deleted or renumbered.
    pub(super) fn announce_changes(&mut self) -> bool {
        let (Some(mut selected), Some(mailbox)) = (self.selected.take(), self.user.clone()) else { return true };
        let lines = {
            let account = mailbox.account();
            let same = account.folders.get(&selected.folder);
            let Some(folder) = same.filter(|folder| folder.uid_validity == selected.uid_validity) else { return false };
            let mut lines = self.announce_removals(folder, &mut selected);
            lines.extend(self.announce_arrivals(&account, folder, &mut selected));
            selected.announced_modseq = account.modseq();
            lines
        };
        self.selected = Some(selected);
        lines.iter().for_each(|line| self.line(line));
        true
    }

    fn announce_removals(&self, folder: &ImapFolder, selected: &mut SelectedFolder) -> Vec<String> {
        let gone: Vec<u32> = selected.uids.iter().copied().filter(|uid| !folder.messages.contains_key(uid)).collect();
        if gone.is_empty() {
            return Vec::new();
        }
        let lines = if self.enabled.qresync {
            vec![format!("* VANISHED {}", sequence_set::write(&gone))]
        } else {
            // From the end, so that the remaining sequence numbers stay valid.

            let numbers = selected
                .uids
                .iter()
                .enumerate()
                .filter(|(_, uid)| !folder.messages.contains_key(uid))
                .map(|(at, _)| at + 1);
            numbers.collect::<Vec<_>>().iter().rev().map(|number| format!("* {number} EXPUNGE")).collect()
        };
        selected.uids.retain(|uid| folder.messages.contains_key(uid));
        lines
    }

    fn announce_arrivals(
        &self,
        account: &ImapAccount,
        folder: &ImapFolder,
        selected: &mut SelectedFolder,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        for (at, uid) in selected.uids.iter().enumerate() {
            if let Some(message) = folder.messages.get(uid).filter(|message| message.modseq > selected.announced_modseq)
            {
                lines.push(format!("* {} FETCH ({})", at + 1, self.flags_of(*uid, message)));
            }
        }
        let last = selected.uids.last().copied().unwrap_or(0);
        let come: Vec<u32> = folder.messages.range(last + 1..).map(|(uid, _)| *uid).collect();
        if !come.is_empty() && account.modseq() > selected.announced_modseq {
            selected.uids.extend(come);
            lines.push(format!("* {} EXISTS", selected.uids.len()));
        }
        lines
    }

    pub(super) fn flags_of(&self, uid: u32, message: &ImapMessage) -> String {
        let modseq = if self.enabled.condstore { format!(" MODSEQ ({})", message.modseq) } else { String::new() };
        format!("UID {uid} FLAGS ({}){modseq}", flags(message))
    }

    /// Returns the messages in a set, with their sequence numbers.
    pub(super) fn messages_in_set(&self, is_uid: bool, word: Option<&Word>) -> Result<Vec<(usize, u32)>, CommandEnd> {
        let selected = self.selected.as_ref().ok_or_else(|| CommandEnd::Bad("No folder is open.".to_owned()))?;
        let last = if is_uid { selected.uids.last().copied().unwrap_or(1) } else { selected.uids.len() as u32 };
        let set = word.and_then(Word::text).and_then(|text| SequenceSet::read(&text, last));
        let set = set.ok_or_else(|| CommandEnd::Bad("This is no set of messages.".to_owned()))?;
        Ok(selected
            .uids
            .iter()
            .enumerate()
            .map(|(at, uid)| (at + 1, *uid))
            .filter(|(at, uid)| set.has(if is_uid { *uid } else { *at as u32 }))
            .collect())
    }
}

pub fn flags(message: &ImapMessage) -> String {
    message.flags.iter().cloned().collect::<Vec<_>>().join(" ")
}

fn number_at(values: &[Word], at: usize) -> Option<u64> {
    values.get(at).and_then(Word::text)?.parse().ok()
}

/// Renders removals and changes since the client's modseq.
fn changes_since(folder: &ImapFolder, resync: &QresyncParameters, uids: &[u32]) -> Vec<String> {
    let known = resync.known.as_ref().and_then(|known| SequenceSet::read(known, folder.uid_next));
    let is_known = |uid: &u32| known.as_ref().is_none_or(|known| known.has(*uid));
    let gone: Vec<u32> = folder.vanished_since(resync.modseq).into_iter().filter(is_known).collect();
    let mut lines = Vec::new();
    if !gone.is_empty() {
        lines.push(format!("* VANISHED (EARLIER) {}", sequence_set::write(&gone)));
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
