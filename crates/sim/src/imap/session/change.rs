//! What a mail program does to messages.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::super::account::{New, Refused, seconds};
use super::folders::refused;
use super::sets::{self, Set};
use super::words::Word;
use super::{Done, End, Session, bad, no};
use crate::letters::Content;

impl Session {
    /// The open folder, if it may be changed.
    fn writable(&self) -> Result<u32, End> {
        match &self.selected {
            Some(selected) if !selected.is_read_only => Ok(selected.folder),
            Some(_) => no("[READ-ONLY] The folder was opened to be read only."),
            None => bad("No folder is open."),
        }
    }

    pub(super) fn store(&mut self, is_uid: bool, rest: &[Word]) -> Done {
        let (meant, folder) = (self.meant(is_uid, rest.first())?, self.writable()?);
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
            for (_, uid) in &meant {
                // Those that are gone meanwhile are passed over.
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
            let one = |(number, uid): &(usize, u32)| {
                let message = messages?.get(uid)?;
                Some(format!("* {number} FETCH ({})", self.flags_of(*uid, message)))
            };
            meant.iter().filter_map(one).collect()
        };
        if !is_silent {
            lines.iter().for_each(|line| self.line(line));
        }
        Ok("Done.".to_owned())
    }

    /// Copies, or moves.
    pub(super) fn copy(&mut self, is_uid: bool, rest: &[Word], is_move: bool) -> Done {
        let meant = self.meant(is_uid, rest.first())?;
        let name = self.read_name(rest.get(1))?;
        let from = match is_move {
            true => self.writable()?,
            false => self.selected.as_ref().map(|selected| selected.folder).unwrap_or_default(),
        };
        let mailbox = self.mailbox()?;
        let copied = mailbox.change(|account| {
            let to = account.find(&name).ok_or(Refused::NoFolder)?;
            let (mut sources, mut targets) = (Vec::new(), Vec::new());
            for (_, uid) in meant {
                let copied = match is_move {
                    true => account.move_message(from, uid, to),
                    false => account.copy(from, uid, to),
                };
                if let Ok(copied) = copied {
                    sources.push(uid);
                    targets.push(copied);
                }
            }
            Ok((account.folders[&to].uid_validity, sources, targets))
        });
        match copied {
            Err(Refused::NoFolder) => no("[TRYCREATE] There is no such folder."),
            Err(why) => Err(refused(why)),
            Ok((validity, sources, targets)) if self.world.offers("UIDPLUS") && !sources.is_empty() => {
                let code = format!("[COPYUID {validity} {} {}]", sets::write(&sources), sets::write(&targets));
                if is_move {
                    self.line(&format!("* OK {code} Moved."));
                    return Ok("Done.".to_owned());
                }
                Ok(format!("{code} Done."))
            }
            Ok(_) => Ok("Done.".to_owned()),
        }
    }

    /// What is marked as deleted goes; with a set only of those.
    pub(super) fn expunge(&mut self, word: Option<&Word>) -> Done {
        let folder = self.writable()?;
        let only = match word {
            None => None,
            Some(word) => {
                let set = word.text().and_then(|text| Set::read(&text, u32::MAX));
                Some(set.ok_or_else(|| End::Bad("This is no set of messages.".to_owned()))?)
            }
        };
        self.mailbox()?.change(|account| {
            let Some(found) = account.folders.get(&folder) else { return };
            let is_meant = |uid: &u32| only.as_ref().is_none_or(|only| only.has(*uid));
            let deleted =
                found.messages.iter().filter(|(uid, message)| message.flags.contains("\\Deleted") && is_meant(uid));
            for uid in deleted.map(|(uid, _)| *uid).collect::<Vec<_>>() {
                let _ = account.expunge(folder, uid);
            }
        });
        Ok("Done.".to_owned())
    }

    pub(super) fn expunge_silently(&mut self) -> Result<(), End> {
        self.expunge(None).map(drop)
    }

    pub(super) fn append(&mut self, rest: &[Word]) -> Done {
        let name = self.read_name(rest.first())?;
        let Some((Word::Text(bytes), options)) = rest.get(1..).and_then(<[Word]>::split_last) else {
            return bad("APPEND of what?");
        };
        let mut received = seconds(self.world.now());
        let mut flags = BTreeSet::new();
        for option in options {
            match option {
                Word::List(words) => flags.extend(words.iter().filter_map(Word::text)),
                Word::Text(date) => received = date_of(date).ok_or_else(|| End::Bad("This is no date.".to_owned()))?,
                Word::Atom(_) => return bad("APPEND takes flags, a date and a message."),
            }
        }
        let content = Content::Own(bytes.clone().into());
        let added = self.mailbox()?.change(|account| {
            let folder = account.find(&name).ok_or(Refused::NoFolder)?;
            let uid = account.add(folder, New { content, flags, received })?;
            Ok((account.folders[&folder].uid_validity, uid))
        });
        match added {
            Ok((validity, uid)) if self.world.offers("UIDPLUS") => Ok(format!("[APPENDUID {validity} {uid}] Done.")),
            Ok(_) => Ok("Done.".to_owned()),
            Err(Refused::NoFolder) => no("[TRYCREATE] There is no such folder."),
            Err(why) => Err(refused(why)),
        }
    }
}

fn date_of(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    Timestamp::strptime("%d-%b-%Y %H:%M:%S %z", text).ok().map(seconds)
}
