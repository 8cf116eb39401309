//! Fetches the bytes of messages (`BODY.PEEK[]`) and passes them on as they arrive.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use tokio::time::Instant;

use super::command::Command;
use super::error::{ImapError, Step};
use super::exchange::{InFlightCommands, MAX_PIPELINED_COMMANDS, parse, take_completed};
use super::fetch::{FetchedBody, Metadata};
use super::lex::literal_length;
use super::refusal::{Refusal, RefusalClass, RefusalKind};
use super::response::ServerResponse;
use super::{Client, UidSet};

/// The longest literal that is skipped; a longer one ends the connection.
const MAX_SKIPPED_LITERAL_BYTES: u64 = 1 << 30;

/// A call for more messages is a mistake of the caller.
const MAX_MESSAGES_PER_CALL: u64 = 1_000_000;

/// Receives messages as they arrive: each begins, is written and ends, or it fails, begun or not. It ends only when it is
/// known to be complete. An error of the sink fails the message and ends the call.
pub trait BodySink: Send {
    fn begin(&mut self, uid: u32, length: u64);
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn end(&mut self) -> io::Result<()>;
    fn fail(&mut self, uid: u32, fault: BodyFault);
}

/// Why one message was not fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyFault {
    /// It no longer exists.
    Missing,
    /// It exists, but the server has no bytes of it (NIL).
    Empty,
    /// It has more bytes than the limit.
    TooLarge(u64),
    /// The server refuses this one alone.
    Refused(Refusal),
    /// It began and did not end; the call fails with the reason.
    Cut,
}

/// State of a call.
struct BodyFetch<'a> {
    sink: &'a mut dyn BodySink,
    /// Requested UIDs without a response yet, with the index of their command.
    pending: BTreeMap<u32, usize>,
    /// UIDs that are requested once more, each by itself.
    retry_alone: Vec<u32>,
}

impl Client {
    /// Fetches messages of the open folder with a command for each set, pipelined. Sets of about a hundred keep the server
    /// busy. The sink receives each message or its failure; if the call fails, that remains valid, and nothing is known of
    /// the other messages.
    ///
    /// A message that a server refuses together with others is requested by itself, and so is a long one of a server that
    /// sends its UID only after it. (A short one, up to `limits.buffered_message_bytes`, is buffered until the UID arrives.)
    pub async fn fetch_bodies(&mut self, sets: &[UidSet], sink: &mut dyn BodySink) -> Result<(), ImapError> {
        if sets.iter().map(UidSet::len).sum::<u64>() > MAX_MESSAGES_PER_CALL {
            return Err(ImapError::LimitExceeded("too many messages are requested at once"));
        }
        let mut fetching = BodyFetch { sink, pending: BTreeMap::new(), retry_alone: Vec::new() };
        let sets = sets.iter().flat_map(UidSet::chunks).collect();
        self.fetch_sets(sets, MAX_PIPELINED_COMMANDS, &mut fetching).await?;
        let retry_alone = std::mem::take(&mut fetching.retry_alone);
        if retry_alone.is_empty() {
            return Ok(());
        }
        let singles = retry_alone.into_iter().map(|uid| UidSet::range(uid, uid)).collect();
        self.fetch_sets(singles, 1, &mut fetching).await
    }

    async fn fetch_sets(
        &mut self,
        sets: VecDeque<UidSet>,
        window: usize,
        fetching: &mut BodyFetch<'_>,
    ) -> Result<(), ImapError> {
        self.begin(Step::Fetch, self.settings.timeouts.stream)?;
        let mut waiting = sets.iter().enumerate();
        let (mut sent, mut failure) = (InFlightCommands::new(), None);
        loop {
            while sent.len() < window
                && failure.is_none()
                && let Some((index, set)) = waiting.next()
            {
                fetching.pending.extend(set.iter().map(|uid| (uid, index)));
                self.send(&Command::new(&format!("UID FETCH {set} (UID BODY.PEEK[])")), index, &mut sent).await?;
            }
            if sent.is_empty() {
                break;
            }
            let only = if sent.len() == 1 { sets[sent[0].1].only() } else { None };
            let end = self.wire.read_line(0).await?;
            if parse(&self.wire.unread()[..end])?.fetch().is_some() {
                let is_solicited = self.take_fetch(end, only, fetching).await?;
                self.count_unsolicited(is_solicited)?;
                continue;
            }
            let length = self.wire.read_response().await?;
            match parse(&self.wire.unread()[..length])? {
                ServerResponse::Tagged(tag, status) => {
                    let index = take_completed(&mut sent, tag)?;
                    let refusal = status.refusal(Step::Fetch);
                    failure = failure.or(fetching.finish_command(index, &sets[index], refusal));
                    self.wire.begin(Step::Fetch, Instant::now() + self.settings.timeouts.stream);
                }
                ServerResponse::Status(status) => self.check_bye(&status)?,
                _ => {}
            }
            self.wire.consume(length);
            self.count_unsolicited(false)?;
        }
        self.finish();
        failure.map_or(Ok(()), |refusal| Err(ImapError::Refused(refusal)))
    }

    /// Reads a FETCH response whose first line has arrived. `only` is the message that it must be for, if there is only
    /// one. Returns whether it was requested.
    async fn take_fetch(
        &mut self,
        first: usize,
        only: Option<u32>,
        fetching: &mut BodyFetch<'_>,
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
                    (None, _) => self.buffer_body(length, fetching).await,
                };
            }
            // The literal of another item.
            from = end.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
            self.wire.read_at_least(from).await?;
            end = self.wire.read_line(from).await?;
        }
        let items = parse(&self.wire.unread()[..end])?.fetch();
        let found = items.and_then(Metadata::parse).ok_or(ImapError::Protocol("a FETCH response is malformed"))?;
        let is_solicited = fetching.take_whole(&found)?;
        self.wire.consume(end);
        Ok(is_solicited)
    }

    /// Passes the literal on to the sink as it arrives: the usual case.
    async fn stream_body(&mut self, uid: u32, length: u64, fetching: &mut BodyFetch<'_>) -> Result<bool, ImapError> {
        fetching.pending.remove(&uid);
        if length > self.settings.limits.message_bytes {
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
            let bytes = self.wire.read_some(left).await?;
            let count = bytes.len();
            sink.write(bytes).map_err(ImapError::Sink)?;
            self.wire.consume(count);
            left -= count as u64;
        }
        // If the announced length was wrong, the rest does not parse, and the message is not complete.
        if self.rest_of_fetch().await?.is_some_and(|other| other != uid) {
            return Err(ImapError::Protocol("a FETCH response is for another message"));
        }
        sink.end().map_err(ImapError::Sink)
    }

    /// Buffers a message whose UID is not known yet.
    async fn buffer_body(&mut self, length: u64, fetching: &mut BodyFetch<'_>) -> Result<bool, ImapError> {
        if length > self.settings.limits.buffered_message_bytes as u64 {
            let uid = self.skip_body(length).await?;
            let is_solicited = uid.is_some_and(|uid| fetching.pending.remove(&uid).is_some());
            fetching.retry_alone.extend(uid.filter(|_| is_solicited));
            return Ok(is_solicited);
        }
        let (mut held, mut left) = (Vec::new(), length);
        while left > 0 {
            let bytes = self.wire.read_some(left).await?;
            let count = bytes.len();
            held.extend_from_slice(bytes);
            self.wire.consume(count);
            left -= count as u64;
        }
        let uid = self.rest_of_fetch().await?;
        let Some(uid) = uid.filter(|uid| fetching.pending.remove(uid).is_some()) else { return Ok(false) };
        fetching.write_whole(uid, &held)?;
        Ok(true)
    }

    /// Skips a literal and the rest of its response. Returns the UID if it is in the rest.
    async fn skip_body(&mut self, length: u64) -> Result<Option<u32>, ImapError> {
        if length > MAX_SKIPPED_LITERAL_BYTES {
            return Err(ImapError::LimitExceeded("a message is too long to be skipped"));
        }
        let mut left = length;
        while left > 0 {
            let count = self.wire.read_some(left).await?.len();
            self.wire.consume(count);
            left -= count as u64;
        }
        self.rest_of_fetch().await
    }

    /// Reads the items after the message in its FETCH response. Returns the UID if it is among them.
    async fn rest_of_fetch(&mut self) -> Result<Option<u32>, ImapError> {
        let end = self.wire.read_line(0).await?;
        let end = self.wire.read_literals(end).await?;
        let rest = super::lex::without_line_end(&self.wire.unread()[..end]);
        let found = Metadata::parse_rest(super::lex::Lexer::new(rest));
        let uid = found.ok_or(ImapError::Protocol("a message is not as long as announced"))?.known_uid();
        self.wire.consume(end);
        Ok(uid)
    }
}

impl BodyFetch<'_> {
    /// Takes a FETCH response without a literal. Returns whether it was requested.
    fn take_whole(&mut self, found: &Metadata<'_>) -> Result<bool, ImapError> {
        let Some(uid) = found.known_uid().filter(|uid| self.pending.contains_key(uid)) else { return Ok(false) };
        match &found.body {
            // An unsolicited update of flags.
            FetchedBody::Absent | FetchedBody::Follows => return Ok(false),
            FetchedBody::Nil => self.sink.fail(uid, BodyFault::Empty),
            FetchedBody::Text(text) => self.write_whole(uid, text)?,
        }
        self.pending.remove(&uid);
        Ok(true)
    }

    fn write_whole(&mut self, uid: u32, bytes: &[u8]) -> Result<(), ImapError> {
        self.sink.begin(uid, bytes.len() as u64);
        let taken = self.sink.write(bytes).and_then(|()| self.sink.end());
        taken.map_err(|error| {
            self.sink.fail(uid, BodyFault::Cut);
            ImapError::Sink(error)
        })
    }

    /// Settles the messages that a completed command did not send. Returns a refusal that fails the whole call.
    fn finish_command(&mut self, index: usize, set: &UidSet, refusal: Option<Refusal>) -> Option<Refusal> {
        let left: Vec<u32> = self.pending.iter().filter(|(_, of)| **of == index).map(|(uid, _)| *uid).collect();
        self.pending.retain(|_, of| *of != index);
        let refusal = refusal.filter(|refusal| refusal.code != Some("EXPUNGEISSUED"));
        let Some(refusal) = refusal else {
            left.into_iter().for_each(|uid| self.sink.fail(uid, BodyFault::Missing));
            return None;
        };
        // Some servers refuse all messages because of one that they cannot read.
        if refusal.kind != RefusalKind::No || refusal.class != RefusalClass::Fault {
            return Some(refusal);
        }
        match set.only() {
            Some(_) => left.into_iter().for_each(|uid| self.sink.fail(uid, BodyFault::Refused(refusal.clone()))),
            None => self.retry_alone.extend(left),
        }
        None
    }
}
