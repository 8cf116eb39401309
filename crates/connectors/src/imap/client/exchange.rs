//! Commands and their answers: one after the other, or several under way.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::Client;
use super::answer::{Answer, Status};
use super::command::Command;
use super::error::{ImapError, Step};
use super::refusal::Refusal;

/// How many commands are under way at once. Enough that a server is never idle for want of the next; few enough that
/// they fit into the buffers of a socket while the server is busy answering.
pub const WINDOW: usize = 4;

/// Commands that were sent, in order, each with its number among all.
pub type Sent = VecDeque<(u32, usize)>;

impl Client {
    /// Starts a step. Until [`Client::finish`] the connection counts as broken, so that an error or a caller that goes
    /// away leaves nothing behind that a next command would take for its answers.
    pub(super) fn begin(&mut self, step: Step, limit: Duration) -> Result<(), ImapError> {
        if self.is_busy {
            return Err(ImapError::Broken);
        }
        self.is_busy = true;
        self.unasked = 0;
        self.wire.begin(step, Instant::now() + limit);
        Ok(())
    }

    pub(super) fn finish(&mut self) {
        self.is_busy = false;
        self.wire.most = self.settings.limits.answer;
    }

    /// One command. `each` is told of every answer, also of its end if that is an OK, and says whether it was asked for.
    pub(super) async fn run(
        &mut self,
        step: Step,
        command: Command,
        each: impl FnMut(&Answer<'_>) -> Result<bool, ImapError> + Send,
    ) -> Result<(), ImapError> {
        let mut refused = None;
        self.run_all(step, vec![command], each, |_, refusal| {
            refused = refusal;
            Ok(())
        })
        .await?;
        refused.map_or(Ok(()), |refusal| Err(ImapError::Refused(refusal)))
    }

    /// Several commands, some of them at once. `done` is told what became of each.
    pub(super) async fn run_all(
        &mut self,
        step: Step,
        commands: Vec<Command>,
        mut each: impl FnMut(&Answer<'_>) -> Result<bool, ImapError> + Send,
        mut done: impl FnMut(usize, Option<Refusal>) -> Result<(), ImapError> + Send,
    ) -> Result<(), ImapError> {
        self.begin(step, self.settings.deadlines.command)?;
        let mut waiting = commands.into_iter().enumerate().peekable();
        let mut sent = Sent::new();
        loop {
            while sent.len() < WINDOW
                && let Some((at, command)) = waiting.next_if(|(_, command)| sent.is_empty() || !command.has_pauses())
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
            let length = self.wire.answer().await?;
            let answer = parse(&self.wire.unread()[..length])?;
            let is_asked = each(&answer)?;
            match answer {
                Answer::Done(tag, status) => {
                    let at = ended(&mut sent, tag)?;
                    done(at, status.refusal(step))?;
                    // Each has its own time.
                    self.wire.begin(step, Instant::now() + self.settings.deadlines.command);
                }
                Answer::Status(status) => self.look_at(&status)?,
                _ => {}
            }
            self.wire.consume(length);
            self.count(is_asked)?;
        }
        self.finish();
        Ok(())
    }

    /// Sends a command, with what it takes to get its literals through. A refusal is one of the command's beginning.
    pub(super) async fn send(
        &mut self,
        command: &Command,
        at: usize,
        sent: &mut Sent,
    ) -> Result<Option<Refusal>, ImapError> {
        let tag = self.take_tag();
        sent.push_back((tag, at));
        for (number, piece) in command.pieces(tag).iter().enumerate() {
            if number > 0
                && let Some(refusal) = self.wait_until_asked(tag).await?
            {
                sent.retain(|(other, _)| *other != tag);
                return Ok(Some(refusal));
            }
            self.wire.send(piece.expose()).await?;
        }
        Ok(None)
    }

    async fn wait_until_asked(&mut self, tag: u32) -> Result<Option<Refusal>, ImapError> {
        loop {
            let length = self.wire.answer().await?;
            let answer = parse(&self.wire.unread()[..length])?;
            let outcome = match answer {
                Answer::Continue => Some(None),
                Answer::Done(done, status) if done == tag => match status.refusal(self.wire.step()) {
                    None => return Err(ImapError::Protocol("a command ended before all of it was sent")),
                    refusal => Some(refusal),
                },
                Answer::Done(..) => return Err(ImapError::Protocol("an end of a command that was not sent")),
                Answer::Status(status) => {
                    self.look_at(&status)?;
                    None
                }
                _ => None,
            };
            self.wire.consume(length);
            match outcome {
                Some(outcome) => return Ok(outcome),
                None => self.count(false)?,
            }
        }
    }

    pub(super) fn take_tag(&mut self) -> u32 {
        self.last_tag = self.last_tag.wrapping_add(1);
        self.last_tag
    }

    /// A server that says goodbye does not answer any more.
    pub(super) fn look_at(&self, status: &Status<'_>) -> Result<(), ImapError> {
        match status.refusal(self.wire.step()) {
            Some(refusal) if status.is_bye() => Err(ImapError::Bye(refusal)),
            _ => Ok(()),
        }
    }

    pub(super) fn count(&mut self, is_asked: bool) -> Result<(), ImapError> {
        self.unasked += usize::from(!is_asked);
        if self.unasked > self.settings.limits.unasked {
            return Err(ImapError::TooMuch("too many answers that nobody asked for"));
        }
        Ok(())
    }
}

pub fn parse(bytes: &[u8]) -> Result<Answer<'_>, ImapError> {
    Answer::parse(bytes).ok_or(ImapError::Protocol("an answer that is none"))
}

/// Which command it was.
pub fn ended(sent: &mut Sent, tag: u32) -> Result<usize, ImapError> {
    let position = sent.iter().position(|(other, _)| *other == tag);
    let found = position.and_then(|position| sent.remove(position));
    found.map(|(_, at)| at).ok_or(ImapError::Protocol("an end of a command that was not sent"))
}
