//! `mailroom mailbox sync`: requests a sync, and waits for its end if asked to.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::operations::{Invocation, mailboxes};
use engine::sync::SyncMailbox;
use engine::{Engine, Progress};
use jobs::Job;
use serde_json::json;
use store::TenantStore;
use store::sql::mailboxes::Mailbox;
use terminal::{Bar, Failure, Output, ProgressUnit, count, process};

use super::show::pause_line;
use super::{find, print_outcome};
use crate::app;
use crate::cli::mailbox::MailboxArg;
use crate::config::Config;

/// Interval of checks whether the sync has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Interval of progress updates; counting is a query.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

pub(super) async fn run(
    config: &Config,
    engine: &Engine,
    arg: &MailboxArg,
    wait: bool,
    out: Output,
) -> Result<(), Failure> {
    let mailbox = find(engine, arg).await?;
    if !mailbox.provider.capabilities().is_remote {
        return Err(Failure::problem(format!("{} is for imported files and cannot be synced", mailbox.address)));
    }
    let store = engine.store.tenant(mailbox.tenant_id);
    app::check_tenant_active(&store, &arg.tenant).await?;
    if !mailbox.is_active && !engine.is_orphaned(&mailbox).await? {
        return Err(Failure::problem(format!(
            "{} belongs to a user whom the directory or its rules exclude; `mailroom directory show` shows the rules",
            mailbox.address
        )));
    }
    if !mailbox.is_active || !mailbox.state.is_synced() {
        return Err(Failure::problem(format!(
            "{} is {}; `mailroom mailbox resume` resumes it",
            mailbox.address,
            if mailbox.is_active { mailbox.state.as_str() } else { "inactive" }
        )));
    }
    let origin = app::origin();
    let call = Invocation::begin(engine, &origin).await?;
    mailboxes::sync(&call, mailbox.tenant_id, mailbox.id).await.map_err(app::refused)?;
    if !wait {
        return print_outcome(&mailbox, "asked", "is synced as soon as a worker is free", out);
    }
    let workers = engine.store.system().list_workers().await?;
    let has_server = workers.iter().any(|worker| worker.kinds.iter().any(|kind| kind == SyncMailbox::KIND));
    let worker = (!has_server).then(|| -> Result<_, Failure> {
        let syncer = app::syncer(config, engine, "command")?;
        Ok((app::start_worker(config, &syncer, "command"), syncer))
    });
    let worker = worker.transpose()?;
    let begun = Instant::now();
    let outcome = wait_until_synced(&store, &mailbox, &arg.tenant).await;
    let seconds = begun.elapsed().as_secs_f64();
    if let Some((worker, syncer)) = worker {
        worker.shut_down().await;
        engine::accounts::usage_writer::write_usage(&syncer.gateway, &engine.store).await?;
    }
    outcome?;
    if out.json {
        return out.object(&json!({"id": mailbox.id, "outcome": "synced", "seconds": seconds,
            "cpu_seconds": process::own_cpu_seconds(), "peak_memory_bytes": process::peak_memory()}));
    }
    print_outcome(&mailbox, "synced", "is up to date", out)
}

async fn wait_until_synced(store: &TenantStore, mailbox: &Mailbox, tenant: &str) -> Result<(), Failure> {
    let is_shown = std::io::stderr().is_terminal();
    let progress = Arc::new(Progress::default());
    let bar = Bar::follow(&progress, ProgressUnit::Items, "messages stored");
    let already = count_messages(store, mailbox).await?.stored;
    let mut counted = None;
    let (mut shown_pause, mut shown_error) = (None, None);
    loop {
        let now = store.find_mailbox(&mailbox.id.to_string()).await?;
        let now = now.ok_or_else(|| Failure::problem("the mailbox was removed in the meantime"))?;
        // A mailbox that is not synced any more has no jobs, or none that a worker claims.
        app::check_tenant_active(store, tenant).await?;
        if !now.is_active {
            return Err(Failure::problem(format!(
                "{} is not synced any more: the directory or its rules exclude its owner",
                now.address
            )));
        }
        if !now.state.is_synced() {
            let why = now.state_reason.unwrap_or_default();
            return Err(Failure::problem(format!("{} is {} now: {why}", now.address, now.state.as_str())));
        }
        let state = store.find_sync_state(mailbox.id).await?;
        let pause = state.as_ref().and_then(|state| state.paused.clone());
        if let Some(pause) = pause.filter(|pause| shown_pause.as_ref() != Some(pause)) {
            bar.note(&format!("{} is {}. The sync continues then.", now.address, pause_line(&pause)));
            shown_pause = Some(pause);
        }
        // A transient error is shown once, and retried for as long as the command waits.
        let transient_error =
            state.as_ref().filter(|state| state.error_count == 0).and_then(|state| state.last_error.clone());
        if transient_error != shown_error {
            shown_error = transient_error;
            if let Some(why) = &shown_error {
                bar.note(&format!("{}: {why}.", now.address));
            }
        }
        let is_at_work = store.has_sync_jobs(mailbox.id).await?;
        // Read after that, so that the outcome of the last job is included. While jobs run, two failures are tolerated.
        let state = store.find_sync_state(mailbox.id).await?;
        if let Some(state) = state.filter(|state| state.error_count > if is_at_work { 2 } else { 0 }) {
            let why = state.last_error.unwrap_or_default();
            return Err(Failure::problem(format!("{} could not be synced, and will be retried: {why}", now.address)));
        }
        if !is_at_work {
            return match count_messages(store, mailbox).await?.failed {
                0 => Ok(()),
                failed => Err(Failure::problem(format!(
                    "{} messages could not be fetched or stored; `mailroom mailbox resume` retries them",
                    count(failed)
                ))),
            };
        }
        if is_shown && counted.is_none_or(|counted: Instant| counted.elapsed() >= PROGRESS_INTERVAL) {
            counted = Some(Instant::now());
            let messages = count_messages(store, mailbox).await?;
            let stored = messages.stored.saturating_sub(already);
            progress.set_total(stored + messages.to_fetch);
            progress.add_items(stored.saturating_sub(progress.items()));
            progress.set_done(stored);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Number of messages by state.
#[derive(Debug)]
struct MessageCounts {
    stored: u64,
    to_fetch: u64,
    failed: u64,
}

async fn count_messages(store: &TenantStore, mailbox: &Mailbox) -> Result<MessageCounts, Failure> {
    let counts = store.count_ledger(mailbox.id).await?;
    let [stored, queued, processing, failed] =
        ["processed", "queued", "processing", "failed"].map(|state| counts.live.get(state).copied().unwrap_or(0));
    Ok(MessageCounts { stored, to_fetch: queued + processing, failed })
}
