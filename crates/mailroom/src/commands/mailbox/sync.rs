//! A look at a mailbox now, and waiting for its end.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::Provider;
use engine::sync::SyncMailbox;
use engine::{Engine, Progress};
use jobs::Job;
use serde_json::json;
use store::TenantStore;
use store::sql::mailboxes::Mailbox;

use super::show::until_when;
use super::{done, find};
use crate::app;
use crate::cli::mailbox::Which;
use crate::commands::bench_poll::cpu_seconds;
use crate::commands::import::peak_memory;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{Output, count};
use crate::progress::{Bar, Unit};

/// Whether it is done.
const LOOK: Duration = Duration::from_millis(50);

/// Counting costs the database something.
const COUNT: Duration = Duration::from_millis(200);

pub(super) async fn run(
    config: &Config,
    engine: &Engine,
    which: &Which,
    wait: bool,
    out: Output,
) -> Result<(), Failure> {
    let mailbox = find(engine, which).await?;
    if mailbox.provider == Provider::Files {
        return Err(Failure::problem(format!("{} takes files only; there is nothing to look at", mailbox.address)));
    }
    let store = engine.store.tenant(mailbox.tenant_id);
    app::must_be_active(&store, &which.tenant).await?;
    if !mailbox.is_active && !engine.is_left_behind(&mailbox).await? {
        return Err(Failure::problem(format!(
            "{} is of somebody whom the directory or its rules leave out; `mailroom directory show` tells the rules",
            mailbox.address
        )));
    }
    if !mailbox.is_active || !mailbox.state.is_synced() {
        return Err(Failure::problem(format!(
            "{} is {}; `mailroom mailbox resume` makes it go on",
            mailbox.address,
            if mailbox.is_active { mailbox.state.as_str() } else { "switched off" }
        )));
    }
    engine.request_sync(&mailbox).await?;
    if !wait {
        return done(&mailbox, "asked", "is looked at as soon as a worker is free", out);
    }
    let workers = engine.store.system().list_workers().await?;
    let has_server = workers.iter().any(|worker| worker.kinds.iter().any(|kind| kind == SyncMailbox::KIND));
    let worker = (!has_server).then(|| -> Result<_, Failure> {
        let syncer = app::syncer(config, engine, "command")?;
        Ok((app::start_worker(config, &syncer, "command"), syncer))
    });
    let worker = worker.transpose()?;
    let begun = Instant::now();
    let outcome = until_up_to_date(&store, &mailbox, &which.tenant).await;
    let seconds = begun.elapsed().as_secs_f64();
    if let Some((worker, syncer)) = worker {
        worker.shut_down().await;
        syncer.calls.write_usage(&engine.store).await?;
    }
    outcome?;
    if out.json {
        return out.object(&json!({"id": mailbox.id, "outcome": "synced", "seconds": seconds,
            "cpu_seconds": cpu_seconds(), "peak_memory_bytes": peak_memory()}));
    }
    done(&mailbox, "synced", "is up to date", out)
}

async fn until_up_to_date(store: &TenantStore, mailbox: &Mailbox, tenant: &str) -> Result<(), Failure> {
    let is_shown = std::io::stderr().is_terminal();
    let progress = Arc::new(Progress::default());
    let bar = Bar::follow(&progress, Unit::Items, "messages stored");
    let already = count_messages(store, mailbox).await?.stored;
    let mut counted = None;
    let (mut told, mut hindrance) = (None, None);
    loop {
        let now = store.find_mailbox(&mailbox.id.to_string()).await?;
        let now = now.ok_or_else(|| Failure::problem("the mailbox was removed meanwhile"))?;
        // What is not looked at any more has no jobs either, or none that anybody takes.
        app::must_be_active(store, tenant).await?;
        if !now.is_active {
            return Err(Failure::problem(format!(
                "{} is not looked at any more: the directory or its rules leave out whose it is",
                now.address
            )));
        }
        if !now.state.is_synced() {
            let why = now.state_reason.unwrap_or_default();
            return Err(Failure::problem(format!("{} is {} now: {why}", now.address, now.state.as_str())));
        }
        let state = store.find_sync(mailbox.id).await?;
        let pause = state.as_ref().and_then(|state| state.paused.clone());
        if let Some(pause) = pause.filter(|pause| told.as_ref() != Some(pause)) {
            bar.tell(&format!("{} is {}. It goes on then.", now.address, until_when(&pause)));
            told = Some(pause);
        }
        // What only hinders is tried again for as long as somebody waits.
        let hinders = state.as_ref().filter(|state| state.error_count == 0).and_then(|state| state.last_error.clone());
        if hinders != hindrance {
            hindrance = hinders;
            if let Some(why) = &hindrance {
                bar.tell(&format!("{}: {why}.", now.address));
            }
        }
        let is_at_work = store.is_at_work(mailbox.id).await?;
        // Read after that: how the last job ended counts. While there is one, a failure or two may pass.
        let state = store.find_sync(mailbox.id).await?;
        if let Some(state) = state.filter(|state| state.error_count > if is_at_work { 2 } else { 0 }) {
            let why = state.last_error.unwrap_or_default();
            return Err(Failure::problem(format!("{} is not up to date, and is tried again: {why}", now.address)));
        }
        if !is_at_work {
            return match count_messages(store, mailbox).await?.failed {
                0 => Ok(()),
                failed => Err(Failure::problem(format!(
                    "{} messages could not be fetched or stored; `mailroom mailbox resume` tries them again",
                    count(failed)
                ))),
            };
        }
        if is_shown && counted.is_none_or(|counted: Instant| counted.elapsed() >= COUNT) {
            counted = Some(Instant::now());
            let messages = count_messages(store, mailbox).await?;
            let stored = messages.stored.saturating_sub(already);
            progress.set_total(stored + messages.to_fetch);
            progress.add_items(stored.saturating_sub(progress.items()));
            progress.set_done(stored);
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[derive(Debug)]
struct Messages {
    stored: u64,
    to_fetch: u64,
    failed: u64,
}

async fn count_messages(store: &TenantStore, mailbox: &Mailbox) -> Result<Messages, Failure> {
    let counts = store.count_ledger(mailbox.id).await?;
    let of = |state: &str| counts.live.get(state).copied().unwrap_or(0);
    Ok(Messages { stored: of("processed"), to_fetch: of("queued") + of("processing"), failed: of("failed") })
}
