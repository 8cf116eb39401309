//! Messages of one mailbox are fetched and become emails: a batch, one commit.

use std::collections::BTreeMap;
use std::time::Duration;

use content::spool::{Draft, Spool};
use domain::connector::{Answer, Facts, Seen, Sink, Wanted};
use domain::{Clock, ConnectorError, Lane, MailboxId, MailboxState, Provider};
use jobs::{Held, Job, JobError, Kind, Pool, Verdict, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::{NewJob, When};
use store::sql::mailboxes::Mailbox;
use store::sql::sync::{MESSAGES_TOLD, Queued};
use store::{StoreError, TenantStore, TenantUnit};

use super::list::PATIENT;
use super::place::{Came, Placed, Places};
use super::room::{PART, Room};
use super::{Opened, Syncer, job_error, states};
use crate::Engine;
use crate::ingest::{Fetched, Message, Source};

/// Messages that the ledger has queued.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FetchEmails {
    pub mailbox: MailboxId,
    pub messages: Vec<String>,
}

impl Job for FetchEmails {
    const KIND: &'static str = "fetch_emails";
}

/// So few that they fit into memory whatever their sizes are, for all but the first are read through the spool then.
const OF_ANY_SIZE: usize = 25;

impl FetchEmails {
    /// Messages that have waited already, so that new ones go before them.
    pub fn of_any_size(mailbox: MailboxId, messages: &[String], clock: &dyn Clock) -> anyhow::Result<Vec<NewJob>> {
        let job = |messages: &[String]| {
            let job = new_job(&Self { mailbox, messages: messages.to_vec() }, clock, None)?;
            Ok(NewJob { lane: Lane::Low, ..job })
        };
        messages.chunks(OF_ANY_SIZE).map(job).collect()
    }
}

const MOST_MESSAGES: usize = 100;
const MOST_BYTES: u64 = PART;

/// Of a message whose size nobody told.
const USUAL_BYTES: u64 = 100 << 10;

/// A message that is refused each time is given up after so many tries, alone.
const MOST_TRIES: u64 = 6;

/// A message that is longer is not held in memory: it would not fit into a provider's part of it. To read it takes about as
/// much.
const SPOOLED: u64 = PART;

/// Of a batch that has brought so much already, because nobody told the sizes, messages that are longer than this.
const PLENTY: u64 = PART;
const TIGHT: usize = 64 << 10;

/// How long a batch waits for its turn before others get its place, and when it is tried again.
const PATIENCE: Duration = Duration::from_secs(5);
const NO_TURN: Duration = Duration::from_secs(2);

/// How long messages of a mailbox wait that must not be read now.
const PUT_OFF: Duration = Duration::from_secs(60);

/// Blob storage was away: the message is fetched once more.
const WITHOUT_BYTES: Duration = Duration::from_secs(60);

impl FetchEmails {
    /// A large message is alone.
    pub fn batches(mailbox: MailboxId, wanted: &[&Seen]) -> Vec<Self> {
        let mut batches: Vec<Self> = Vec::new();
        let mut bytes = 0;
        for seen in wanted {
            let size = seen.size_bytes.unwrap_or(USUAL_BYTES);
            match batches.last_mut() {
                Some(last) if last.messages.len() < MOST_MESSAGES && bytes + size <= MOST_BYTES => {
                    last.messages.push(seen.message.clone());
                    bytes += size;
                }
                _ => {
                    batches.push(Self { mailbox, messages: vec![seen.message.clone()] });
                    bytes = size;
                }
            }
        }
        batches
    }
}

impl Syncer {
    pub fn fetch_kind(&self) -> Kind {
        let sync = self.clone();
        let mut kind = Kind::new(move |held: Held, job: FetchEmails| {
            let sync = sync.clone();
            async move { sync.fetch(&held, job).await }
        });
        kind.retry = PATIENT;
        kind.pool = Pool::Remote;
        kind
    }

    async fn fetch(&self, held: &Held, job: FetchEmails) -> Result<Verdict, JobError> {
        let store = self.engine.store.tenant(held.tenant());
        let Some(opened) = self.open(held.tenant(), job.mailbox).await? else {
            return put_off(&store, job.mailbox).await;
        };
        let queued = store.list_queued(job.mailbox, job.messages.clone()).await?;
        if queued.is_empty() {
            return Ok(Verdict::Done);
        }
        if queued.len() > 1 && (held.job.attempt > 0 || held.job.is_suspect) {
            // Something in it went wrong, or took the process with it: one bad message harms only itself.
            return singles(held, &queued, job.mailbox);
        }
        if held.job.attempt >= MOST_TRIES {
            let mut unit = store.write();
            let messages = queued.into_iter().map(|queued| queued.message).collect();
            unit.fail_messages(job.mailbox, messages, "it could not be stored; see the attempts of its job");
            return Ok(Verdict::Commit(unit));
        }
        let turn = self.turns.take(&opened.mailbox, held.job.lane);
        let Ok(turn) = tokio::time::timeout(PATIENCE, turn).await else {
            return Err(JobError::Throttled(NO_TURN));
        };
        let turn = turn.map_err(anyhow::Error::from)?;
        let (came, trouble) = self.fetch_from(held, &opened, &queued).await;
        drop(turn);
        held.progress();
        if let Some(e) = &trouble.all {
            let mut unit = store.write();
            self.tell_pause(&mut unit, &opened.mailbox, e);
            unit.commit().await?;
        }
        let has_come = !came.messages.is_empty();
        let placed = self.place(held, &store, opened.mailbox.id, &queued, came).await?;
        if has_come && placed.messages.is_empty() && trouble.is_none() {
            // None of them is where it was, and some may be elsewhere now.
            let mut unit = held.write();
            enqueue(held, &mut unit, job, held.job.lane, When::Now)?;
            return Ok(Verdict::Commit(unit));
        }
        self.store(held, &store, &opened, &queued, placed, trouble).await
    }

    async fn fetch_from(&self, held: &Held, opened: &Opened, queued: &[Queued]) -> (Came, Trouble) {
        let wanted: Vec<Wanted> = queued.iter().map(Queued::wanted).collect();
        let binds_by_content = self.settings.duplicate_check && opened.mailbox.provider.binds_by_content();
        let room = self.memory.room(opened.mailbox.provider, held.job.lane);
        let mut collector = Collector::new(&self.engine, held, room, binds_by_content, queued);
        let call = opened.connector.fetch(&opened.account, &wanted, &mut collector);
        let outcome = self.calls.make_fetch(&opened.mailbox, held.job.lane, call).await;
        let Collector { messages, places, failed, bytes, refused, room, .. } = collector;
        held.keep(room);
        self.calls.spend_bytes(&opened.mailbox, bytes).await;
        // A message that we would not take says nothing about the provider.
        let all = outcome.err().filter(|_| refused.is_none());
        (Came { messages, places }, Trouble { failed, refused, all })
    }

    /// Whatever came whole is stored; the rest is told of, or tried again by a job of its own.
    async fn store(
        &self,
        held: &Held,
        store: &TenantStore,
        opened: &Opened,
        queued: &[Queued],
        placed: Placed,
        trouble: Trouble,
    ) -> Result<Verdict, JobError> {
        let Placed { messages, told } = placed;
        let mailbox = opened.mailbox.id;
        let mut missing = trouble.missing(queued, &messages);
        if let Some(message) = &trouble.refused {
            let mut unit = store.write();
            unit.fail_messages(mailbox, vec![message.clone()], "it is larger than limits.message_size");
            unit.commit().await?;
            missing.later.retain(|later| later != message);
            if missing.later.is_empty() && messages.is_empty() {
                return Ok(Verdict::Done);
            }
        }
        if messages.is_empty() && missing.gone.is_empty() {
            if let Some(e @ ConnectorError::Unauthorized(_)) = &trouble.all {
                let mut unit = store.write();
                states::needs_reauth(&mut unit, &opened.mailbox, &e.to_string());
                unit.commit().await?;
                return Err(JobError::Throttled(PUT_OFF));
            }
            if queued.len() > 1 && trouble.all.is_none() {
                return singles(held, queued, mailbox);
            }
            if held.job.attempt + 1 < MOST_TRIES || trouble.is_passing() {
                return Err(match (&trouble.all, &missing.error) {
                    // Of one message it says something of that message, so an attempt is spent.
                    (None, Some(e @ ConnectorError::Unavailable(_))) => {
                        JobError::Failed { class: "unavailable", message: e.to_string() }
                    }
                    (Some(e), _) | (None, Some(e)) => job_error(e, held),
                    (None, None) => nothing_came(),
                });
            }
            let mut unit = store.write();
            unit.fail_messages(mailbox, missing.later.clone(), &missing.reason());
            return Ok(Verdict::Commit(unit));
        }
        if !missing.gone.is_empty() && !lose(held, store, mailbox, &missing.gone).await? {
            missing.later.extend(missing.gone.into_iter().map(|gone| gone.message));
        }
        let stored: Vec<String> = messages.iter().filter_map(provider_id).collect();
        let count = messages.len() as u64;
        let (mut unit, is_incomplete) = match messages.is_empty() {
            true => (store.write(), false),
            false => self.engine.prepare(opened.mailbox.clone(), messages).await?.into_unit(),
        };
        if !told.is_empty() {
            unit.expect_told(mailbox, told);
        }
        if let Some(user) = user_of(&opened.mailbox) {
            // Of an address that has passed to another meanwhile, this is the other's mail.
            unit.expect_user(mailbox, user);
        }
        let lane = held.job.lane;
        if !missing.later.is_empty() {
            enqueue(held, &mut unit, FetchEmails { mailbox, messages: missing.later }, lane, When::Now)?;
        }
        if is_incomplete {
            enqueue(held, &mut unit, FetchEmails { mailbox, messages: stored }, lane, When::In(WITHOUT_BYTES))?;
        }
        let provider = opened.mailbox.provider.as_str();
        metrics::counter!("mailroom_emails_ingested_total", "provider" => provider).increment(count);
        Ok(Verdict::Commit(unit))
    }
}

/// `false`: a listing has told of one of them since we asked for it, which is newer: they are asked for once more.
async fn lose(held: &Held, store: &TenantStore, mailbox: MailboxId, gone: &[Queued]) -> Result<bool, JobError> {
    let mut unit = store.write();
    unit.hold_sync(mailbox);
    unit.guard_job(&held.job);
    unit.expect_told(mailbox, gone.iter().map(|gone| (gone.message.clone(), gone.told)).collect());
    unit.lose_messages(mailbox, gone.iter().flat_map(|gone| &gone.places));
    match unit.commit().await {
        Err(StoreError::Precondition(MESSAGES_TOLD)) => Ok(false),
        committed => Ok(committed.map(|_| true)?),
    }
}

/// The mailbox is paused or waits for somebody: so do its messages. One that is disconnected or gone has none to fetch, and
/// whose owner has left may be so for ever: what they miss is asked for on their return.
async fn put_off(store: &TenantStore, mailbox: MailboxId) -> Result<Verdict, JobError> {
    match store.find_mailbox(&mailbox.to_string()).await? {
        Some(mailbox) if mailbox.is_active && mailbox.state != MailboxState::Disconnected => {
            Err(JobError::Throttled(PUT_OFF))
        }
        _ => Ok(Verdict::Done),
    }
}

/// Whom our app opens for it by an address, which may be another's tomorrow.
fn user_of(mailbox: &Mailbox) -> Option<&str> {
    let connection = &mailbox.settings["connection"];
    let is_by_address = mailbox.provider == Provider::Gmail && connection["app_only"] == true;
    connection["user"].as_str().filter(|_| is_by_address)
}

/// What a message takes of the memory, as far as one knows before.
fn expected(queued: &Queued) -> u64 {
    in_memory(queued.size_bytes.unwrap_or(USUAL_BYTES))
}

/// What is longer goes through the spool.
fn in_memory(bytes: u64) -> u64 {
    bytes.min(SPOOLED)
}

fn nothing_came() -> JobError {
    JobError::Failed { class: "protocol", message: "the provider answered without the messages".to_owned() }
}

fn provider_id(message: &Message) -> Option<String> {
    match &message.source {
        Source::Provider(fetched) => Some(fetched.message.clone()),
        _ => None,
    }
}

fn enqueue(held: &Held, unit: &mut TenantUnit, job: FetchEmails, lane: Lane, when: When) -> Result<(), JobError> {
    let job = held.follow_up(&job).map_err(anyhow::Error::from)?;
    unit.enqueue(vec![NewJob { lane, when, ..job }]);
    Ok(())
}

fn singles(held: &Held, queued: &[Queued], mailbox: MailboxId) -> Result<Verdict, JobError> {
    let mut unit = held.write();
    for queued in queued {
        let job = FetchEmails { mailbox, messages: vec![queued.message.clone()] };
        enqueue(held, &mut unit, job, held.job.lane, When::Now)?;
    }
    Ok(Verdict::Commit(unit))
}

/// What went wrong with a batch.
struct Trouble {
    /// Larger than we take.
    refused: Option<String>,
    failed: BTreeMap<String, ConnectorError>,
    all: Option<ConnectorError>,
}

/// Messages that did not come.
struct Missing {
    gone: Vec<Queued>,
    later: Vec<String>,
    error: Option<ConnectorError>,
}

impl Trouble {
    fn missing(&self, queued: &[Queued], came: &[Message]) -> Missing {
        let came: Vec<String> = came.iter().filter_map(provider_id).collect();
        let mut missing = Missing { gone: Vec::new(), later: Vec::new(), error: None };
        for queued in queued.iter().filter(|queued| !came.contains(&queued.message)) {
            match self.failed.get(&queued.message) {
                Some(ConnectorError::Gone) => missing.gone.push(queued.clone()),
                error => {
                    missing.error = missing.error.or_else(|| error.cloned());
                    missing.later.push(queued.message.clone());
                }
            }
        }
        missing
    }

    fn is_none(&self) -> bool {
        self.refused.is_none() && self.failed.is_empty() && self.all.is_none()
    }

    /// The provider as a whole does not work, which says nothing about a message.
    fn is_passing(&self) -> bool {
        use ConnectorError::{NotYet, Operator, Throttled, Unavailable};
        matches!(self.all, Some(Throttled { .. } | NotYet(_) | Unavailable(_) | Operator(_)))
    }
}

impl Missing {
    fn reason(&self) -> String {
        self.error.as_ref().map_or_else(|| "the provider did not give it".to_owned(), ToString::to_string)
    }
}

/// Takes messages as they come, in memory or in the spool. One that breaks off never becomes a message.
struct Collector {
    held: Held,
    room: Room,
    spool: Spool,
    most_bytes: u64,
    /// A message that we do not take.
    refused: Option<String>,
    /// All that came, also of messages that broke off.
    bytes: u64,
    binds_by_content: bool,
    queued: BTreeMap<String, Queued>,
    places: Places,
    current: Option<(String, Draft)>,
    messages: Vec<Message>,
    failed: BTreeMap<String, ConnectorError>,
}

impl Collector {
    fn new(engine: &Engine, held: &Held, room: Room, binds_by_content: bool, queued: &[Queued]) -> Self {
        Self {
            held: held.clone(),
            room,
            spool: Spool { message_bytes: SPOOLED as usize, ..engine.spool.clone() },
            most_bytes: engine.limits.message_bytes,
            refused: None,
            bytes: 0,
            binds_by_content,
            queued: queued.iter().map(|queued| (queued.message.clone(), queued.clone())).collect(),
            places: BTreeMap::new(),
            current: None,
            messages: Vec::new(),
            failed: BTreeMap::new(),
        }
    }
}

impl Sink for Collector {
    fn room<'a>(&'a mut self, messages: &'a [&'a str]) -> Answer<'a, ()> {
        let bytes = messages.iter().filter_map(|message| self.queued.get(*message)).map(expected).sum();
        let Self { held, room, .. } = self;
        Box::pin(room.make(bytes, || held.progress()))
    }

    fn begin(&mut self, message: &str) {
        // Sizes that nobody told may add up.
        let mut draft = match self.bytes > PLENTY {
            true => Spool { message_bytes: TIGHT, ..self.spool.clone() }.draft(),
            false => self.spool.draft(),
        };
        // What a provider made up costs nothing for long: a batch is small, and counted by the same sizes.
        draft.expect(self.queued.get(message).and_then(|queued| queued.size_bytes).unwrap_or(0).min(MOST_BYTES));
        self.current = Some((message.to_owned(), draft));
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.held.progress();
        let Some((message, draft)) = &mut self.current else { return Ok(()) };
        if draft.len() + bytes.len() as u64 > self.most_bytes {
            self.refused = Some(message.clone());
            return Err(std::io::Error::other("the message is larger than limits.message_size"));
        }
        draft.push(bytes)
    }

    fn end(&mut self, facts: Facts) -> std::io::Result<()> {
        let Some((message, draft)) = self.current.take() else { return Ok(()) };
        // Only what was asked for, and once.
        let Some(queued) = self.queued.remove(&message) else { return Ok(()) };
        self.room.give_back(expected(&queued).saturating_sub(in_memory(draft.len())));
        if let Some(places) = facts.places {
            self.places.insert(message.clone(), places);
        }
        self.messages.push(Message {
            raw: draft.finish(),
            // What was listed holds for providers that say it only then.
            received_at: facts.received_at.or(queued.received_at),
            origin: format!("message {message}"),
            source: Source::Provider(Fetched {
                message,
                binds_by_content: self.binds_by_content,
                revision: facts.revision,
                listed_revision: queued.revision,
                thread: facts.thread,
                is_backfill: queued.is_backfill,
            }),
        });
        Ok(())
    }

    fn fail(&mut self, message: &str, error: ConnectorError) {
        self.current = None;
        self.room.give_back(self.queued.get(message).map_or(0, expected));
        self.failed.insert(message.to_owned(), error);
    }
}
