//! Which folders there are, how each stands, and others.

use super::super::account::{Account, Refused};
use super::super::folders::{DELIMITER, Folder};
use super::super::utf7;
use super::words::Word;
use super::{Done, End, Session, bad};

/// What is asked for with a list.
#[derive(Debug, Default)]
struct Wanted {
    has_uses: bool,
    status: Option<Vec<String>>,
}

impl Session {
    /// A name as it is written on the wire.
    pub(super) fn wire_name(&self, name: &str) -> String {
        let wire = if self.enabled.utf8 { name.to_owned() } else { utf7::encode(name) };
        format!("\"{}\"", wire.replace('\\', "\\\\").replace('"', "\\\""))
    }

    /// The name that a word stands for.
    pub(super) fn read_name(&self, word: Option<&Word>) -> Result<String, End> {
        let name = word.and_then(Word::text).ok_or_else(|| End::Bad("The name of a folder is missing.".to_owned()))?;
        match self.enabled.utf8 {
            true => Ok(name),
            false if name.is_ascii() => utf7::decode(&name).ok_or_else(|| End::Bad("This is no name.".to_owned())),
            false => bad("Names are in modified UTF-7."),
        }
    }

    pub(super) fn list(&mut self, command: &str, rest: &[Word]) -> Done {
        let (Some(reference), Some(pattern)) = (rest.first().and_then(Word::text), rest.get(1).and_then(Word::text))
        else {
            return bad("A list is of a reference and a pattern.");
        };
        let wanted = self.wanted(&rest[2..])?;
        if pattern.is_empty() {
            self.line(&format!("* {command} (\\Noselect) \"{DELIMITER}\" \"\""));
            return Ok("Done.".to_owned());
        }
        let pattern = format!("{reference}{pattern}");
        let mailbox = self.mailbox()?;
        let account = mailbox.account();
        let mut lines = Vec::new();
        for folder in account.folders.values() {
            if !fits(&pattern, &if self.enabled.utf8 { folder.name.clone() } else { utf7::encode(&folder.name) }) {
                continue;
            }
            let name = self.wire_name(&folder.name);
            let attributes = attributes(&account, folder, wanted.has_uses || self.world.offers("SPECIAL-USE"));
            lines.push(format!("* {command} ({attributes}) \"{DELIMITER}\" {name}"));
            if let Some(items) = &wanted.status {
                lines.push(format!("* STATUS {name} ({})", self.numbers(folder, items)?));
            }
        }
        drop(account);
        lines.iter().for_each(|line| self.line(line));
        Ok("Done.".to_owned())
    }

    fn wanted(&self, rest: &[Word]) -> Result<Wanted, End> {
        let mut wanted = Wanted::default();
        let options = match rest {
            [] => return Ok(wanted),
            [word, Word::List(options)] if word.keyword() == "RETURN" && self.world.offers("LIST-EXTENDED") => options,
            _ => return bad("Options of LIST come after RETURN, where LIST-EXTENDED is offered."),
        };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            match option.keyword().as_str() {
                "SPECIAL-USE" if self.world.offers("SPECIAL-USE") => wanted.has_uses = true,
                "CHILDREN" | "SUBSCRIBED" => {}
                "STATUS" if self.world.offers("LIST-STATUS") => {
                    let items = options.next().and_then(Word::list);
                    let items = items.ok_or_else(|| End::Bad("STATUS of what?".to_owned()))?;
                    wanted.status = Some(items.iter().map(Word::keyword).collect());
                }
                other => return bad(&format!("{other} is not offered.")),
            }
        }
        Ok(wanted)
    }

    pub(super) fn status(&mut self, rest: &[Word]) -> Done {
        let name = self.read_name(rest.first())?;
        let items = rest.get(1).and_then(Word::list).ok_or_else(|| End::Bad("STATUS of what?".to_owned()))?;
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

    fn numbers(&self, folder: &Folder, items: &[String]) -> Result<String, End> {
        let has_modseq = self.world.offers("CONDSTORE") || self.world.offers("QRESYNC");
        let unseen = || folder.messages.values().filter(|message| !message.flags.contains("\\Seen")).count();
        let number = |item: &String| match item.as_str() {
            "MESSAGES" => Ok(format!("MESSAGES {}", folder.messages.len())),
            "UIDNEXT" => Ok(format!("UIDNEXT {}", folder.uid_next)),
            "UIDVALIDITY" => Ok(format!("UIDVALIDITY {}", folder.uid_validity)),
            "UNSEEN" => Ok(format!("UNSEEN {}", unseen())),
            "RECENT" => Ok("RECENT 0".to_owned()),
            "HIGHESTMODSEQ" if has_modseq => Ok(format!("HIGHESTMODSEQ {}", folder.highest_modseq)),
            "MAILBOXID" if self.world.offers("OBJECTID") => Ok(format!("MAILBOXID ({})", folder.id)),
            other => bad(&format!("STATUS knows no {other} here.")),
        };
        Ok(items.iter().map(number).collect::<Result<Vec<_>, _>>()?.join(" "))
    }

    pub(super) fn change_folders(&mut self, command: &str, rest: &[Word]) -> Done {
        let name = self.read_name(rest.first())?;
        let other = if command == "RENAME" { self.read_name(rest.get(1))? } else { String::new() };
        let changed = self.mailbox()?.change(|account| {
            let folder = account.find(&name).ok_or(Refused::NoFolder);
            match command {
                "CREATE" => account.create_folder(&name).map(drop),
                "DELETE" => account.delete_folder(folder?),
                _ => account.rename_folder(folder?, &other),
            }
        });
        changed.map(|()| "Done.".to_owned()).map_err(refused)
    }
}

pub fn missing() -> End {
    End::No("[NONEXISTENT] There is no such folder.".to_owned())
}

pub fn refused(why: Refused) -> End {
    let code = match why {
        Refused::NoFolder => "NONEXISTENT",
        Refused::Taken => "ALREADYEXISTS",
        Refused::HasRole | Refused::NoAccount | Refused::NoMessage => "CANNOT",
    };
    End::No(format!("[{code}] {why}"))
}

fn attributes(account: &Account, folder: &Folder, has_uses: bool) -> String {
    let below = format!("{}{DELIMITER}", folder.name);
    let has_children = account.folders.values().any(|other| other.name.starts_with(&below));
    let children = if has_children { "\\HasChildren" } else { "\\HasNoChildren" };
    let role = folder.role.and_then(super::super::folders::Role::attribute).filter(|_| has_uses);
    role.map_or_else(|| children.to_owned(), |role| format!("{children} {role}"))
}

/// A star stands for anything, a percent sign for anything within one part of a name.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) =
        pattern.split_at_checked(1).or_else(|| pattern.char_indices().nth(1).map(|(at, _)| pattern.split_at(at)))
    else {
        return pattern == name;
    };
    match first {
        "*" => name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| fits(rest, &name[at..])),
        "%" => {
            let end = name.find(DELIMITER).unwrap_or(name.len());
            name.char_indices()
                .map(|(at, _)| at)
                .chain([name.len()])
                .take_while(|at| *at <= end)
                .any(|at| fits(rest, &name[at..]))
        }
        letter => name.strip_prefix(letter).is_some_and(|left| fits(rest, left)),
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns_stop_at_what_stands_between_names_or_do_not() {
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
            assert_eq!(fits(pattern, name), is_fit, "{pattern} {name}");
        }
    }
}
