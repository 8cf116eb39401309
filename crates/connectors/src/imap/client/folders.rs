//! Which folders there are, and how each stands.

use std::collections::HashMap;

use domain::connector::FolderRole;

use super::answer::Answer;
use super::command::Command;
use super::error::{ImapError, Step};
use super::lex::Lexer;
use super::refusal::Refusal;
use super::select::mailbox_id;
use super::{Client, WireName, utf7};

/// All names of all folders together are no longer than this.
const NAMES: usize = 16 << 20;

/// What a server knows of a folder without opening it.
const IDS: &str = "(UIDVALIDITY MAILBOXID)";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// For commands.
    pub wire: WireName,
    /// For people.
    pub name: String,
    /// What separates the parts of a name; nothing where folders have no hierarchy.
    pub delimiter: Option<char>,
    /// In lower case, without their backslash: `sent`, `noselect`, `hasnochildren`.
    pub attributes: Vec<String>,
    /// Nothing where it was not asked for, or the server did not say.
    pub status: Option<FolderStatus>,
}

/// How a folder stands, without opening it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FolderStatus {
    pub messages: Option<u32>,
    pub uid_next: Option<u32>,
    pub uid_validity: Option<u32>,
    pub highest_modseq: Option<u64>,
    pub mailbox_id: Option<String>,
}

impl Folder {
    pub fn has(&self, attribute: &str) -> bool {
        self.attributes.iter().any(|other| other == attribute)
    }

    /// Whether it can hold messages.
    pub fn is_selectable(&self) -> bool {
        !self.has("noselect") && !self.has("nonexistent")
    }

    /// What it is for, as far as the server says so.
    pub fn role(&self) -> Option<FolderRole> {
        let roles = [
            ("all", FolderRole::All),
            ("allmail", FolderRole::All),
            ("archive", FolderRole::Archive),
            ("drafts", FolderRole::Drafts),
            ("junk", FolderRole::Spam),
            ("spam", FolderRole::Spam),
            ("sent", FolderRole::Sent),
            ("trash", FolderRole::Trash),
            ("inbox", FolderRole::Inbox),
        ];
        if self.wire.as_bytes() == b"INBOX" {
            return Some(FolderRole::Inbox);
        }
        roles.into_iter().find(|(attribute, _)| self.has(attribute)).map(|(_, role)| role)
    }
}

/// What has been listed so far.
#[derive(Debug, Default)]
struct Listed {
    folders: Vec<Folder>,
    by_name: HashMap<WireName, usize>,
    bytes: usize,
}

impl Client {
    /// All folders, also those that cannot be opened.
    pub async fn list(&mut self) -> Result<Vec<Folder>, ImapError> {
        let options = if self.offers_special_use() { " RETURN (SPECIAL-USE)" } else { "" };
        Ok(self.list_with(options).await?.folders)
    }

    /// All folders and how each stands: in one call or two where the server can, else with a call for each.
    pub async fn list_with_status(&mut self) -> Result<Vec<Folder>, ImapError> {
        let mut folders = self.list_with_numbers().await?;
        if self.capabilities.has("OBJECTID") {
            self.add_ids(&mut folders).await?;
        }
        Ok(folders)
    }

    async fn list_with_numbers(&mut self) -> Result<Vec<Folder>, ImapError> {
        if !self.capabilities.has("LIST-STATUS") {
            let folders = self.list().await?;
            return self.add_statuses(folders).await;
        }
        let special = if self.offers_special_use() { "SPECIAL-USE " } else { "" };
        let options = format!(" RETURN ({special}STATUS {})", self.numbers());
        match self.list_with(&options).await {
            // It offers what it does not know.
            Err(ImapError::Refused(_)) => {
                let folders = self.list_with("").await?.folders;
                self.add_statuses(folders).await
            }
            listed => Ok(listed?.folders),
        }
    }

    /// Ids are asked for apart from what makes a server open the folder: a Cyrus 3.6 has closed it by the time it answers,
    /// and sends what is in memory where the id was. A folder may have become another between the two answers.
    async fn add_ids(&mut self, folders: &mut [Folder]) -> Result<(), ImapError> {
        let listed = if self.capabilities.has("LIST-STATUS") {
            match self.list_with(&format!(" RETURN (STATUS {IDS})")).await {
                Err(ImapError::Refused(refusal)) if !refusal.is_about_the_account() => return Ok(()),
                listed => listed?.folders,
            }
        } else {
            self.add_statuses_of(folders.to_vec(), IDS).await?
        };
        let mut ids: HashMap<WireName, FolderStatus> =
            listed.into_iter().filter_map(|folder| Some((folder.wire, folder.status?))).collect();
        for folder in folders {
            if let (Some(status), Some(found)) = (&mut folder.status, ids.remove(&folder.wire))
                && status.uid_validity == found.uid_validity
            {
                status.mailbox_id = found.mailbox_id;
            }
        }
        Ok(())
    }

    /// How these folders stand, in the same order. Nothing for one that the server refuses.
    pub async fn statuses(&mut self, folders: &[WireName]) -> Result<Vec<Option<FolderStatus>>, ImapError> {
        let items = self.numbers();
        self.statuses_of(folders, &items).await
    }

    async fn statuses_of(&mut self, folders: &[WireName], items: &str) -> Result<Vec<Option<FolderStatus>>, ImapError> {
        let ask = |folder: &WireName| {
            let command = Command::new("STATUS ").string(folder.as_bytes(), &self.capabilities, self.enabled.utf8);
            command.text(" ").text(items)
        };
        let commands = folders.iter().map(ask).collect();
        let mut found = HashMap::new();
        let wanted: HashMap<&WireName, usize> = folders.iter().enumerate().map(|(at, name)| (name, at)).collect();
        let mut fatal = None;
        let each = |answer: &Answer<'_>| {
            let at =
                answer.data("STATUS").and_then(status).and_then(|(name, status)| Some((*wanted.get(&name)?, status)));
            let is_asked = at.is_some();
            found.extend(at);
            Ok(is_asked)
        };
        self.run_all(Step::Status, commands, each, |_, refusal| {
            // One folder that cannot be looked at is no fault of the others; being told to wait is about all.
            fatal = fatal.take().or(refusal.filter(Refusal::is_about_the_account));
            Ok(())
        })
        .await?;
        match fatal {
            Some(refusal) => Err(ImapError::Refused(refusal)),
            None => Ok((0..folders.len()).map(|at| found.remove(&at)).collect()),
        }
    }

    async fn add_statuses(&mut self, folders: Vec<Folder>) -> Result<Vec<Folder>, ImapError> {
        let items = self.numbers();
        self.add_statuses_of(folders, &items).await
    }

    async fn add_statuses_of(&mut self, mut folders: Vec<Folder>, items: &str) -> Result<Vec<Folder>, ImapError> {
        let is_open = |folder: &&mut Folder| folder.is_selectable();
        let names: Vec<_> = folders.iter_mut().filter(is_open).map(|folder| folder.wire.clone()).collect();
        let statuses = self.statuses_of(&names, items).await?;
        for (folder, status) in folders.iter_mut().filter(is_open).zip(statuses) {
            folder.status = status;
        }
        Ok(folders)
    }

    fn offers_special_use(&self) -> bool {
        self.capabilities.has("SPECIAL-USE") && self.capabilities.has("LIST-EXTENDED")
    }

    fn numbers(&self) -> String {
        let modseq = if self.capabilities.has_modseq() { " HIGHESTMODSEQ" } else { "" };
        format!("(MESSAGES UIDNEXT UIDVALIDITY{modseq})")
    }

    async fn list_with(&mut self, options: &str) -> Result<Listed, ImapError> {
        let (most, is_utf8) = (self.settings.limits.folders, self.enabled.utf8);
        let mut listed = Listed::default();
        let command = Command::new(&format!("LIST \"\" \"*\"{options}"));
        self.run(Step::List, command, |answer| {
            if let Some(line) = answer.data("LIST") {
                let folder = folder(line, is_utf8).ok_or(ImapError::Protocol("a LIST that makes no sense"))?;
                return listed.add(folder, most);
            }
            let Some((name, status)) = answer.data("STATUS").and_then(status) else { return Ok(false) };
            let at = listed.by_name.get(&name);
            if let Some(at) = at {
                listed.folders[*at].status = Some(status);
            }
            Ok(at.is_some())
        })
        .await?;
        Ok(listed)
    }
}

impl Listed {
    /// The same folder again is not asked for.
    fn add(&mut self, folder: Folder, most: usize) -> Result<bool, ImapError> {
        if self.by_name.contains_key(&folder.wire) {
            return Ok(false);
        }
        self.bytes += folder.wire.as_bytes().len() + folder.attributes.iter().map(|one| one.len() + 24).sum::<usize>();
        if self.folders.len() >= most || self.bytes > NAMES {
            return Err(ImapError::TooMuch("too many folders"));
        }
        self.by_name.insert(folder.wire.clone(), self.folders.len());
        self.folders.push(folder);
        Ok(true)
    }
}

/// `(\HasNoChildren \Sent) "/" "Sent Items"`
fn folder(mut line: Lexer<'_>, is_utf8: bool) -> Option<Folder> {
    let mut words = line.parenthesized()?;
    let mut attributes = Vec::new();
    loop {
        words.spaces();
        let Some(word) = words.atom() else { break };
        let word = word.strip_prefix(b"\\").unwrap_or(word);
        attributes.push(String::from_utf8_lossy(word).to_lowercase());
    }
    line.spaces();
    // NIL is the only one that is no string.
    let delimiter = match line.string() {
        Some(text) => std::str::from_utf8(&text).ok().and_then(|text| text.chars().next()),
        None => {
            line.atom()?;
            None
        }
    };
    line.spaces();
    // Some servers leave names unquoted that they should quote; what ends a line is then part of the name.
    let name = match line.peek()? {
        b'"' | b'{' | b'~' => line.name()?,
        _ => std::borrow::Cow::Borrowed(unquoted(line.rest())),
    };
    if name.is_empty() {
        return None;
    }
    Some(Folder { wire: WireName::new(&name), name: utf7::shown(&name, is_utf8), delimiter, attributes, status: None })
}

/// Without the extended data in parentheses that may follow a name.
fn unquoted(rest: &[u8]) -> &[u8] {
    let end = memchr::memmem::find(rest, b" (").unwrap_or(rest.len());
    rest[..end].trim_ascii_end()
}

/// `"Sent Items" (MESSAGES 3 UIDNEXT 44)`
fn status(mut line: Lexer<'_>) -> Option<(WireName, FolderStatus)> {
    let name = WireName::new(&line.name()?);
    line.spaces();
    let mut items = line.parenthesized()?;
    let mut status = FolderStatus::default();
    loop {
        items.spaces();
        let Some(item) = items.atom() else { return Some((name, status)) };
        items.spaces();
        let is = |wanted: &str| item.eq_ignore_ascii_case(wanted.as_bytes());
        if is("MESSAGES") {
            status.messages = Some(items.number32()?);
        } else if is("UIDNEXT") {
            status.uid_next = items.number32().filter(|number| *number > 0);
        } else if is("UIDVALIDITY") {
            status.uid_validity = items.number32().filter(|number| *number > 0);
        } else if is("HIGHESTMODSEQ") {
            status.highest_modseq = items.number().filter(|number| *number > 0);
        } else if is("MAILBOXID") {
            status.mailbox_id = mailbox_id(&mut items);
        } else {
            items.value()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Folder> {
        folder(Lexer::new(line.as_bytes()), false)
    }

    #[test]
    fn folders_are_read_in_every_dialect() {
        let sent = read(r#"(\HasNoChildren \Sent) "/" "Sent Items""#).unwrap();
        assert_eq!(
            (sent.name.as_str(), sent.delimiter, sent.role()),
            ("Sent Items", Some('/'), Some(FolderRole::Sent))
        );
        assert_eq!(read(r#"() NIL INBOX"#).unwrap().delimiter, None);
        assert_eq!(read(r#"() "\\" inbox"#).unwrap().role(), Some(FolderRole::Inbox));
        assert_eq!(read("(\\Marked) \".\" {5}\r\na \"b\"").unwrap().wire.as_bytes(), b"a \"b\"");
        assert_eq!(read(r#"() "/" Deleted Items"#).unwrap().name, "Deleted Items");
        assert_eq!(read(r#"() "/" a ("CHILDINFO" ("SUBSCRIBED"))"#).unwrap().name, "a");
        assert_eq!(read(r#"() "." Entw&APw-rfe"#).unwrap().name, "Entwürfe");
        assert!(!read(r#"(\NoSelect) "/" "[Gmail]""#).unwrap().is_selectable());
        assert!(!read(r#"(\NonExistent) "/" x"#).unwrap().is_selectable());
        for wrong in ["", "(", "()", "() \"/\"", "() \"/\" \"\"", "x \"/\" a", "() \"/\" \"a"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_status_is_read() {
        let line =
            b"\"Sent Items\" (MESSAGES 3 UIDNEXT 44 UIDVALIDITY 0 HIGHESTMODSEQ 715194045007 MAILBOXID (F22) X (y))";
        let (name, status) = status(Lexer::new(line)).unwrap();
        assert_eq!(name.as_bytes(), b"Sent Items");
        assert_eq!((status.messages, status.uid_next, status.uid_validity), (Some(3), Some(44), None));
        assert_eq!((status.highest_modseq, status.mailbox_id.as_deref()), (Some(715_194_045_007), Some("F22")));
    }
}
