//! `mailroom mailbox …`

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use domain::connector::Account;
use domain::{MailboxId, Provider, Secret};
use engine::Engine;
use engine::mailboxes::Connect;
use engine::sync::{SyncMailbox, connection};
use jobs::Job;
use serde_json::{Map, Value, json};
use store::TenantStore;
use store::sql::mailboxes::Mailbox;

use super::job_output::when;
use crate::app;
use crate::cli::mailbox::{Add, Common, Mailbox as Command, Scripted, Which};
use crate::config::Config;
use crate::config::units::{parse_backfill, parse_duration};
use crate::failure::Failure;
use crate::output::{Output, count, tell};

pub async fn run(config: &Config, command: Command, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    match command {
        Command::Add(Add::Scripted(args)) => add_scripted(config, &engine, args, out).await?,
        Command::List { tenant } => list(&engine, tenant.as_deref(), out).await?,
        Command::Show(which) => show(&engine, &which, out).await?,
        Command::Sync { which, wait } => sync(config, &engine, &which, wait, out).await?,
        Command::Pause(which) => {
            let mailbox = find(&engine, &which).await?;
            let changed = engine.pause_mailbox(&mailbox).await?;
            changed_to(&mailbox, "paused", changed, out)?;
        }
        Command::Resume { which, token_file } => {
            let mailbox = find(&engine, &which).await?;
            let secret = token_file.as_deref().map(read_secret).transpose()?;
            let changed = engine.resume_mailbox(&mailbox, secret).await?;
            changed_to(&mailbox, "active", changed, out)?;
        }
        Command::Remove { which, erase, yes } => remove(&engine, &which, erase, yes, out).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn find(engine: &Engine, which: &Which) -> Result<Mailbox, Failure> {
    let store = app::tenant_store(engine, &which.tenant).await?;
    let found = app::mailbox(&store, Some(&which.mailbox)).await?;
    found.ok_or_else(|| Failure::problem("there is no such mailbox"))
}

async fn add_scripted(config: &Config, engine: &Engine, args: Scripted, out: Output) -> Result<(), Failure> {
    let settings = Map::from_iter([("connection".to_owned(), json!({"url": args.url}))]);
    let secret = args.token_file.as_deref().map(read_secret).transpose()?;
    add(config, engine, Provider::Scripted, args.common, settings, secret, out).await
}

fn read_secret(file: &Path) -> Result<Secret<String>, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| Failure::problem(format!("cannot read the secret in {} ({e})", file.display())))?;
    let text = text.trim_end_matches(['\r', '\n']).to_owned();
    if text.is_empty() {
        return Err(Failure::problem(format!("{} is empty, but should hold a secret", file.display())));
    }
    Ok(Secret::new(text))
}

/// What all providers have in common.
async fn add(
    config: &Config,
    engine: &Engine,
    provider: Provider,
    common: Common,
    mut settings: Map<String, Value>,
    secret: Option<Secret<String>>,
    out: Output,
) -> Result<(), Failure> {
    let tenant = app::tenant(&engine.store, &common.tenant).await?;
    let Some(address) = domain::address::canonical(&common.address) else {
        return Err(Failure::usage(format!("{:?} is not an address; it wants somebody@somewhere", common.address)));
    };
    let backfill = match &common.backfill {
        None => config.sync.backfill,
        Some(text) => parse_backfill(text).ok_or_else(|| {
            Failure::usage(format!("--backfill wants all, none or a duration like 30d, not {text:?}"))
        })?,
    };
    for (key, folders) in [("folders", common.folders), ("exclude", common.exclude)] {
        if !folders.is_empty() {
            settings.insert(key.to_owned(), json!(folders));
        }
    }
    if let Some(text) = &common.interval {
        let every = parse_duration(text)
            .map_err(|_| Failure::usage(format!("--interval wants a duration like 5m, not {text:?}")))?;
        settings.insert("interval_seconds".to_owned(), every.as_secs().clamp(1, 30 * 86_400).into());
    }
    let settings = Value::Object(settings);
    if !common.no_check {
        check(config, engine, provider, &tenant.id, &address, &settings, secret.as_ref()).await?;
    }
    let connect = Connect { provider, address: address.clone(), settings, secret, backfill };
    let Some(id) = engine.connect(tenant.id, connect).await? else {
        return Err(Failure::problem(format!(
            "tenant {} has a mailbox {address} already; `mailroom mailbox show {address} --tenant {}` shows it",
            tenant.name, tenant.name
        )));
    };
    engine.store.tell_of_jobs().await?;
    if out.json {
        return out.object(&json!({"id": id, "address": address, "provider": provider.as_str()}));
    }
    out.line(&format!("Connected {address} ({id}). A running `mailroom serve` begins at once."))
}

async fn check(
    config: &Config,
    engine: &Engine,
    provider: Provider,
    tenant: &domain::TenantId,
    address: &str,
    settings: &Value,
    secret: Option<&Secret<String>>,
) -> Result<(), Failure> {
    let syncer = app::syncer(config, engine, "command")?;
    let Some(connector) = syncer.connectors.get(&provider) else {
        return Err(Failure::problem(format!("this program does not speak {}", provider.as_str())));
    };
    let account = Account {
        tenant: *tenant,
        mailbox: MailboxId::new(engine.store.clock()),
        address: address.to_owned(),
        settings: connection(settings),
        secret: secret.cloned(),
    };
    connector
        .check(&account)
        .await
        .map_err(|e| Failure::problem(format!("cannot use {address}: {e}; mend that, or add it with --no-check")))
}

async fn list(engine: &Engine, tenant: Option<&str>, out: Output) -> Result<(), Failure> {
    let tenants = match tenant {
        Some(name) => vec![app::tenant(&engine.store, name).await?],
        None => engine.store.system().list_tenants().await?,
    };
    let mut rows = Vec::new();
    for tenant in tenants {
        for mailbox in engine.store.tenant(tenant.id).list_mailboxes().await? {
            if out.json {
                out.object(&mailbox)?;
                continue;
            }
            rows.push([
                tenant.name.clone(),
                mailbox.address,
                mailbox.provider.as_str().to_owned(),
                mailbox.state.as_str().to_owned(),
                mailbox.state_reason.unwrap_or_default(),
            ]);
        }
    }
    if out.json {
        return Ok(());
    }
    if rows.is_empty() {
        return out.line("No mailboxes yet; `mailroom mailbox add --help` shows how to connect one.");
    }
    out.table(["tenant", "address", "provider", "state", "why"], &rows)
}

async fn show(engine: &Engine, which: &Which, out: Output) -> Result<(), Failure> {
    let mailbox = find(engine, which).await?;
    let store = engine.store.tenant(mailbox.tenant_id);
    let state = store.find_sync(mailbox.id).await?;
    let counts = store.count_ledger(mailbox.id).await?;
    if out.json {
        let ledger = json!({"live": counts.live, "gone": counts.gone, "unbalanced": counts.unbalanced});
        return out.object(&json!({"mailbox": mailbox, "sync": state, "ledger": ledger}));
    }
    let since = when(mailbox.state_since);
    let at = |time: Option<jiff::Timestamp>| time.map_or_else(|| "never".to_owned(), when);
    let why = mailbox.state_reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
    out.line(&format!("{} ({}), {}", mailbox.address, mailbox.id, mailbox.provider.as_str()))?;
    out.line(&format!("{} since {since}{why}", mailbox.state.as_str()))?;
    if let Some(state) = state {
        let history =
            if state.is_history_done { "all older mail is listed" } else { "older mail is still being listed" };
        out.line(&format!(
            "last up to date {}, next look {}; {history}",
            at(state.last_sync_at),
            at(state.next_sync_at)
        ))?;
        if let Some(error) = state.last_error {
            out.line(&format!("last trouble ({} in a row): {error}", state.error_count))?;
        }
    }
    let live: Vec<String> = counts.live.iter().map(|(state, n)| format!("{} {state}", count(*n))).collect();
    out.line(&format!("messages: {}; {} gone", live.join(", "), count(counts.gone)))
}

async fn sync(config: &Config, engine: &Engine, which: &Which, wait: bool, out: Output) -> Result<(), Failure> {
    let mailbox = find(engine, which).await?;
    if mailbox.provider == Provider::Files {
        return Err(Failure::problem(format!("{} takes files only; there is nothing to look at", mailbox.address)));
    }
    if !mailbox.is_active || !mailbox.state.is_synced() {
        return Err(Failure::problem(format!(
            "{} is {}; `mailroom mailbox resume` makes it go on",
            mailbox.address,
            mailbox.state.as_str()
        )));
    }
    engine.request_sync(&mailbox).await?;
    if !wait {
        return done(&mailbox, "asked", "is looked at as soon as a worker is free", out);
    }
    let store = engine.store.tenant(mailbox.tenant_id);
    let workers = engine.store.system().list_workers().await?;
    let has_server = workers.iter().any(|worker| worker.kinds.iter().any(|kind| kind == SyncMailbox::KIND));
    let worker = (!has_server).then(|| -> Result<_, Failure> {
        let syncer = app::syncer(config, engine, "command")?;
        Ok(app::start_worker(config, &syncer, "command"))
    });
    let worker = worker.transpose()?;
    let outcome = until_up_to_date(&store, &mailbox).await;
    if let Some(worker) = worker {
        worker.shut_down().await;
    }
    outcome?;
    done(&mailbox, "synced", "is up to date", out)
}

async fn until_up_to_date(store: &TenantStore, mailbox: &Mailbox) -> Result<(), Failure> {
    let is_terminal = std::io::stderr().is_terminal();
    loop {
        let now = store.find_mailbox(&mailbox.id.to_string()).await?;
        let now = now.ok_or_else(|| Failure::problem("the mailbox was removed meanwhile"))?;
        if !now.state.is_synced() {
            let why = now.state_reason.unwrap_or_default();
            return Err(Failure::problem(format!("{} is {} now: {why}", now.address, now.state.as_str())));
        }
        let trouble = store.find_sync(mailbox.id).await?.filter(|state| state.error_count > 2);
        if let Some(state) = trouble {
            let why = state.last_error.unwrap_or_default();
            return Err(Failure::problem(format!("{} is not up to date, and is tried again: {why}", now.address)));
        }
        if !store.is_at_work(mailbox.id).await? {
            if is_terminal {
                eprint_line("");
            }
            let counts = store.count_ledger(mailbox.id).await?;
            return match counts.live.get("failed") {
                None => Ok(()),
                Some(failed) => Err(Failure::problem(format!(
                    "{} messages could not be fetched or stored; `mailroom mailbox resume` tries them again",
                    count(*failed)
                ))),
            };
        }
        if is_terminal {
            let counts = store.count_ledger(mailbox.id).await?;
            let of = |state: &str| counts.live.get(state).copied().unwrap_or(0);
            eprint_line(&format!(
                "{} stored, {} to fetch",
                count(of("processed")),
                count(of("queued") + of("processing"))
            ));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Over the line before.
fn eprint_line(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = write!(stderr, "\r\x1b[2K{text}"); // a terminal that is gone is no trouble
    let _ = stderr.flush();
}

async fn remove(engine: &Engine, which: &Which, erase: bool, yes: bool, out: Output) -> Result<(), Failure> {
    let mailbox = find(engine, which).await?;
    let what = if erase { "and all its mail is erased" } else { "and its mail is kept" };
    if !yes {
        if !std::io::stdin().is_terminal() {
            return Err(Failure::usage(format!("{} is disconnected {what}; say --yes", mailbox.address)));
        }
        tell(&format!("{} is disconnected {what}. Type its address to go on:", mailbox.address));
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        if answer.trim() != mailbox.address {
            return Err(Failure::problem("nothing was changed"));
        }
    }
    engine.disconnect(&mailbox).await?;
    let erased = if erase { engine.erase_mailbox(&mailbox).await? } else { 0 };
    if out.json {
        return out.object(&json!({"id": mailbox.id, "state": "disconnected", "erased": erased}));
    }
    let erased = if erase { format!(" {} emails were erased.", count(erased)) } else { String::new() };
    out.line(&format!("Disconnected {}.{erased}", mailbox.address))
}

fn changed_to(mailbox: &Mailbox, state: &str, changed: bool, out: Output) -> Result<(), Failure> {
    if !changed {
        return Err(Failure::problem(format!(
            "{} is {}; nothing was changed",
            mailbox.address,
            mailbox.state.as_str()
        )));
    }
    done(mailbox, state, &format!("is {state} now"), out)
}

fn done(mailbox: &Mailbox, word: &str, sentence: &str, out: Output) -> Result<(), Failure> {
    if out.json {
        return out.object(&json!({"id": mailbox.id, "outcome": word}));
    }
    out.line(&format!("{} {sentence}.", mailbox.address))
}
