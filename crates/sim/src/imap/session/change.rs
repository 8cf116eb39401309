//! STORE, COPY, MOVE, EXPUNGE and APPEND.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::super::account::{ImapOperationError, NewImapMessage, seconds};
use super::command_parser::Word;
use super::folders::refused;
use super::sequence_set::{self, SequenceSet};
use super::{CommandEnd, CommandResult, Session, bad, no};
use crate::letter_pool::Content;

impl Session {
    /// Returns the selected folder if it is writable.
    fn writable(&self) -> Result<u32, CommandEnd> {
        match &self.selected {
            Some(selected) if !selected.is_read_only => Ok(selected.folder),
            Some(_) => no("[READ-ONLY] The folder was opened to be read only."),
            None => bad("No folder is open."),
        }
    }

    pub(super) fn store(&mut self, is_uid: bool, rest: &[Word]) -> CommandResult {
        let (targets, folder) = (self.messages_in_set(is_uid, rest.first())?, self.writable()?);
        let how = rest.get(1).map(Word::keyword).unwrap_or_default();
        let given: BTreeSet<String> = match rest.get(2) {
            Some(Word::List(words)) => words.iter().filter_map(Word::text).collect(),
            Some(one) => one.text().into_iter().collect(),
            None => return bad("STORE of what?"),
        };
        let (how, is_silent) = how.strip_suffix(".SILENT").map_or((how.as_str(), false), |how| (how, true));
        if !["FLAGS", "+FLAGS", "-FLAGS"].contains(&how) {
            return bad("There are FLAGS, +FLAGS and -FLAGS.");
        }
        let mailbox = self.mailbox()?;
        mailbox.change(|account| {
            for (_, uid) in &targets {
                // Messages that are gone by now are skipped.
                let _ = account.set_flags(folder, *uid, |flags| match how {
                    "FLAGS" => flags.clone_from(&given),
                    "+FLAGS" => flags.extend(given.iter().cloned()),
                    _ => flags.retain(|flag| !given.contains(flag)),
                });
            }
        });
        let lines: Vec<String> = {
            let account = mailbox.account();
            let messages = account.folders.get(&folder).map(|folder| &folder.messages);
            targets
                .iter()
                .filter_map(|(number, uid)| {
                    let message = messages?.get(uid)?;
                    Some(format!("* {number} FETCH ({})", self.flags_of(*uid, message)))
                })
                .collect()
        };
        if !is_silent {
            lines.iter().for_each(|line| self.line(line));
        }
        Ok("Done.".to_owned())
    }

    /// Handles COPY and MOVE.
    pub(super) fn copy(&mut self, is_uid: bool, rest: &[Word], is_move: bool) -> CommandResult {
        let targets = self.messages_in_set(is_uid, rest.first())?;
        let name = self.read_name(rest.get(1))?;
        let from = if is_move {
            self.writable()?
        } else {
            self.selected.as_ref().map(|selected| selected.folder).unwrap_or_default()
        };
        let mailbox = self.mailbox()?;
        let copied = mailbox.change(|account| {
            let to = account.find(&name).ok_or(ImapOperationError::NoFolder)?;
            let (mut sources, mut copies) = (Vec::new(), Vec::new());
            for (_, uid) in targets {
                let copied = if is_move { account.move_message(from, uid, to) } else { account.copy(from, uid, to) };
                if let Ok(copied) = copied {
                    sources.push(uid);
                    copies.push(copied);
                }
            }
            Ok((account.folders[&to].uid_validity, sources, copies))
        });
        match copied {
            Err(ImapOperationError::NoFolder) => no("[TRYCREATE] There is no such folder."),
            Err(why) => Err(refused(why)),
            Ok((validity, sources, copies)) if self.world.offers("UIDPLUS") && !sources.is_empty() => {
                let code =
                    format!("[COPYUID {validity} {} {}]", sequence_set::write(&sources), sequence_set::write(&copies));
                if is_move {
                    self.line(&format!("* OK {code} Moved."));
                    return Ok("Done.".to_owned());
                }
                Ok(format!("{code} Done."))
            }
            Ok(_) => Ok("Done.".to_owned()),
        }
    }

    /// Removes messages marked as deleted; with a set, only those in it.
    pub(super) fn expunge(&mut self, word: Option<&Word>) -> CommandResult {
        let folder = self.writable()?;
        let only = match word {
            None => None,
            Some(word) => {
                let set = word.text().and_then(|text| SequenceSet::read(&text, u32::MAX));
                Some(set.ok_or_else(|| CommandEnd::Bad("This is no set of messages.".to_owned()))?)
            }
        };
        self.mailbox()?.change(|account| {
            let Some(found) = account.folders.get(&folder) else { return };
            let deleted = found.messages.iter().filter(|(uid, message)| {
                message.flags.contains("\\Deleted") && only.as_ref().is_none_or(|only| only.has(**uid))
            });
            for uid in deleted.map(|(uid, _)| *uid).collect::<Vec<_>>() {
                let _ = account.expunge(folder, uid);
            }
        });
        Ok("Done.".to_owned())
    }

    pub(super) fn expunge_silently(&mut self) -> Result<(), CommandEnd> {
        self.expunge(None).map(drop)
    }

    pub(super) fn append(&mut self, rest: &[Word]) -> CommandResult {
        let name = self.read_name(rest.first())?;
        let Some((Word::Text(bytes), options)) = rest.get(1..).and_then(<[Word]>::split_last) else {
            return bad("APPEND of what?");
        };
        let mut received = seconds(self.world.now());
        let mut flags = BTreeSet::new();
        for option in options {
            match option {
                Word::List(words) => flags.extend(words.iter().filter_map(Word::text)),
                Word::Text(date) => {
                    received = date_of(date).ok_or_else(|| CommandEnd::Bad("This is no date.".to_owned()))?;
                }
                Word::Atom(_) => return bad("APPEND takes flags, a date and a message."),
            }
        }
        let content = Content::Own(bytes.clone().into());
        let added = self.mailbox()?.change(|account| {
            let folder = account.find(&name).ok_or(ImapOperationError::NoFolder)?;
            let uid = account.add(folder, NewImapMessage { content, flags, received })?;
            Ok((account.folders[&folder].uid_validity, uid))
        });
        match added {
            Ok((validity, uid)) if self.world.offers("UIDPLUS") => Ok(format!("[APPENDUID {validity} {uid}] Done.")),
            Ok(_) => Ok("Done.".to_owned()),
            Err(ImapOperationError::NoFolder) => no("[TRYCREATE] There is no such folder."),
            Err(why) => Err(refused(why)),
        }
    }
}

fn date_of(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    Timestamp::strptime("%d-%b-%Y %H:%M:%S %z", text).ok().map(seconds)
}
