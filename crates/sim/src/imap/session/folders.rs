//! LIST, STATUS, CREATE, DELETE and RENAME.

use super::super::account::{ImapAccount, ImapOperationError};
use super::super::folders::{DELIMITER, ImapFolder};
use super::super::utf7;
use super::command_parser::Word;
use super::{CommandEnd, CommandResult, Session, bad};

/// The RETURN options of LIST.
#[derive(Debug, Default)]
struct ListOptions {
    has_uses: bool,
    status: Option<Vec<String>>,
}

impl Session {
    /// Encodes and quotes a folder name for the wire.
    pub(super) fn wire_name(&self, name: &str) -> String {
        let wire = if self.enabled.utf8 { name.to_owned() } else { utf7::encode(name) };
        format!("\"{}\"", wire.replace('\\', "\\\\").replace('"', "\\\""))
    }

    /// Decodes a folder name from the wire.
    pub(super) fn read_name(&self, word: Option<&Word>) -> Result<String, CommandEnd> {
        let name =
            word.and_then(Word::text).ok_or_else(|| CommandEnd::Bad("The name of a folder is missing.".to_owned()))?;
        if self.enabled.utf8 {
            return Ok(name);
        }
        if !name.is_ascii() {
            return bad("Names are in modified UTF-7.");
        }
        utf7::decode(&name).ok_or_else(|| CommandEnd::Bad("This is no name.".to_owned()))
    }

    pub(super) fn list(&mut self, command: &str, rest: &[Word]) -> CommandResult {
        let (Some(reference), Some(pattern)) = (rest.first().and_then(Word::text), rest.get(1).and_then(Word::text))
        else {
            return bad("A list is of a reference and a pattern.");
        };
        let options = self.list_options(&rest[2..])?;
        if pattern.is_empty() {
            self.line(&format!("* {command} (\\Noselect) \"{DELIMITER}\" \"\""));
            return Ok("Done.".to_owned());
        }
        let pattern = format!("{reference}{pattern}");
        let mailbox = self.mailbox()?;
        let account = mailbox.account();
        let mut lines = Vec::new();
        for folder in account.folders.values() {
            if !matches_pattern(
                &pattern,
                &if self.enabled.utf8 { folder.name.clone() } else { utf7::encode(&folder.name) },
            ) {
                continue;
            }
            let name = self.wire_name(&folder.name);
            let attributes = attributes(&account, folder, options.has_uses || self.world.offers("SPECIAL-USE"));
            lines.push(format!("* {command} ({attributes}) \"{DELIMITER}\" {name}"));
            if let Some(items) = &options.status {
                lines.push(format!("* STATUS {name} ({})", self.numbers(folder, items)?));
            }
        }
        drop(account);
        lines.iter().for_each(|line| self.line(line));
        Ok("Done.".to_owned())
    }

    fn list_options(&self, rest: &[Word]) -> Result<ListOptions, CommandEnd> {
        let mut options = ListOptions::default();
        let words = match rest {
            [] => return Ok(options),
            [word, Word::List(words)] if word.keyword() == "RETURN" && self.world.offers("LIST-EXTENDED") => words,
            _ => return bad("Options of LIST come after RETURN, where LIST-EXTENDED is offered."),
        };
        let mut words = words.iter();
        while let Some(option) = words.next() {
            match option.keyword().as_str() {
                "SPECIAL-USE" if self.world.offers("SPECIAL-USE") => options.has_uses = true,
                "CHILDREN" | "SUBSCRIBED" => {}
                "STATUS" if self.world.offers("LIST-STATUS") => {
                    let items = words.next().and_then(Word::list);
                    let items = items.ok_or_else(|| CommandEnd::Bad("STATUS of what?".to_owned()))?;
                    options.status = Some(items.iter().map(Word::keyword).collect());
                }
                other => return bad(&format!("{other} is not offered.")),
            }
        }
        Ok(options)
    }

    pub(super) fn status(&mut self, rest: &[Word]) -> CommandResult {
        let name = self.read_name(rest.first())?;
        let items = rest.get(1).and_then(Word::list).ok_or_else(|| CommandEnd::Bad("STATUS of what?".to_owned()))?;
        let items: Vec<String> = items.iter().map(Word::keyword).collect();
        let mailbox = self.mailbox()?;
        let (name, numbers) = {
            let account = mailbox.account();
            let folder = account.find(&name).and_then(|number| account.folders.get(&number)).ok_or_else(missing)?;
            (self.wire_name(&folder.name), self.numbers(folder, &items)?)
        };
        self.line(&format!("* STATUS {name} ({numbers})"));
        Ok("Done.".to_owned())
    }

    fn numbers(&self, folder: &ImapFolder, items: &[String]) -> Result<String, CommandEnd> {
        let has_modseq = self.world.offers("CONDSTORE") || self.world.offers("QRESYNC");
        Ok(items
            .iter()
            .map(|item| match item.as_str() {
                "MESSAGES" => Ok(format!("MESSAGES {}", folder.messages.len())),
                "UIDNEXT" => Ok(format!("UIDNEXT {}", folder.uid_next)),
                "UIDVALIDITY" => Ok(format!("UIDVALIDITY {}", folder.uid_validity)),
                "UNSEEN" => Ok(format!("UNSEEN {}", folder.unseen())),
                "RECENT" => Ok("RECENT 0".to_owned()),
                "HIGHESTMODSEQ" if has_modseq => Ok(format!("HIGHESTMODSEQ {}", folder.highest_modseq)),
                "MAILBOXID" if self.world.offers("OBJECTID") => Ok(format!("MAILBOXID ({})", folder.id)),
                other => bad(&format!("STATUS knows no {other} here.")),
            })
            .collect::<Result<Vec<_>, _>>()?
            .join(" "))
    }

    pub(super) fn change_folders(&mut self, command: &str, rest: &[Word]) -> CommandResult {
        let name = self.read_name(rest.first())?;
        let other = if command == "RENAME" { self.read_name(rest.get(1))? } else { String::new() };
        let changed = self.mailbox()?.change(|account| {
            let folder = account.find(&name).ok_or(ImapOperationError::NoFolder);
            match command {
                "CREATE" => account.create_folder(&name).map(drop),
                "DELETE" => account.delete_folder(folder?),
                _ => account.rename_folder(folder?, &other),
            }
        });
        changed.map(|()| "Done.".to_owned()).map_err(refused)
    }
}

pub fn missing() -> CommandEnd {
    CommandEnd::No("[NONEXISTENT] There is no such folder.".to_owned())
}

pub fn refused(why: ImapOperationError) -> CommandEnd {
    let code = match why {
        ImapOperationError::NoFolder => "NONEXISTENT",
        ImapOperationError::Taken => "ALREADYEXISTS",
        ImapOperationError::HasRole | ImapOperationError::NoAccount | ImapOperationError::NoMessage => "CANNOT",
    };
    CommandEnd::No(format!("[{code}] {why}"))
}

fn attributes(account: &ImapAccount, folder: &ImapFolder, has_uses: bool) -> String {
    let below = format!("{}{DELIMITER}", folder.name);
    let has_children = account.folders.values().any(|other| other.name.starts_with(&below));
    let children = if has_children { "\\HasChildren" } else { "\\HasNoChildren" };
    let role = folder.role.and_then(super::super::folders::SpecialUse::attribute).filter(|_| has_uses);
    role.map_or_else(|| children.to_owned(), |role| format!("{children} {role}"))
}

/// Matches a LIST pattern: `*` stands for anything, `%` for anything within one level.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) =
        pattern.split_at_checked(1).or_else(|| pattern.char_indices().nth(1).map(|(at, _)| pattern.split_at(at)))
    else {
        return pattern == name;
    };
    match first {
        "*" => name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| matches_pattern(rest, &name[at..])),
        "%" => {
            let end = name.find(DELIMITER).unwrap_or(name.len());
            name.char_indices()
                .map(|(at, _)| at)
                .chain([name.len()])
                .take_while(|at| *at <= end)
                .any(|at| matches_pattern(rest, &name[at..]))
        }
        letter => name.strip_prefix(letter).is_some_and(|left| matches_pattern(rest, left)),
    }
}

#[cfg(test)]
mod tests {
    use super::matches_pattern;

    #[test]
    fn list_patterns_match_folder_names() {
        for (pattern, name, is_fit) in [
            ("*", "A/B", true),
            ("%", "A/B", false),
            ("%", "A", true),
            ("A/%", "A/B", true),
            ("A/%", "A/B/C", false),
            ("*B*", "A/B/C", true),
            ("INBOX", "INBOX", true),
            ("INBOX", "INBOX2", false),
            ("ü%", "üb", true),
        ] {
            assert_eq!(matches_pattern(pattern, name), is_fit, "{pattern} {name}");
        }
    }
}
