//! Opening a folder, to read only.

use super::answer::Answer;
use super::command::Command;
use super::error::{ImapError, Step};
use super::fetch::{Metadata, note_vanished};
use super::lex::Lexer;
use super::uid_set::Gathered;
use super::{Client, UidSet, WireName};

/// A folder as it was when it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Examined {
    pub exists: u32,
    /// Nothing where the server gives none, or 0.
    pub uid_validity: Option<u32>,
    pub uid_next: Option<u32>,
    /// Nothing where changes cannot be asked for.
    pub highest_modseq: Option<u64>,
    /// Stays the same when the folder is renamed (OBJECTID).
    pub mailbox_id: Option<String>,
    /// What [`Client::resync`] says is no more.
    pub vanished: UidSet,
}

impl Client {
    /// Opens a folder, without changing anything in it.
    pub async fn examine(&mut self, folder: &WireName) -> Result<Examined, ImapError> {
        let parameter = if self.capabilities.has_modseq() { " (CONDSTORE)" } else { "" };
        self.open(folder, parameter, |_| {}).await
    }

    /// Leaves the folder that is open; it was opened to read only, so nothing is expunged.
    pub async fn close(&mut self) -> Result<(), ImapError> {
        self.run(Step::Examine, Command::new("CLOSE"), |_| Ok(false)).await.map(drop)
    }

    /// Opens a folder and tells what has changed since: flags by `each`, disappearances in the result. If the
    /// UIDVALIDITY is another one now, the server says nothing of either. Only where [`Client::has_qresync`].
    pub async fn resync(
        &mut self,
        folder: &WireName,
        uid_validity: u32,
        modseq: u64,
        each: impl FnMut(&Metadata<'_>) + Send,
    ) -> Result<Examined, ImapError> {
        if !self.enabled.qresync {
            return Err(ImapError::Unsupported("the server does not tell what has disappeared"));
        }
        self.open(folder, &format!(" (QRESYNC ({uid_validity} {modseq}))"), each).await
    }

    async fn open(
        &mut self,
        folder: &WireName,
        parameter: &str,
        mut each: impl FnMut(&Metadata<'_>) + Send,
    ) -> Result<Examined, ImapError> {
        let name = folder.as_bytes();
        let command = Command::new("EXAMINE ").string(name, &self.capabilities, self.enabled.utf8).text(parameter);
        let mut found = Examined::default();
        let mut vanished = Gathered::new(self.settings.limits.ranges);
        self.run(Step::Examine, command, |answer| {
            if let Some(list) = answer.fetch() {
                let changed = Metadata::parse(list).filter(|changed| changed.known_uid().is_some());
                if let Some(changed) = &changed {
                    each(changed);
                }
                return Ok(changed.is_some());
            }
            Ok(found.note(answer) || note_vanished(answer, &mut vanished)?)
        })
        .await?;
        found.vanished = vanished.into_set();
        Ok(found)
    }
}

impl Examined {
    /// Whether the answer said something about the folder.
    fn note(&mut self, answer: &Answer<'_>) -> bool {
        if let Answer::Numbered(number, word, _) = answer
            && word.eq_ignore_ascii_case(b"EXISTS")
        {
            self.exists = *number;
        } else if let Some(mut value) = answer.code("UIDVALIDITY") {
            self.uid_validity = value.number32().filter(|number| *number > 0);
        } else if let Some(mut value) = answer.code("UIDNEXT") {
            self.uid_next = value.number32().filter(|number| *number > 0);
        } else if let Some(mut value) = answer.code("HIGHESTMODSEQ") {
            self.highest_modseq = value.number().filter(|number| *number > 0);
        } else if answer.code("NOMODSEQ").is_some() {
            self.highest_modseq = None;
        } else if let Some(mut value) = answer.code("MAILBOXID") {
            self.mailbox_id = mailbox_id(&mut value);
        } else if answer.code("CLOSED").is_some() {
            // What came before was about the folder that was open.
            *self = Self::default();
        } else {
            return false;
        }
        true
    }
}

/// `(F2212ea87-6097)`
pub fn mailbox_id(value: &mut Lexer<'_>) -> Option<String> {
    object_id(value.parenthesized()?).map(str::to_owned)
}

/// What is between the parentheses, if it is an id (RFC 8474, section 7). `(NIL)` is what Cyrus sends for NIL.
pub fn object_id(mut value: Lexer<'_>) -> Option<&str> {
    let id = std::str::from_utf8(value.atom()?).ok().filter(|_| value.is_at_end())?;
    let is_id = id.len() <= 255 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    (is_id && !id.eq_ignore_ascii_case("NIL")).then_some(id)
}
