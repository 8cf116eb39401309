//! `mailroom mailbox list` and `show`.

use std::time::Duration;

use domain::MailboxState;
use engine::Engine;
use engine::sync::explain_hold;
use engine::sync::push::PushStatus;
use engine::sync::target::bytes_per_day;
use providers::registry::DECLARATIONS;
use serde_json::json;
use store::sql::mailboxes::Mailbox;
use store::sql::sync::{BackfillProgress, SyncPause};
use terminal::{Failure, Output, count, size};

use super::{find, secret_field};
use crate::app;
use crate::cli::mailbox::MailboxArg;
use crate::commands::job_output::format_time;
use crate::commands::usage::spent;
use crate::config::Config;

pub(super) async fn list(engine: &Engine, tenant: Option<&str>, out: Output) -> Result<(), Failure> {
    let tenants = match tenant {
        Some(name) => vec![app::find_tenant(&engine.store, name).await?],
        None => engine.store.system().list_tenants().await?,
    };
    let mut rows = Vec::new();
    for tenant in tenants {
        let store = engine.store.tenant(tenant.id);
        let backfills = store.list_backfills(None).await?;
        let pauses = store.list_pauses().await?;
        for mailbox in store.list_mailboxes().await? {
            let backfill = backfills.get(&mailbox.id);
            let pause = pauses.get(&mailbox.id).filter(|_| mailbox.state.is_synced());
            if out.json {
                let mut object = json!(mailbox);
                object["backfill"] = json!(backfill);
                object["paused"] = json!(pause);
                out.object(&object)?;
                continue;
            }
            let state = state(&mailbox);
            rows.push([
                tenant.name.clone(),
                mailbox.address,
                mailbox.provider.as_str().to_owned(),
                state,
                backfill.map_or_else(String::new, backfill_line),
                mailbox.state_reason.into_iter().chain(pause.map(pause_line)).collect::<Vec<_>>().join("; "),
            ]);
        }
    }
    if out.json {
        return Ok(());
    }
    if rows.is_empty() {
        return out.line("No mailboxes yet; `mailroom mailbox add --help` shows how to connect one.");
    }
    out.table(["tenant", "address", "provider", "state", "backfill", "why"], &rows)
}

pub(super) async fn show(config: &Config, engine: &Engine, arg: &MailboxArg, out: Output) -> Result<(), Failure> {
    let mailbox = find(engine, arg).await?;
    let store = engine.store.tenant(mailbox.tenant_id);
    let state = store.find_sync_state(mailbox.id).await?;
    let counts = store.count_ledger(mailbox.id).await?;
    let backfill = store.list_backfills(Some(mailbox.id)).await?.remove(&mailbox.id);
    let push = engine::sync::push::find_push_status(&store, &mailbox).await?;
    let pause = state.as_ref().and_then(|state| state.paused.as_ref());
    let usage = engine::accounts::usage::of_mailbox(&store, &mailbox, pause, &app::call_settings(config)).await?;
    let bytes = bytes_per_day(&mailbox, &app::call_settings(config)).filter(|bytes| *bytes > 0);
    if out.json {
        let ledger = json!({"live": counts.live, "gone": counts.gone, "unbalanced": counts.unbalanced});
        let shown = json!({
            "mailbox": mailbox, "sync": state, "ledger": ledger, "backfill": backfill, "bytes_per_day": bytes, "push": push,
            "usage": usage,
        });
        return out.object(&shown);
    }
    let since = format_time(mailbox.state_since);
    let why = mailbox.state_reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    out.line(&format!("{} ({}), {}", mailbox.address, mailbox.id, mailbox.provider.as_str()))?;
    out.line(&format!("{} since {since}{why}", mailbox.state.as_str()))?;
    if !mailbox.is_active {
        let reason = if engine.is_orphaned(&mailbox).await? {
            "inactive: switched off by a directory that was removed; `mailroom mailbox resume` activates it"
        } else {
            "inactive: its owner is not in the directory, or the rules exclude them"
        };
        out.line(reason)?;
    }
    if mailbox.state == MailboxState::NeedsReauth {
        out.line(&reauth_hint(&mailbox, &arg.tenant))?;
    }
    if let Some(state) = state {
        if let Some(pause) = state.paused.filter(|_| mailbox.state.is_synced()) {
            out.line(&pause_line(&pause))?;
        }
        out.line(&format!(
            "last synced {}, next sync {}",
            time_or_never(state.last_sync_at),
            time_or_never(state.next_sync_at)
        ))?;
        if let Some(held) = &state.held_removals {
            out.line(&format!("removals held back: {}", explain_hold(held)))?;
            out.line(&format!(
                "to remove them now: mailroom mailbox apply-removals {} --tenant {}",
                mailbox.address, arg.tenant
            ))?;
        }
        if let Some(message) = state.last_message_id {
            out.line(&format!("last new message: {message}"))?;
        }
        if let Some(error) = state.last_error {
            out.line(&format!("last error ({} in a row): {error}", state.error_count))?;
        }
        match backfill {
            Some(backfill) => out.line(&format!("backfill: {}", backfill_line(&backfill)))?,
            None if state.is_history_done => out.line("backfill: done")?,
            None => {}
        }
    }
    if let Some(push) = push {
        out.line(&push_line(&push))?;
    }
    if let Some(bytes) = bytes {
        out.line(&format!("fetches at most {} a day", size(bytes)))?;
    }
    if mailbox.provider.capabilities().is_remote {
        out.line(&format!("bytes: {}", spent(&usage.bytes, size)))?;
        let calls = spent(&usage.calls, count);
        out.line(&format!("calls of all the tenant's mailboxes at {}: {calls}", mailbox.provider.as_str()))?;
    }
    let mut live: Vec<String> = counts.live.iter().map(|(state, n)| format!("{} {state}", count(*n))).collect();
    if live.is_empty() {
        live.push("none yet".to_owned());
    }
    out.line(&format!("messages: {}; {} gone", live.join(", "), count(counts.gone)))
}

fn time_or_never(time: Option<jiff::Timestamp>) -> String {
    time.map_or_else(|| "never".to_owned(), format_time)
}

/// Formats the state: `active`, or `active, off` if the mailbox is not synced.
pub fn state(mailbox: &Mailbox) -> String {
    let off = if mailbox.is_active { "" } else { ", off" };
    format!("{}{off}", mailbox.state.as_str())
}

/// Returns the command that gives a mailbox new credentials.
fn reauth_hint(mailbox: &Mailbox, tenant: &str) -> String {
    let address = &mailbox.address;
    let has_consent = DECLARATIONS.consent(mailbox.provider).is_some();
    let command = match secret_field(mailbox) {
        _ if mailbox.settings.connection["app_only"] == true => format!("mailbox resume {address} --tenant {tenant}"),
        _ if has_consent => {
            format!("mailbox connect {} --tenant {tenant} --address {address}", mailbox.provider.as_str())
        }
        Some(field) => format!("mailbox resume {address} --tenant {tenant} --{} FILE", field.option.name),
        None => format!("mailbox resume {address} --tenant {tenant}"),
    };
    format!("to reconnect: mailroom {command}")
}

/// Formats the state of push: `push: on until 2026-11-22 14:05 UTC, last one 2026-11-15T14:05:00Z`.
fn push_line(push: &PushStatus) -> String {
    let until = push.expires_at.map(|at| format!(" until {}", at.strftime("%Y-%m-%d %H:%M UTC"))).unwrap_or_default();
    let last = push.last_push_at.map(|at| format!(", last one {}", format_time(at))).unwrap_or_default();
    let why = push.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("push: {}{until}{last}{why}", push.state.as_str())
}

/// Formats a pause: `paused until 2026-11-15 14:05 UTC: the provider asked to wait`.
pub(super) fn pause_line(pause: &SyncPause) -> String {
    format!("paused until {}: {}", pause.until.strftime("%Y-%m-%d %H:%M UTC"), pause.reason)
}

/// Formats the progress of a backfill: `4,200 of 10,000, done in about 3 min`.
fn backfill_line(backfill: &BackfillProgress) -> String {
    let BackfillProgress { is_listed, stored, to_fetch, per_second } = *backfill;
    let listed = stored + to_fetch;
    if !is_listed && listed == 0 {
        return "being listed".to_owned();
    }
    let so_far = format!("{} of {}{}", count(stored), if is_listed { "" } else { "at least " }, count(listed));
    match per_second {
        _ if !is_listed => format!("{so_far}, older mail is still being listed"),
        Some(rate) if rate > 0.0 => {
            // A rate near zero would overflow.
            let left = Duration::try_from_secs_f64(to_fetch as f64 / rate).unwrap_or(Duration::MAX);
            format!("{so_far}, done in {}", about(left))
        }
        _ => so_far,
    }
}

fn about(left: Duration) -> String {
    match left.as_secs() {
        0..10 => "a few seconds".to_owned(),
        seconds @ 10..90 => format!("about {} s", seconds.next_multiple_of(10)),
        seconds @ 90..5400 => format!("about {} min", (seconds + 30) / 60),
        seconds @ 5400..172_800 => format!("about {} h", (seconds + 1800) / 3600),
        seconds => format!("about {} days", count((seconds / 86_400).min(9_999))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(is_listed: bool, stored: u64, to_fetch: u64, per_second: Option<f64>) -> String {
        backfill_line(&BackfillProgress { is_listed, stored, to_fetch, per_second })
    }

    #[test]
    fn pause_is_shown_with_end_and_reason() {
        let pause =
            SyncPause { until: "2026-11-15T14:05:59Z".parse().unwrap(), reason: "the provider asked to wait".into() };
        assert_eq!(pause_line(&pause), "paused until 2026-11-15 14:05 UTC: the provider asked to wait");
    }

    #[test]
    fn backfill_is_shown_with_progress_and_end() {
        assert_eq!(line(true, 4_200, 5_800, Some(32.0)), "4,200 of 10,000, done in about 3 min");
        assert_eq!(line(true, 4_200, 5_800, None), "4,200 of 10,000");
        assert_eq!(line(true, 10, 5, Some(100.0)), "10 of 15, done in a few seconds");
        assert_eq!(line(true, 0, 100_000, Some(0.01)), "0 of 100,000, done in about 115 days");
        assert_eq!(line(false, 0, 0, None), "being listed");
        let listing = "4,200 of at least 10,000, older mail is still being listed";
        assert_eq!(line(false, 4_200, 5_800, Some(32.0)), listing);
    }
}
