//! Lists folders and their status (LIST, STATUS).

use std::collections::HashMap;

use domain::connector::FolderRole;

use super::command::Command;
use super::error::{ImapError, Step};
use super::lex::Lexer;
use super::refusal::Refusal;
use super::select::mailbox_id;
use super::{Client, WireName, utf7};

/// Limit of all folder names together.
const MAX_FOLDER_NAMES_BYTES: usize = 16 << 20;

/// STATUS items for folder ids (OBJECTID).
const ID_STATUS_ITEMS: &str = "(UIDVALIDITY MAILBOXID)";

/// A folder of a LIST response ("mailbox" in RFC 3501).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImapFolder {
    /// Name for commands.
    pub wire: WireName,
    /// Name for people.
    pub name: String,
    /// Hierarchy delimiter; `None` if folders have no hierarchy.
    pub delimiter: Option<char>,
    /// Attributes in lower case, without their backslash: `sent`, `noselect`, `hasnochildren`.
    pub attributes: Vec<String>,
    /// `None` if it was not requested or the server did not return it.
    pub status: Option<FolderStatus>,
}

/// A STATUS response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FolderStatus {
    pub messages: Option<u32>,
    pub uid_next: Option<u32>,
    pub uid_validity: Option<u32>,
    pub highest_modseq: Option<u64>,
    pub mailbox_id: Option<String>,
}

impl ImapFolder {
    pub fn has(&self, attribute: &str) -> bool {
        self.attributes.iter().any(|other| other == attribute)
    }

    /// Returns whether it can be opened.
    pub fn is_selectable(&self) -> bool {
        !self.has("noselect") && !self.has("nonexistent")
    }

    /// Returns its role by its special-use attributes (RFC 6154).
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

/// The folders that were listed so far.
#[derive(Debug, Default)]
struct FolderList {
    folders: Vec<ImapFolder>,
    by_name: HashMap<WireName, usize>,
    bytes: usize,
}

impl Client {
    /// Lists all folders, also those that cannot be opened.
    pub async fn list(&mut self) -> Result<Vec<ImapFolder>, ImapError> {
        let options = if self.offers_special_use() { " RETURN (SPECIAL-USE)" } else { "" };
        Ok(self.list_returning(options).await?.folders)
    }

    /// Lists all folders with their status: by one or two commands with LIST-STATUS, else by a command for each.
    pub async fn list_with_status(&mut self) -> Result<Vec<ImapFolder>, ImapError> {
        let mut folders = self.list_with_status_items().await?;
        if self.capabilities.has("OBJECTID") {
            self.add_ids(&mut folders).await?;
        }
        Ok(folders)
    }

    async fn list_with_status_items(&mut self) -> Result<Vec<ImapFolder>, ImapError> {
        if !self.capabilities.has("LIST-STATUS") {
            let folders = self.list().await?;
            return self.add_statuses(folders).await;
        }
        let special = if self.offers_special_use() { "SPECIAL-USE " } else { "" };
        let options = format!(" RETURN ({special}STATUS {})", self.status_items());
        match self.list_returning(&options).await {
            // The server offers LIST-STATUS but does not understand it.
            Err(ImapError::Refused(_)) => {
                let folders = self.list_returning("").await?.folders;
                self.add_statuses(folders).await
            }
            listed => Ok(listed?.folders),
        }
    }

    /// Adds folder ids. They are requested separately from items that make a server open the folder: Cyrus 3.6 has closed
    /// it by the time it responds, and sends arbitrary memory as the id. The folder may be replaced between the two
    /// responses, so its UIDVALIDITY is compared.
    async fn add_ids(&mut self, folders: &mut [ImapFolder]) -> Result<(), ImapError> {
        let listed = if self.capabilities.has("LIST-STATUS") {
            match self.list_returning(&format!(" RETURN (STATUS {ID_STATUS_ITEMS})")).await {
                Err(ImapError::Refused(refusal)) if !refusal.is_about_the_account() => return Ok(()),
                listed => listed?.folders,
            }
        } else {
            self.add_statuses_with(folders.to_vec(), ID_STATUS_ITEMS).await?
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

    /// Returns the status of these folders, in the same order, with `None` for one that the server refuses.
    pub async fn statuses(&mut self, folders: &[WireName]) -> Result<Vec<Option<FolderStatus>>, ImapError> {
        let items = self.status_items();
        self.statuses_with(folders, &items).await
    }

    async fn statuses_with(
        &mut self,
        folders: &[WireName],
        items: &str,
    ) -> Result<Vec<Option<FolderStatus>>, ImapError> {
        let commands = folders.iter().map(|folder| {
            let command = Command::new("STATUS ").string(folder.as_bytes(), &self.capabilities, self.enabled.utf8);
            command.text(" ").text(items)
        });
        let commands = commands.collect();
        let mut found = HashMap::new();
        let wanted: HashMap<&WireName, usize> = folders.iter().enumerate().map(|(at, name)| (name, at)).collect();
        let mut fatal = None;
        self.run_pipelined(
            Step::Status,
            commands,
            |response| {
                let Some((name, status)) = response.data("STATUS").and_then(status) else { return Ok(false) };
                let Some(at) = wanted.get(&name) else { return Ok(false) };
                found.insert(*at, status);
                Ok(true)
            },
            |_, refusal| {
                // A folder without access does not affect the others; throttling does.
                fatal = fatal.take().or(refusal.filter(Refusal::is_about_the_account));
                Ok(())
            },
        )
        .await?;
        match fatal {
            Some(refusal) => Err(ImapError::Refused(refusal)),
            None => Ok((0..folders.len()).map(|at| found.remove(&at)).collect()),
        }
    }

    async fn add_statuses(&mut self, folders: Vec<ImapFolder>) -> Result<Vec<ImapFolder>, ImapError> {
        let items = self.status_items();
        self.add_statuses_with(folders, &items).await
    }

    async fn add_statuses_with(
        &mut self,
        mut folders: Vec<ImapFolder>,
        items: &str,
    ) -> Result<Vec<ImapFolder>, ImapError> {
        let selectable = folders.iter().filter(|folder| folder.is_selectable());
        let names: Vec<_> = selectable.map(|folder| folder.wire.clone()).collect();
        let statuses = self.statuses_with(&names, items).await?;
        for (folder, status) in folders.iter_mut().filter(|folder| folder.is_selectable()).zip(statuses) {
            folder.status = status;
        }
        Ok(folders)
    }

    fn offers_special_use(&self) -> bool {
        self.capabilities.has("SPECIAL-USE") && self.capabilities.has("LIST-EXTENDED")
    }

    fn status_items(&self) -> String {
        let modseq = if self.capabilities.has_modseq() { " HIGHESTMODSEQ" } else { "" };
        format!("(MESSAGES UIDNEXT UIDVALIDITY{modseq})")
    }

    async fn list_returning(&mut self, options: &str) -> Result<FolderList, ImapError> {
        let (most, is_utf8) = (self.settings.limits.folders, self.enabled.utf8);
        let mut listed = FolderList::default();
        let command = Command::new(&format!("LIST \"\" \"*\"{options}"));
        self.run(Step::List, command, |response| {
            if let Some(line) = response.data("LIST") {
                let folder = folder(line, is_utf8).ok_or(ImapError::Protocol("a LIST response is malformed"))?;
                return listed.add(folder, most);
            }
            let Some((name, status)) = response.data("STATUS").and_then(status) else { return Ok(false) };
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

impl FolderList {
    /// Adds a folder. Returns `false` if it was listed already.
    fn add(&mut self, folder: ImapFolder, most: usize) -> Result<bool, ImapError> {
        if self.by_name.contains_key(&folder.wire) {
            return Ok(false);
        }
        self.bytes += folder.wire.as_bytes().len() + folder.attributes.iter().map(|one| one.len() + 24).sum::<usize>();
        if self.folders.len() >= most || self.bytes > MAX_FOLDER_NAMES_BYTES {
            return Err(ImapError::LimitExceeded("too many folders"));
        }
        self.by_name.insert(folder.wire.clone(), self.folders.len());
        self.folders.push(folder);
        Ok(true)
    }
}

/// Parses `(\HasNoChildren \Sent) "/" "Sent Items"`.
fn folder(mut line: Lexer<'_>, is_utf8: bool) -> Option<ImapFolder> {
    let mut words = line.parenthesized()?;
    let mut attributes = Vec::new();
    loop {
        words.spaces();
        let Some(word) = words.atom() else { break };
        let word = word.strip_prefix(b"\\").unwrap_or(word);
        attributes.push(String::from_utf8_lossy(word).to_lowercase());
    }
    line.spaces();
    // A delimiter is a string or NIL.
    let delimiter = match line.string() {
        Some(text) => std::str::from_utf8(&text).ok().and_then(|text| text.chars().next()),
        None => {
            line.atom()?;
            None
        }
    };
    line.spaces();
    // Some servers do not quote names that they should; then the name goes up to the end of the line.
    let name = match line.peek()? {
        b'"' | b'{' | b'~' => line.name()?,
        _ => std::borrow::Cow::Borrowed(unquoted_name(line.rest())),
    };
    if name.is_empty() {
        return None;
    }
    Some(ImapFolder {
        wire: WireName::new(&name),
        name: utf7::display_name(&name, is_utf8),
        delimiter,
        attributes,
        status: None,
    })
}

/// Returns an unquoted name without the extended data in parentheses that may follow.
fn unquoted_name(rest: &[u8]) -> &[u8] {
    let end = memchr::memmem::find(rest, b" (").unwrap_or(rest.len());
    rest[..end].trim_ascii_end()
}

/// Parses `"Sent Items" (MESSAGES 3 UIDNEXT 44)`.
fn status(mut line: Lexer<'_>) -> Option<(WireName, FolderStatus)> {
    let name = WireName::new(&line.name()?);
    line.spaces();
    let mut items = line.parenthesized()?;
    let mut status = FolderStatus::default();
    loop {
        items.spaces();
        let Some(item) = items.atom() else { return Some((name, status)) };
        items.spaces();
        match &*item.to_ascii_uppercase() {
            b"MESSAGES" => status.messages = Some(items.number32()?),
            b"UIDNEXT" => status.uid_next = items.number32().filter(|number| *number > 0),
            b"UIDVALIDITY" => status.uid_validity = items.number32().filter(|number| *number > 0),
            b"HIGHESTMODSEQ" => status.highest_modseq = items.number().filter(|number| *number > 0),
            b"MAILBOXID" => status.mailbox_id = mailbox_id(&mut items),
            _ => items.value()?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<ImapFolder> {
        folder(Lexer::new(line.as_bytes()), false)
    }

    #[test]
    fn folders_are_parsed_in_every_dialect() {
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
    fn status_is_parsed() {
        let line =
            b"\"Sent Items\" (MESSAGES 3 UIDNEXT 44 UIDVALIDITY 0 HIGHESTMODSEQ 715194045007 MAILBOXID (F22) X (y))";
        let (name, status) = status(Lexer::new(line)).unwrap();
        assert_eq!(name.as_bytes(), b"Sent Items");
        assert_eq!((status.messages, status.uid_next, status.uid_validity), (Some(3), Some(44), None));
        assert_eq!((status.highest_modseq, status.mailbox_id.as_deref()), (Some(715_194_045_007), Some("F22")));
    }
}
