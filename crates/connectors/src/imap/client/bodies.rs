//! The bytes of messages, handed on as they arrive.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use tokio::time::Instant;

use super::answer::Answer;
use super::command::Command;
use super::error::{ImapError, Step};
use super::exchange::{Sent, WINDOW, ended, parse};
use super::fetch::{Body, Metadata};
use super::lex::literal_length;
use super::refusal::{Class, Kind, Refusal};
use super::{Client, UidSet};

/// A longer literal is not even skipped.
const LONGEST_SKIPPED: u64 = 1 << 30;

/// Whoever asks for more messages at once asks wrongly.
const MOST: u64 = 1_000_000;

/// Takes messages as they come: each begins, is written, and ends; or it fails, begun or not. It ends only when it is
/// known to be whole. An error of the sink fails the message and ends the call.
pub trait BodySink: Send {
    fn begin(&mut self, uid: u32, length: u64);
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn end(&mut self) -> io::Result<()>;
    fn fail(&mut self, uid: u32, fault: BodyFault);
}

/// Why one message did not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyFault {
    /// It is not there any more.
    Missing,
    /// It is there, and the server has no bytes of it.
    Empty,
    /// Longer than we take.
    TooLarge(u64),
    /// The server refuses this one alone.
    Refused(Refusal),
    /// Begun and not ended; the call fails with the reason.
    Cut,
}

/// What a call is about.
struct Fetching<'a> {
    sink: &'a mut dyn BodySink,
    /// Asked for and not yet heard of, with the number of the command.
    pending: BTreeMap<u32, usize>,
    /// To be asked for once more, each by itself.
    again: Vec<u32>,
}

impl Client {
    /// Fetches messages of the open folder, a command for each set and several of them under way at once. Sets of about
    /// a hundred keep the server busy. What became of each message is told to the sink; when the call fails, what the
    /// sink was told still holds, and of the others nothing is known.
    ///
    /// A message that a server refuses together with others is asked for by itself, and so is a long one of a server that
    /// tells its UID only behind it. (A short one, up to `limits.held`, is kept in memory until the UID comes.)
    pub async fn fetch_bodies(&mut self, sets: &[UidSet], sink: &mut dyn BodySink) -> Result<(), ImapError> {
        if sets.iter().map(UidSet::len).sum::<u64>() > MOST {
            return Err(ImapError::TooMuch("too many messages asked for at once"));
        }
        let mut fetching = Fetching { sink, pending: BTreeMap::new(), again: Vec::new() };
        let sets = sets.iter().flat_map(UidSet::chunks).collect();
        self.fetch_sets(sets, WINDOW, &mut fetching).await?;
        let again = std::mem::take(&mut fetching.again);
        if again.is_empty() {
            return Ok(());
        }
        let singles = again.into_iter().map(|uid| UidSet::range(uid, uid)).collect();
        self.fetch_sets(singles, 1, &mut fetching).await
    }

    async fn fetch_sets(
        &mut self,
        sets: VecDeque<UidSet>,
        window: usize,
        fetching: &mut Fetching<'_>,
    ) -> Result<(), ImapError> {
        self.begin(Step::Fetch, self.settings.deadlines.stream)?;
        let mut waiting = sets.iter().enumerate();
        let (mut sent, mut failure) = (Sent::new(), None);
        loop {
            while sent.len() < window
                && failure.is_none()
                && let Some((at, set)) = waiting.next()
            {
                fetching.pending.extend(set.iter().map(|uid| (uid, at)));
                self.send(&Command::new(&format!("UID FETCH {set} (UID BODY.PEEK[])")), at, &mut sent).await?;
            }
            if sent.is_empty() {
                break;
            }
            let only = if sent.len() == 1 { sets[sent[0].1].only() } else { None };
            let end = self.wire.line(0).await?;
            if parse(&self.wire.unread()[..end])?.fetch().is_some() {
                let is_asked = self.take_fetch(end, only, fetching).await?;
                self.count(is_asked)?;
                continue;
            }
            let length = self.wire.answer().await?;
            match parse(&self.wire.unread()[..length])? {
                Answer::Done(tag, status) => {
                    let at = ended(&mut sent, tag)?;
                    let refusal = status.refusal(Step::Fetch);
                    failure = failure.or(fetching.conclude(at, &sets[at], refusal));
                    self.wire.begin(Step::Fetch, Instant::now() + self.settings.deadlines.stream);
                }
                Answer::Status(status) => self.look_at(&status)?,
                _ => {}
            }
            self.wire.consume(length);
            self.count(false)?;
        }
        self.finish();
        failure.map_or(Ok(()), |refusal| Err(ImapError::Refused(refusal)))
    }

    /// A FETCH whose first line has been read. `only` is the one message that it can be about. Whether it was asked for.
    async fn take_fetch(
        &mut self,
        first: usize,
        only: Option<u32>,
        fetching: &mut Fetching<'_>,
    ) -> Result<bool, ImapError> {
        let (mut from, mut end) = (0, first);
        while let Some(length) = literal_length(&self.wire.unread()[from..end]) {
            let items = parse(&self.wire.unread()[..end])?.fetch();
            if let Some(found) = items.and_then(Metadata::parse_up_to_body) {
                let uid = found.known_uid();
                self.wire.consume(end);
                return match (uid, only) {
                    (Some(uid), _) if !fetching.pending.contains_key(&uid) => {
                        self.skip_body(length).await.map(|_| false)
                    }
                    (Some(uid), _) => self.stream_body(uid, length, fetching).await,
                    (None, Some(uid)) if fetching.pending.contains_key(&uid) => {
                        self.stream_body(uid, length, fetching).await
                    }
                    (None, _) => self.hold_body(length, fetching).await,
                };
            }
            // A literal of some other item.
            from = end.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
            self.wire.need(from).await?;
            end = self.wire.line(from).await?;
        }
        let items = parse(&self.wire.unread()[..end])?.fetch();
        let found = items.and_then(Metadata::parse).ok_or(ImapError::Protocol("a FETCH that makes no sense"))?;
        let is_asked = fetching.take_whole(&found)?;
        self.wire.consume(end);
        Ok(is_asked)
    }

    /// The usual case: the literal goes to the sink as it comes.
    async fn stream_body(&mut self, uid: u32, length: u64, fetching: &mut Fetching<'_>) -> Result<bool, ImapError> {
        fetching.pending.remove(&uid);
        if length > self.settings.limits.message {
            fetching.sink.fail(uid, BodyFault::TooLarge(length));
            self.skip_body(length).await?;
            return Ok(true);
        }
        fetching.sink.begin(uid, length);
        match self.copy_body(uid, length, fetching.sink).await {
            Ok(()) => Ok(true),
            Err(error) => {
                fetching.sink.fail(uid, BodyFault::Cut);
                Err(error)
            }
        }
    }

    async fn copy_body(&mut self, uid: u32, length: u64, sink: &mut dyn BodySink) -> Result<(), ImapError> {
        let mut left = length;
        while left > 0 {
            let bytes = self.wire.some(left).await?;
            let count = bytes.len();
            sink.write(bytes).map_err(ImapError::Sink)?;
            self.wire.consume(count);
            left -= count as u64;
        }
        // Where the length was a lie, the answer does not go on as one does, and the message is not whole.
        if self.rest_of_fetch().await?.is_some_and(|other| other != uid) {
            return Err(ImapError::Protocol("a message that was not asked for"));
        }
        sink.end().map_err(ImapError::Sink)
    }

    /// A message of which we do not know yet which it is.
    async fn hold_body(&mut self, length: u64, fetching: &mut Fetching<'_>) -> Result<bool, ImapError> {
        if length > self.settings.limits.held as u64 {
            let uid = self.skip_body(length).await?;
            let is_asked = uid.is_some_and(|uid| fetching.pending.remove(&uid).is_some());
            fetching.again.extend(uid.filter(|_| is_asked));
            return Ok(is_asked);
        }
        let (mut held, mut left) = (Vec::new(), length);
        while left > 0 {
            let bytes = self.wire.some(left).await?;
            let count = bytes.len();
            held.extend_from_slice(bytes);
            self.wire.consume(count);
            left -= count as u64;
        }
        let uid = self.rest_of_fetch().await?;
        let Some(uid) = uid.filter(|uid| fetching.pending.remove(uid).is_some()) else { return Ok(false) };
        fetching.hand_over(uid, &held)?;
        Ok(true)
    }

    /// Reads past a literal and what follows it; the UID, if it is there.
    async fn skip_body(&mut self, length: u64) -> Result<Option<u32>, ImapError> {
        if length > LONGEST_SKIPPED {
            return Err(ImapError::TooMuch("a message is too long to be skipped"));
        }
        let mut left = length;
        while left > 0 {
            let count = self.wire.some(left).await?.len();
            self.wire.consume(count);
            left -= count as u64;
        }
        self.rest_of_fetch().await
    }

    /// What follows the message in its FETCH; the UID, if it is there.
    async fn rest_of_fetch(&mut self) -> Result<Option<u32>, ImapError> {
        let end = self.wire.line(0).await?;
        let end = self.wire.literals(end).await?;
        let rest = super::lex::without_line_end(&self.wire.unread()[..end]);
        let found = Metadata::parse_rest(super::lex::Lexer::new(rest));
        let uid = found.ok_or(ImapError::Protocol("a message that is not as long as announced"))?.known_uid();
        self.wire.consume(end);
        Ok(uid)
    }
}

impl Fetching<'_> {
    /// A FETCH without a literal.
    fn take_whole(&mut self, found: &Metadata<'_>) -> Result<bool, ImapError> {
        let Some(uid) = found.known_uid().filter(|uid| self.pending.contains_key(uid)) else { return Ok(false) };
        match &found.body {
            // News of flags.
            Body::Absent | Body::Follows => return Ok(false),
            Body::Nil => self.sink.fail(uid, BodyFault::Empty),
            Body::Text(text) => self.hand_over(uid, text)?,
        }
        self.pending.remove(&uid);
        Ok(true)
    }

    fn hand_over(&mut self, uid: u32, bytes: &[u8]) -> Result<(), ImapError> {
        self.sink.begin(uid, bytes.len() as u64);
        let taken = self.sink.write(bytes).and_then(|()| self.sink.end());
        taken.map_err(|error| {
            self.sink.fail(uid, BodyFault::Cut);
            ImapError::Sink(error)
        })
    }

    /// The end of a command: what it did not bring. A refusal is one of the whole call.
    fn conclude(&mut self, at: usize, set: &UidSet, refusal: Option<Refusal>) -> Option<Refusal> {
        let left: Vec<u32> = self.pending.iter().filter(|(_, of)| **of == at).map(|(uid, _)| *uid).collect();
        self.pending.retain(|_, of| *of != at);
        let refusal = refusal.filter(|refusal| refusal.code != Some("EXPUNGEISSUED"));
        let Some(refusal) = refusal else {
            left.into_iter().for_each(|uid| self.sink.fail(uid, BodyFault::Missing));
            return None;
        };
        // Some servers refuse all because of one that they cannot read.
        if refusal.kind != Kind::No || refusal.class != Class::Fault {
            return Some(refusal);
        }
        match set.only() {
            Some(_) => left.into_iter().for_each(|uid| self.sink.fail(uid, BodyFault::Refused(refusal.clone()))),
            None => self.again.extend(left),
        }
        None
    }
}
