//! Opens a folder read-only (EXAMINE).

use super::command::Command;
use super::error::{ImapError, Step};
use super::fetch::{Metadata, note_vanished};
use super::lex::Lexer;
use super::response::ServerResponse;
use super::uid_set::UidCollector;
use super::{Client, UidSet, WireName};

/// State of a folder when it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExaminedFolder {
    pub exists: u32,
    /// `None` if the server sends none, or 0.
    pub uid_validity: Option<u32>,
    pub uid_next: Option<u32>,
    /// `None` if the folder has no modification sequences.
    pub highest_modseq: Option<u64>,
    /// MAILBOXID, which stays the same when the folder is renamed (RFC 8474).
    pub mailbox_id: Option<String>,
    /// Expunged UIDs, by [`Client::resync`].
    pub vanished: UidSet,
}

impl Client {
    /// Opens a folder read-only.
    pub async fn examine(&mut self, folder: &WireName) -> Result<ExaminedFolder, ImapError> {
        let parameter = if self.capabilities.has_modseq() { " (CONDSTORE)" } else { "" };
        self.open(folder, parameter, |_| {}).await
    }

    /// Closes the open folder; it was opened read-only, so nothing is expunged.
    pub async fn close(&mut self) -> Result<(), ImapError> {
        self.run(Step::Examine, Command::new("CLOSE"), |_| Ok(false)).await.map(drop)
    }

    /// Opens a folder and returns its changes since `modseq`: changed messages through `each`, expunged ones in the result.
    /// If its UIDVALIDITY has changed, the server sends neither. Requires [`Client::has_qresync`].
    pub async fn resync(
        &mut self,
        folder: &WireName,
        uid_validity: u32,
        modseq: u64,
        each: impl FnMut(&Metadata<'_>) + Send,
    ) -> Result<ExaminedFolder, ImapError> {
        if !self.enabled.qresync {
            return Err(ImapError::Unsupported("the server does not offer QRESYNC"));
        }
        self.open(folder, &format!(" (QRESYNC ({uid_validity} {modseq}))"), each).await
    }

    async fn open(
        &mut self,
        folder: &WireName,
        parameter: &str,
        mut each: impl FnMut(&Metadata<'_>) + Send,
    ) -> Result<ExaminedFolder, ImapError> {
        let name = folder.as_bytes();
        let command = Command::new("EXAMINE ").string(name, &self.capabilities, self.enabled.utf8).text(parameter);
        let mut found = ExaminedFolder::default();
        let mut vanished = UidCollector::new(self.settings.limits.ranges);
        self.run(Step::Examine, command, |response| {
            if let Some(list) = response.fetch() {
                let changed = Metadata::parse(list).filter(|changed| changed.known_uid().is_some());
                if let Some(changed) = &changed {
                    each(changed);
                }
                return Ok(changed.is_some());
            }
            Ok(found.note(response) || note_vanished(response, &mut vanished)?)
        })
        .await?;
        found.vanished = vanished.into_set();
        Ok(found)
    }
}

impl ExaminedFolder {
    /// Takes a response about the folder. Returns whether it was one.
    fn note(&mut self, response: &ServerResponse<'_>) -> bool {
        if let ServerResponse::Numbered(number, word, _) = response
            && word.eq_ignore_ascii_case(b"EXISTS")
        {
            self.exists = *number;
        } else if let Some(mut value) = response.code("UIDVALIDITY") {
            self.uid_validity = value.number32().filter(|number| *number > 0);
        } else if let Some(mut value) = response.code("UIDNEXT") {
            self.uid_next = value.number32().filter(|number| *number > 0);
        } else if let Some(mut value) = response.code("HIGHESTMODSEQ") {
            self.highest_modseq = value.number().filter(|number| *number > 0);
        } else if response.code("NOMODSEQ").is_some() {
            self.highest_modseq = None;
        } else if let Some(mut value) = response.code("MAILBOXID") {
            self.mailbox_id = mailbox_id(&mut value);
        } else if response.code("CLOSED").is_some() {
            // Earlier responses were about the folder that was open before.
            *self = Self::default();
        } else {
            return false;
        }
        true
    }
}

/// Parses `(F2212ea87-6097)`.
pub fn mailbox_id(value: &mut Lexer<'_>) -> Option<String> {
    object_id(value.parenthesized()?).map(str::to_owned)
}

/// Returns the content of the parentheses if it is an id (RFC 8474, section 7). Cyrus sends `(NIL)` for NIL.
pub fn object_id(mut value: Lexer<'_>) -> Option<&str> {
    let id = std::str::from_utf8(value.atom()?).ok().filter(|_| value.is_at_end())?;
    let is_id = id.len() <= 255 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    (is_id && !id.eq_ignore_ascii_case("NIL")).then_some(id)
}
