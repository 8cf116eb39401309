//! Sends commands and reads their responses, one at a time or pipelined.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::Client;
use super::command::Command;
use super::error::{ImapError, Step};
use super::refusal::Refusal;
use super::response::{ServerResponse, StatusResponse};

/// Commands in flight at once: enough that the server is never idle, and few enough that they fit into the socket's buffers
/// while the server is busy answering.
pub const MAX_PIPELINED_COMMANDS: usize = 4;

/// Sent commands in order: the tag of each and its index in the call.
pub type InFlightCommands = VecDeque<(u32, usize)>;

impl Client {
    /// Starts a step. Until [`Client::finish`] the connection counts as broken, so that after an error or a cancelled call
    /// no later command can take leftover responses for its own.
    pub(super) fn begin(&mut self, step: Step, limit: Duration) -> Result<(), ImapError> {
        if self.is_busy {
            return Err(ImapError::Broken);
        }
        self.is_busy = true;
        self.unsolicited = 0;
        self.wire.begin(step, Instant::now() + limit);
        Ok(())
    }

    pub(super) fn finish(&mut self) {
        self.is_busy = false;
        self.wire.max_response_bytes = self.settings.limits.response_bytes;
    }

    /// Runs one command. `each` receives every response, also the completion, and returns whether it was solicited.
    pub(super) async fn run(
        &mut self,
        step: Step,
        command: Command,
        each: impl FnMut(&ServerResponse<'_>) -> Result<bool, ImapError> + Send,
    ) -> Result<(), ImapError> {
        let mut refused = None;
        self.run_pipelined(step, vec![command], each, |_, refusal| {
            refused = refusal;
            Ok(())
        })
        .await?;
        refused.map_or(Ok(()), |refusal| Err(ImapError::Refused(refusal)))
    }

    /// Runs several commands, pipelined. `done` receives the index of each completed command, and its refusal if it has
    /// one.
    pub(super) async fn run_pipelined(
        &mut self,
        step: Step,
        commands: Vec<Command>,
        mut each: impl FnMut(&ServerResponse<'_>) -> Result<bool, ImapError> + Send,
        mut done: impl FnMut(usize, Option<Refusal>) -> Result<(), ImapError> + Send,
    ) -> Result<(), ImapError> {
        self.begin(step, self.settings.timeouts.command)?;
        let mut waiting = commands.into_iter().enumerate().peekable();
        let mut sent = InFlightCommands::new();
        loop {
            while sent.len() < MAX_PIPELINED_COMMANDS
                && let Some((at, command)) =
                    waiting.next_if(|(_, command)| sent.is_empty() || !command.has_synchronizing_literal())
            {
                if let Some(refusal) = self.send(&command, at, &mut sent).await? {
                    done(at, Some(refusal))?;
                }
            }
            if sent.is_empty() && waiting.peek().is_none() {
                break;
            }
            if sent.is_empty() {
                continue;
            }
            let length = self.wire.read_response().await?;
            let response = parse(&self.wire.unread()[..length])?;
            let is_solicited = each(&response)?;
            match response {
                ServerResponse::Tagged(tag, status) => {
                    let at = take_completed(&mut sent, tag)?;
                    done(at, status.refusal(step))?;
                    // Each command has its own deadline.
                    self.wire.begin(step, Instant::now() + self.settings.timeouts.command);
                }
                ServerResponse::Status(status) => self.check_bye(&status)?,
                _ => {}
            }
            self.wire.consume(length);
            self.count_unsolicited(is_solicited)?;
        }
        self.finish();
        Ok(())
    }

    /// Sends a command, waiting for continuation requests before its literals. Returns the refusal if the server rejects
    /// a literal.
    pub(super) async fn send(
        &mut self,
        command: &Command,
        at: usize,
        sent: &mut InFlightCommands,
    ) -> Result<Option<Refusal>, ImapError> {
        let tag = self.next_tag();
        sent.push_back((tag, at));
        for (number, piece) in command.pieces(tag).iter().enumerate() {
            if number > 0
                && let Some(refusal) = self.wait_for_continuation(tag).await?
            {
                sent.retain(|(other, _)| *other != tag);
                return Ok(Some(refusal));
            }
            self.wire.send(piece.expose()).await?;
        }
        Ok(None)
    }

    async fn wait_for_continuation(&mut self, tag: u32) -> Result<Option<Refusal>, ImapError> {
        loop {
            let length = self.wire.read_response().await?;
            let response = parse(&self.wire.unread()[..length])?;
            let outcome = match response {
                ServerResponse::Continuation => Some(None),
                ServerResponse::Tagged(done, status) if done == tag => match status.refusal(self.wire.step()) {
                    None => return Err(ImapError::Protocol("a command was completed before its literal was sent")),
                    refusal => Some(refusal),
                },
                ServerResponse::Tagged(..) => return Err(ImapError::Protocol("a tagged response answers no command")),
                ServerResponse::Status(status) => {
                    self.check_bye(&status)?;
                    None
                }
                _ => None,
            };
            self.wire.consume(length);
            match outcome {
                Some(outcome) => return Ok(outcome),
                None => self.count_unsolicited(false)?,
            }
        }
    }

    pub(super) fn next_tag(&mut self) -> u32 {
        self.last_tag = self.last_tag.wrapping_add(1);
        self.last_tag
    }

    /// Fails if the status is a BYE, after which the server does not respond.
    pub(super) fn check_bye(&self, status: &StatusResponse<'_>) -> Result<(), ImapError> {
        match status.refusal(self.wire.step()) {
            Some(refusal) if status.is_bye() => Err(ImapError::Bye(refusal)),
            _ => Ok(()),
        }
    }

    /// Counts unsolicited responses and fails if there are too many.
    pub(super) fn count_unsolicited(&mut self, is_solicited: bool) -> Result<(), ImapError> {
        self.unsolicited += usize::from(!is_solicited);
        if self.unsolicited > self.settings.limits.unsolicited {
            return Err(ImapError::LimitExceeded("too many unsolicited responses"));
        }
        Ok(())
    }
}

pub fn parse(bytes: &[u8]) -> Result<ServerResponse<'_>, ImapError> {
    ServerResponse::parse(bytes).ok_or(ImapError::Protocol("a line is not an IMAP response"))
}

/// Removes the command with this tag and returns its index.
pub fn take_completed(sent: &mut InFlightCommands, tag: u32) -> Result<usize, ImapError> {
    let position = sent.iter().position(|(other, _)| *other == tag);
    let found = position.and_then(|position| sent.remove(position));
    found.map(|(_, at)| at).ok_or(ImapError::Protocol("a tagged response answers no command"))
}
