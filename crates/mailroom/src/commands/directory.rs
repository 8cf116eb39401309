//! `mailroom directory …`

use std::process::ExitCode;
use std::time::Duration;

use domain::units::{DURATION_UNITS, parse_duration};
use domain::{Backfill, DirectoryLocation, DirectoryRules, PersonSelector, Provider, TenantSettings};
use engine::Engine;
use engine::directory::{
    DEFAULT_DISCOVERY_INTERVAL, DirectoryConfig, DiscoveryError, DiscoveryMode, DiscoveryOutcome, DiscoveryReport,
};
use engine::operations::{Invocation, Refusal, directories};
use jiff::SignedDuration;
use providers::app::AppUse;
use providers::registry::DECLARATIONS;
use serde_json::{Value, json};
use store::sql::directories::{Directory, DirectoryDefinition};
use store::{Precondition, TenantStore};
use terminal::{Failure, Output, count};

use super::sync_options::read_backfill;
use crate::app;
use crate::cli::directory::{DirectoryCommand as Command, DirectoryProvider, RuleArgs, SetDirectoryArgs};
use crate::config::Config;

pub async fn run(config: &Config, command: Command, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    match command {
        Command::Set(args) => set(config, &engine, *args, out).await?,
        Command::Show { tenant } => show(&app::tenant_store(&engine, &tenant.tenant).await?, out).await?,
        Command::Discover { provider, tenant, dry_run, force } => {
            let store = app::tenant_store(&engine, &tenant.tenant).await?;
            app::check_tenant_active(&store, &tenant.tenant).await?;
            let outcome = discover(config, &engine, &store, provider, (dry_run, force), out).await;
            // From the moment of a deactivation nothing is written; that is the error to report then.
            if outcome.is_err() {
                app::check_tenant_active(&store, &tenant.tenant).await?;
            }
            return outcome;
        }
        Command::Remove { provider, tenant } => {
            let store = app::tenant_store(&engine, &tenant.tenant).await?;
            remove(&engine, &store, provider, out).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl From<DirectoryProvider> for Provider {
    fn from(provider: DirectoryProvider) -> Self {
        match provider {
            DirectoryProvider::Gmail => Self::Gmail,
            DirectoryProvider::Outlook => Self::Outlook,
        }
    }
}

async fn set(config: &Config, engine: &Engine, args: SetDirectoryArgs, out: Output) -> Result<(), Failure> {
    let provider = args.provider.into();
    app::check_app_use(config, provider, AppUse::Directory)?;
    let store = app::tenant_store(engine, &args.tenant.tenant).await?;
    let before = store.find_directory(provider).await?;
    let definition = definition(config, &store.tenant_settings().await?, &args, before.as_ref())?;
    let origin = app::origin();
    let call = Invocation::begin(engine, &origin).await?;
    directories::put(&call, store.id, before.as_ref(), &definition).await.map_err(refused)?;
    let name = provider.as_str();
    if out.json {
        return out.object(&json!({"provider": name, "is_new": before.is_none(), "is_paused": definition.is_paused}));
    }
    if definition.is_paused {
        return out.line(&format!("The directory at {name} is set. `mailroom directory discover` reads it."));
    }
    let every = SignedDuration::from_secs(definition.interval_seconds as i64);
    out.line(&format!("The directory at {name} is read as soon as a worker is free, and every {every:#}."))
}

fn refused(refusal: Refusal) -> Failure {
    if refusal.is(Precondition::DirectoryChanged) {
        return Failure::problem("this directory is being changed by another process; try again");
    }
    app::refused(refusal)
}

/// Builds the configuration; options that are not given stay as before.
fn definition(
    config: &Config,
    tenant: &TenantSettings,
    args: &SetDirectoryArgs,
    before: Option<&Directory>,
) -> Result<DirectoryDefinition, Failure> {
    let backfill = match (&args.backfill, before) {
        (None, None) => tenant.resolve_backfill(None, config.sync.backfill),
        (None, Some(before)) => Backfill::from_seconds(before.backfill_seconds),
        (Some(text), _) => read_backfill(text)?,
    };
    let interval = match &args.interval {
        None => before.map_or(DEFAULT_DISCOVERY_INTERVAL, |before| Duration::from_secs(before.interval_seconds)),
        Some(text) => parse_duration(text).map_err(|_| {
            Failure::usage(format!(
                "--interval must be a duration such as 6h, not {text:?}; units are {DURATION_UNITS}"
            ))
        })?,
    };
    let was: DirectoryLocation = before.map_or_else(DirectoryLocation::default, place);
    let definition = DirectoryConfig {
        provider: args.provider.into(),
        location: DirectoryLocation {
            directory: args.directory.clone().or(was.directory),
            administrator: args.administrator.clone().or(was.administrator),
        },
        rules: rules(&args.rules, before)?,
        backfill,
        interval,
        is_paused: args.paused.or(before.map(|before| before.is_paused)).unwrap_or(false),
    };
    definition.validate(DECLARATIONS).map_err(|wrong| Failure::usage(format!("{}: {}", wrong.field, wrong.why)))
}

fn place(directory: &Directory) -> DirectoryLocation {
    serde_json::from_value(directory.settings.clone()).unwrap_or_default()
}

fn rules(args: &RuleArgs, before: Option<&Directory>) -> Result<DirectoryRules, Failure> {
    let was = match before.filter(|_| !args.no_rules) {
        None => DirectoryRules::default(),
        Some(before) => serde_json::from_value(before.rules.clone()).map_err(anyhow::Error::from)?,
    };
    Ok(DirectoryRules {
        include: PersonSelector {
            groups: given_or(&args.include_group, was.include.groups),
            units: given_or(&args.include_unit, was.include.units),
            domains: given_or(&args.include_domain, was.include.domains),
            addresses: given_or(&args.include_address, was.include.addresses),
        },
        exclude: PersonSelector {
            groups: given_or(&args.exclude_group, was.exclude.groups),
            units: given_or(&args.exclude_unit, was.exclude.units),
            domains: given_or(&args.exclude_domain, was.exclude.domains),
            addresses: given_or(&args.exclude_address, was.exclude.addresses),
        },
        suspended: args.suspended.unwrap_or(was.suspended),
        guests: args.guests.unwrap_or(was.guests),
        unlicensed: args.unlicensed.unwrap_or(was.unlicensed),
    })
}

fn given_or(given: &[String], before: Vec<String>) -> Vec<String> {
    if given.is_empty() { before } else { given.to_vec() }
}

async fn show(store: &TenantStore, out: Output) -> Result<(), Failure> {
    let directories = store.list_directories().await?;
    if out.json {
        return directories.iter().try_for_each(|directory| out.object(&directory_json(directory)));
    }
    if directories.is_empty() {
        return out.line("No directory yet; `mailroom directory set` sets one.");
    }
    for directory in &directories {
        let place = place(directory);
        let place = place.directory.or(place.administrator).unwrap_or_default();
        let last = match (&directory.outcome, directory.last_run_at) {
            (Some(outcome), Some(at)) => format!("{outcome} at {}", at.strftime("%Y-%m-%d %H:%M:%SZ")),
            _ => "never read".to_owned(),
        };
        let next = if directory.is_paused {
            "paused".to_owned()
        } else {
            format!("next at {}", directory.next_at.strftime("%Y-%m-%d %H:%M:%SZ"))
        };
        out.line(&format!("{}: {place}, {last}, {next}", directory.provider.as_str()))?;
        let report =
            directory.last_run.clone().and_then(|report| serde_json::from_value::<DiscoveryReport>(report).ok());
        if let Some(report) = report {
            print_report(&report, "", out)?;
        }
    }
    Ok(())
}

/// Renders a directory without its listing cursors.
fn directory_json(directory: &Directory) -> Value {
    json!({
        "provider": directory.provider.as_str(), "settings": directory.settings, "rules": directory.rules,
        "backfill_seconds": directory.backfill_seconds, "interval_seconds": directory.interval_seconds,
        "is_paused": directory.is_paused, "next_at": directory.next_at, "outcome": directory.outcome,
        "last_run": directory.last_run, "last_run_at": directory.last_run_at,
        "dry_run": directory.dry_run, "dry_run_at": directory.dry_run_at,
    })
}

async fn discover(
    config: &Config,
    engine: &Engine,
    store: &TenantStore,
    provider: Option<DirectoryProvider>,
    (dry_run, force): (bool, bool),
    out: Output,
) -> Result<ExitCode, Failure> {
    let all = store.list_directories().await?;
    let selected = provider.map(Provider::from);
    let providers: Vec<Provider> = all
        .iter()
        .map(|found| found.provider)
        .filter(|provider| selected.is_none_or(|selected| selected == *provider))
        .collect();
    if providers.is_empty() {
        return Err(Failure::problem("this tenant has no such directory; `mailroom directory set` sets one"));
    }
    let (syncer, origin) = (app::syncer(config, engine, "command")?, app::origin());
    let mut is_held = false;
    for provider in providers {
        let name = provider.as_str();
        if dry_run {
            let report =
                syncer.dry_run_discovery(store.id, provider, &|| {}).await.map_err(|e| discovery_failure(name, &e))?;
            print_run(name, "dry_run", &report.unwrap_or_default(), out)?;
            continue;
        }
        let mode = if force { DiscoveryMode::Forced } else { DiscoveryMode::Usual };
        let call = Invocation::begin(engine, &origin).await?;
        directories::record_discovery(&call, store.id, provider, mode).await.map_err(app::refused)?;
        match syncer.discover(store.id, provider, force, &|| {}).await.map_err(|e| discovery_failure(name, &e))? {
            DiscoveryOutcome::Done(report) => print_run(name, "done", &report, out)?,
            DiscoveryOutcome::Held(report) => {
                is_held = true;
                print_run(name, "held", &report, out)?;
            }
            DiscoveryOutcome::NotFound => return Err(Failure::problem("the directory was removed in the meantime")),
        }
    }
    Ok(if is_held { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn discovery_failure(name: &str, e: &DiscoveryError) -> Failure {
    if e.is_superseded() {
        return Failure::problem("this directory is being read by another process; try again");
    }
    Failure::problem(format!("the directory at {name} cannot be read: {e}"))
}

fn print_run(name: &str, outcome: &str, report: &DiscoveryReport, out: Output) -> Result<(), Failure> {
    if out.json {
        let mut object = serde_json::to_value(report).map_err(anyhow::Error::from)?;
        object["provider"] = json!(name);
        object["outcome"] = json!(outcome);
        return out.object(&object);
    }
    out.line(&format!("{name}: {} people", count(report.people)))?;
    match (&report.reason, outcome) {
        (Some(reason), "dry_run") => {
            print_report(&DiscoveryReport { reason: None, ..report.clone() }, "would be ", out)?;
            out.line(&format!("  but nothing would be changed: {reason}"))?;
        }
        (_, "dry_run") => print_report(report, "would be ", out)?,
        _ => print_report(report, "", out)?,
    }
    let rows: Vec<[String; 4]> = report
        .items
        .iter()
        .map(|item| {
            let [address, name, reason] =
                [&item.address, &item.name, &item.reason].map(|text| text.clone().unwrap_or_default());
            [item.action.clone(), address, name, reason]
        })
        .collect();
    if !rows.is_empty() {
        out.table(["change", "address", "name", "reason"], &rows)?;
    }
    if report.is_cut {
        out.line("and more")?;
    }
    Ok(())
}

fn print_report(report: &DiscoveryReport, would: &str, out: Output) -> Result<(), Failure> {
    if let Some(reason) = &report.reason {
        out.line(&format!("  nothing was changed: {reason}"))?;
        return Ok(());
    }
    let parts = [
        (report.added, "added"),
        (report.adopted, "linked to their users"),
        (report.returned, "synced again"),
        (report.left, "no longer synced"),
        (report.renamed, "renamed"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{} {would}{what}", count(*number)))
        .collect();
    let changes = if parts.is_empty() { "nothing changes".to_owned() } else { parts.join(", ") };
    out.line(&format!("  mailboxes: {changes}"))?;
    let left_out: Vec<String> =
        report.left_out.iter().map(|(reason, number)| format!("{} {reason}", count(*number))).collect();
    if !left_out.is_empty() {
        out.line(&format!("  left out: {}", left_out.join(", ")))?;
    }
    Ok(())
}

async fn remove(engine: &Engine, store: &TenantStore, provider: DirectoryProvider, out: Output) -> Result<(), Failure> {
    let provider = Provider::from(provider);
    let found = store.find_directory(provider).await?;
    let found = found.ok_or_else(|| Failure::problem("this tenant has no such directory"))?;
    let origin = app::origin();
    let call = Invocation::begin(engine, &origin).await?;
    directories::delete(&call, store.id, &found).await.map_err(refused)?;
    if out.json {
        return out.object(&json!({"provider": provider.as_str(), "removed": true}));
    }
    out.line(&format!("The directory at {} is removed. Mailboxes stay as they are.", provider.as_str()))
}
