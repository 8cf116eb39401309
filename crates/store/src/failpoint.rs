//! Failpoints, one before and one after every durable effect: a test makes the process die, stop or panic there, or leave
//! out a guard. [`around`] has both; what commits a unit names its effect by `commit_at`.
//!
//! Without the feature `testing` all of it compiles to nothing.

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant),* }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }
    };
}

named! {
    /// A durable effect of the program.
    Effect {
        Migrate = "migrate",
        MakeTenant = "make_tenant",
        MakeMailbox = "make_mailbox",
        MakeFolders = "make_folders",
        AnnouncePack = "announce_pack",
        WriteObject = "write_object",
        WithdrawPack = "withdraw_pack",
        CommitBatch = "commit_batch",
        PurgeEmails = "purge_emails",
        GiveUpPacks = "give_up_packs",
        CondemnBlobs = "mark_unreferenced_blobs",
        DeleteBlobs = "delete_blobs",
        MovePack = "move_pack",
        EmptyPacks = "empty_packs",
        DeleteObject = "delete_object",
        ForgetPack = "forget_pack",
        HoldObjects = "hold_objects",
        KeepSnapshot = "keep_snapshot",
        CopyObject = "copy_object",
        PublishManifest = "publish_manifest",
        ReleaseHold = "release_hold",
        RestoreObject = "restore_object",
        RestoreDatabase = "restore_database",
        ClaimJobs = "claim_jobs",
        MarkJob = "mark_job",
        /// A handler's writes with the completion of its job.
        CommitJob = "commit_job",
        FinishJobs = "finish_jobs",
        FailJob = "fail_job",
        GiveBackJobs = "give_back_jobs",
        ReturnJobs = "return_jobs",
        ParkJob = "park_job",
        ReadyJobs = "ready_jobs",
        CancelDoomed = "cancel_doomed",
        PauseJobs = "pause_jobs",
        ResumeJobs = "resume_jobs",
        LimitJobs = "limit_jobs",
        MoveJob = "move_job",
        RetryJob = "retry_job",
        ReplayJobs = "replay_jobs",
        DiscardJobs = "discard_jobs",
        PruneJobs = "prune_jobs",
        PruneQueues = "prune_queues",
        TakeLease = "take_lease",
        RenewLease = "renew_lease",
        ReleaseLease = "release_lease",
        PutSchedule = "put_schedule",
        PauseSchedule = "pause_schedule",
        FireSchedule = "fire_schedule",
        BeginSync = "begin_sync",
        /// The end of polls that found nothing new.
        EndLooks = "end_looks",
        /// A page of a provider's listing, with the cursor and the jobs that follow.
        RecordPage = "record_page",
        /// An access token, before it is used.
        StoreToken = "store_token",
        /// Pushes of a provider, with the syncs that follow.
        RecordPushes = "record_pushes",
        /// The claim on a subscription.
        ClaimSubscription = "claim_subscription",
        /// The password of a subscription, before the provider gets it.
        BeginSubscription = "begin_subscription",
        /// The subscription that the provider granted, with the syncs that follow.
        RecordSubscription = "record_subscription",
        /// The end of a claim without a subscription.
        ReleaseSubscription = "release_subscription",
        ForgetSubscription = "forget_subscription",
        /// The claim on a directory.
        BeginDiscovery = "begin_discovery",
        /// People of a page, with the cursor of the listing.
        RecordPeople = "record_people",
        /// Mailboxes of people, with the decision about each.
        SettlePeople = "settle_people",
        EndDiscovery = "end_discovery",
        ClaimWebhooks = "claim_webhooks",
        /// Results of deliveries, with the webhook's cursor.
        RecordDeliveries = "record_deliveries",
        PruneDeliveries = "prune_deliveries",
        MakeKeyFile = "make_key_file",
        RecordMasterKey = "record_master_key",
        RecordOperatorKey = "record_operator_key",
        MakeTenantKey = "make_tenant_key",
        AnnounceMasterKey = "announce_master_key",
        SwitchKeyFile = "switch_key_file",
        TurnMasterKey = "turn_master_key",
        RotateTenantKey = "rotate_tenant_key",
        SealAgain = "seal_again",
        ForgetMasterKey = "forget_master_key",
        RemoveKeyFile = "remove_key_file",
    }
}

impl Effect {
    /// Effects on the job queue.
    pub const QUEUE: &'static [Self] = &[
        Self::ClaimJobs,
        Self::MarkJob,
        Self::CommitJob,
        Self::FinishJobs,
        Self::FailJob,
        Self::GiveBackJobs,
        Self::ReturnJobs,
        Self::ParkJob,
        Self::ReadyJobs,
        Self::CancelDoomed,
        Self::PauseJobs,
        Self::ResumeJobs,
        Self::LimitJobs,
        Self::MoveJob,
        Self::RetryJob,
        Self::ReplayJobs,
        Self::DiscardJobs,
        Self::PruneJobs,
        Self::PruneQueues,
        Self::TakeLease,
        Self::RenewLease,
        Self::ReleaseLease,
        Self::PutSchedule,
        Self::PauseSchedule,
        Self::FireSchedule,
    ];

    /// Effects of a directory's discovery.
    pub const DISCOVERY: &'static [Self] =
        &[Self::BeginDiscovery, Self::RecordPeople, Self::SettlePeople, Self::EndDiscovery];

    /// Effects of a mailbox's sync.
    pub const SYNC: &'static [Self] = &[Self::BeginSync, Self::EndLooks, Self::RecordPage];

    /// Effects of obtaining access tokens.
    pub const TOKENS: &'static [Self] = &[Self::StoreToken];
    /// Effects of received pushes.
    pub const PUSHES: &'static [Self] = &[Self::RecordPushes];
    /// Effects of subscribing to pushes.
    pub const SUBSCRIPTIONS: &'static [Self] = &[
        Self::ClaimSubscription,
        Self::BeginSubscription,
        Self::RecordSubscription,
        Self::ReleaseSubscription,
        Self::ForgetSubscription,
    ];

    /// Effects of delivering events to webhooks.
    pub const WEBHOOKS: &'static [Self] = &[Self::ClaimWebhooks, Self::RecordDeliveries, Self::PruneDeliveries];

    /// Effects on keys and secrets.
    pub const SECRETS: &'static [Self] = &[
        Self::MakeKeyFile,
        Self::RecordMasterKey,
        Self::RecordOperatorKey,
        Self::MakeTenantKey,
        Self::AnnounceMasterKey,
        Self::SwitchKeyFile,
        Self::TurnMasterKey,
        Self::RotateTenantKey,
        Self::SealAgain,
        Self::ForgetMasterKey,
        Self::RemoveKeyFile,
    ];
}

named! {
    /// A safeguard that a test can switch off to see that something fails without it.
    Guard {
        /// Only a pack that is still `writing` may become `live`.
        PackIsWriting = "pack_is_writing",
        /// While a backup holds the objects, the collector deletes none.
        ObjectsHeld = "objects_held",
        /// Only the worker that holds a job by its newest token may end it.
        JobToken = "job_token",
        /// A worker that has lost its lease stops what it does. Only for speed: the token is what protects.
        OwnStop = "own_stop",
        /// Only the holder of a lease by its newest token may write under it.
        LeaseToken = "lease_token",
        /// One process at a time obtains a mailbox's access token.
        TokenLease = "token_lease",
        /// Adding a child to a job locks that job.
        ParentLock = "parent_lock",
        /// Ending a job locks its ordering key.
        KeyLock = "key_lock",
        /// Only the sync that holds a mailbox by its newest token may record a page.
        SyncToken = "sync_token",
        /// Events take their numbers from a counter that is held until the commit.
        EventCounter = "event_counter",
        /// Only the holder of a webhook by its newest token may record the results of deliveries.
        WebhookToken = "webhook_token",
    }
}

/// Passes the failpoints right before and right after an effect, also one that was refused: tests wait there for a process
/// that comes too late.
pub async fn around<T>(effect: Effect, work: impl Future<Output = T>) -> T {
    actions::pass("before", effect);
    let outcome = work.await;
    actions::pass("after", effect);
    outcome
}

/// Passes the failpoints around an effect like [`around`], where the work does not wait for anything.
pub fn around_blocking<T>(effect: Effect, work: impl FnOnce() -> T) -> T {
    actions::pass("before", effect);
    let outcome = work();
    actions::pass("after", effect);
    outcome
}

#[cfg(not(feature = "testing"))]
mod actions {
    use super::{Effect, Guard};

    pub fn pass(_: &str, _: Effect) {}

    pub fn refuses(_: Effect) -> bool {
        false
    }

    pub fn is_off(_: Guard) -> bool {
        false
    }
}

#[cfg(feature = "testing")]
mod actions {
    use std::collections::HashMap;
    use std::io::Write;
    use std::process::Command;
    use std::sync::{Mutex, OnceLock};

    use super::{Effect, Guard};

    /// `before:commit_batch=crash@2 after:write_object=stop trace=FILE off=pack_is_writing refuse:write_object=once@3`, by
    /// words. Without a number it is the first time, with `@each` every time; `refuse:…=always` needs none.
    pub const VARIABLE: &str = "MAILROOM_TEST_FAILPOINTS";

    #[derive(Debug, Default)]
    struct Plan {
        /// Failpoint → what happens there, and at which pass, or at each.
        actions: HashMap<String, (Action, Option<u32>)>,
        passes: Mutex<HashMap<String, u32>>,
        trace: Option<Mutex<std::fs::File>>,
        off: Vec<String>,
    }

    #[derive(Debug, Clone, Copy)]
    enum Action {
        Crash,
        Stop,
        Panic,
        Once,
        Always,
    }

    fn plan() -> &'static Plan {
        static PLAN: OnceLock<Plan> = OnceLock::new();
        #[expect(clippy::disallowed_methods, reason = "told by a test, not by a user")]
        PLAN.get_or_init(|| std::env::var(VARIABLE).map(|text| read(&text)).unwrap_or_default())
    }

    fn read(text: &str) -> Plan {
        let mut plan = Plan::default();
        for (place, value) in text.split_whitespace().filter_map(|word| word.split_once('=')) {
            match place {
                "trace" => {
                    let file = std::fs::OpenOptions::new().append(true).create(true).open(value);
                    plan.trace = Some(Mutex::new(file.expect("the trace of a test can be written")));
                }
                "off" => plan.off.push(value.to_owned()),
                _ => {
                    let (action, pass) = value.split_once('@').unwrap_or((value, "1"));
                    let action = match action {
                        "crash" => Action::Crash,
                        "stop" => Action::Stop,
                        "panic" => Action::Panic,
                        "once" => Action::Once,
                        "always" => Action::Always,
                        other => panic!("a failpoint cannot {other}"),
                    };
                    let pass = (pass != "each").then(|| pass.parse().expect("a number of passes"));
                    plan.actions.insert(place.to_owned(), (action, pass));
                }
            }
        }
        plan
    }

    pub fn is_off(guard: Guard) -> bool {
        plan().off.iter().any(|name| name == guard.name())
    }

    /// Returns whether the effect is to fail this time, as if an outside service refused it.
    pub fn refuses(effect: Effect) -> bool {
        matches!(due(&format!("refuse:{}", effect.name())), Some(Action::Once | Action::Always))
    }

    /// Does what the test has planned for this pass, such as `before` the effect.
    pub fn pass(moment: &str, effect: Effect) {
        let place = &format!("{moment}:{}", effect.name());
        if let Some(trace) = &plan().trace {
            // One write, so that lines of several threads do not mix.
            let line = format!("{place}\n");
            let _ = trace.lock().map(|mut file| file.write_all(line.as_bytes()));
        }
        match due(place) {
            Some(Action::Crash) => signal("KILL"),
            Some(Action::Stop) => signal("STOP"),
            Some(Action::Panic) => panic!("a failpoint was told to panic at {place}"),
            Some(Action::Once | Action::Always) | None => {}
        }
    }

    /// Returns what is to happen at this pass.
    fn due(place: &str) -> Option<Action> {
        let plan = plan();
        let (action, wanted) = plan.actions.get(place)?;
        let mut passes = plan.passes.lock().expect("no thread panics while it counts");
        let count = passes.entry(place.to_owned()).or_default();
        *count += 1;
        (matches!(action, Action::Always) || wanted.is_none_or(|wanted| *count == wanted)).then_some(*action)
    }

    /// Sends this process a signal from outside, so that none of its code runs in between.
    fn signal(name: &str) {
        let id = std::process::id();
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {id}")]).status();
        assert!(sent.is_ok_and(|sent| sent.success()), "a signal to ourselves");
    }
}

#[cfg(feature = "testing")]
pub use actions::VARIABLE;
pub use actions::{is_off, refuses};
