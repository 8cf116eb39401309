//! Waits for updates of the open folder (IDLE), and checks the connection (NOOP).

use std::time::Duration;

use tokio::time::Instant;

use super::Client;
use super::command::Command;
use super::error::{ImapError, Step};
use super::exchange::parse;
use super::response::ServerResponse;

/// Servers disconnect clients that are idle for 30 minutes.
const MAX_IDLE_DURATION: Duration = Duration::from_secs(29 * 60);

/// Untagged updates of the open folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FolderUpdates {
    /// EXISTS: how many messages there are now, if the server has sent it.
    pub exists: Option<u32>,
    /// Number of EXPUNGE and VANISHED responses.
    pub expunged: u32,
    /// Number of FETCH responses, which report changed flags.
    pub changed: u32,
}

impl FolderUpdates {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn note(&mut self, response: &ServerResponse<'_>) -> bool {
        match response {
            ServerResponse::Numbered(number, word, _) if word.eq_ignore_ascii_case(b"EXISTS") => {
                self.exists = Some(*number);
            }
            ServerResponse::Numbered(_, word, _) if word.eq_ignore_ascii_case(b"EXPUNGE") => self.expunged += 1,
            ServerResponse::Data(word, _) if word.eq_ignore_ascii_case(b"VANISHED") => self.expunged += 1,
            response if response.fetch().is_some() => self.changed += 1,
            _ => return false,
        }
        true
    }
}

impl Client {
    /// Returns the updates of the open folder since the last command.
    pub async fn noop(&mut self) -> Result<FolderUpdates, ImapError> {
        let mut updates = FolderUpdates::default();
        self.run(Step::Noop, Command::new("NOOP"), |response| {
            updates.note(response);
            Ok(false)
        })
        .await?;
        Ok(updates)
    }

    /// Waits for the first update of the open folder, at most for `at_most`.
    pub async fn idle(&mut self, at_most: Duration) -> Result<FolderUpdates, ImapError> {
        if !self.capabilities.has("IDLE") {
            return Err(ImapError::Unsupported("the server does not offer IDLE"));
        }
        self.begin(Step::Idle, self.settings.timeouts.command)?;
        let tag = self.next_tag();
        self.wire.send(format!("A{tag} IDLE\r\n").as_bytes()).await?;
        let mut updates = FolderUpdates::default();
        while !self.read_update(tag, &mut updates).await?.is_idling {}
        let until = Instant::now() + at_most.min(MAX_IDLE_DURATION);
        while updates.is_empty() && self.wait_for_line(until).await? {
            self.wire.begin(Step::Idle, Instant::now() + self.settings.timeouts.command);
            if self.read_update(tag, &mut updates).await?.is_completed {
                // The server has ended the IDLE command properly.
                self.finish();
                return Ok(updates);
            }
        }
        self.wire.begin(Step::Idle, Instant::now() + self.settings.timeouts.command);
        self.wire.send(b"DONE\r\n").await?;
        while !self.read_update(tag, &mut updates).await?.is_completed {}
        self.finish();
        Ok(updates)
    }

    /// Waits for a line until then. Returns `false` if none has arrived, which is not an error.
    async fn wait_for_line(&mut self, until: Instant) -> Result<bool, ImapError> {
        while !self.wire.unread().contains(&b'\n') {
            if self.wire.unread().len() > self.wire.max_response_bytes {
                return Err(ImapError::LimitExceeded("a line of a response is too long"));
            }
            match self.wire.fill_until(until).await {
                Err(ImapError::Timeout(_)) => return Ok(false),
                filled => filled?,
            }
        }
        Ok(true)
    }

    async fn read_update(&mut self, tag: u32, updates: &mut FolderUpdates) -> Result<IdleProgress, ImapError> {
        let length = self.wire.read_response().await?;
        let response = parse(&self.wire.unread()[..length])?;
        let mut taken = IdleProgress::default();
        updates.note(&response);
        match response {
            ServerResponse::Continuation => taken.is_idling = true,
            ServerResponse::Tagged(done, status) if done == tag => {
                if let Some(refusal) = status.refusal(Step::Idle) {
                    self.wire.consume(length);
                    self.finish();
                    return Err(ImapError::Refused(refusal));
                }
                taken.is_completed = true;
            }
            ServerResponse::Tagged(..) => return Err(ImapError::Protocol("a tagged response answers no command")),
            ServerResponse::Status(status) => self.check_bye(&status)?,
            ServerResponse::Numbered(..) | ServerResponse::Data(..) => {}
        }
        self.wire.consume(length);
        self.count_unsolicited(false)?;
        Ok(taken)
    }
}

#[derive(Debug, Default)]
struct IdleProgress {
    is_idling: bool,
    is_completed: bool,
}
