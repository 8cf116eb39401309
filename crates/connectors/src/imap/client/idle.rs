//! Waiting for news, and a sign of life.

use std::time::Duration;

use tokio::time::Instant;

use super::Client;
use super::answer::Answer;
use super::command::Command;
use super::error::{ImapError, Step};
use super::exchange::parse;

/// Servers log out who has been idle for 30 minutes.
const LONGEST: Duration = Duration::from_secs(29 * 60);

/// What has happened in the open folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct News {
    /// How many messages there are now, if the server said so.
    pub exists: Option<u32>,
    /// How often it told that messages are no more.
    pub expunged: u32,
    /// Of how many messages flags have changed.
    pub changed: u32,
}

impl News {
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    fn note(&mut self, answer: &Answer<'_>) -> bool {
        match answer {
            Answer::Numbered(number, word, _) if word.eq_ignore_ascii_case(b"EXISTS") => self.exists = Some(*number),
            Answer::Numbered(_, word, _) if word.eq_ignore_ascii_case(b"EXPUNGE") => self.expunged += 1,
            Answer::Data(word, _) if word.eq_ignore_ascii_case(b"VANISHED") => self.expunged += 1,
            answer if answer.fetch().is_some() => self.changed += 1,
            _ => return false,
        }
        true
    }
}

impl Client {
    /// What has happened in the open folder since the last command.
    pub async fn noop(&mut self) -> Result<News, ImapError> {
        let mut news = News::default();
        self.run(Step::Noop, Command::new("NOOP"), |answer| {
            news.note(answer);
            Ok(false)
        })
        .await?;
        Ok(news)
    }

    /// Waits until something happens in the open folder, but no longer than so. The first piece of news ends it.
    pub async fn idle(&mut self, at_most: Duration) -> Result<News, ImapError> {
        if !self.capabilities.has("IDLE") {
            return Err(ImapError::Unsupported("the server does not offer IDLE"));
        }
        self.begin(Step::Idle, self.settings.deadlines.command)?;
        let tag = self.take_tag();
        self.wire.send(format!("A{tag} IDLE\r\n").as_bytes()).await?;
        let mut news = News::default();
        while !self.take_one(tag, &mut news).await?.is_asked_for_more {}
        let until = Instant::now() + at_most.min(LONGEST);
        while news.is_nothing() && self.is_anything_there(until).await? {
            self.wire.begin(Step::Idle, Instant::now() + self.settings.deadlines.command);
            if self.take_one(tag, &mut news).await?.is_over {
                // It had enough of it, and has said so properly.
                self.finish();
                return Ok(news);
            }
        }
        self.wire.begin(Step::Idle, Instant::now() + self.settings.deadlines.command);
        self.wire.send(b"DONE\r\n").await?;
        while !self.take_one(tag, &mut news).await?.is_over {}
        self.finish();
        Ok(news)
    }

    /// Waits for the beginning of an answer until then; no answer is no fault.
    async fn is_anything_there(&mut self, until: Instant) -> Result<bool, ImapError> {
        while !self.wire.unread().contains(&b'\n') {
            if self.wire.unread().len() > self.wire.most {
                return Err(ImapError::TooMuch("a line of an answer is too long"));
            }
            match self.wire.fill_until(until).await {
                Err(ImapError::Timeout(_)) => return Ok(false),
                filled => filled?,
            }
        }
        Ok(true)
    }

    async fn take_one(&mut self, tag: u32, news: &mut News) -> Result<Taken, ImapError> {
        let length = self.wire.answer().await?;
        let answer = parse(&self.wire.unread()[..length])?;
        let mut taken = Taken::default();
        news.note(&answer);
        match answer {
            Answer::Continue => taken.is_asked_for_more = true,
            Answer::Done(done, status) if done == tag => {
                if let Some(refusal) = status.refusal(Step::Idle) {
                    self.wire.consume(length);
                    self.finish();
                    return Err(ImapError::Refused(refusal));
                }
                taken.is_over = true;
            }
            Answer::Done(..) => return Err(ImapError::Protocol("an end of a command that was not sent")),
            Answer::Status(status) => self.look_at(&status)?,
            Answer::Numbered(..) | Answer::Data(..) => {}
        }
        self.wire.consume(length);
        self.count(false)?;
        Ok(taken)
    }
}

#[derive(Debug, Default)]
struct Taken {
    is_asked_for_more: bool,
    is_over: bool,
}
