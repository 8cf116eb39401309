//! `mailroom directory …`

use std::process::ExitCode;
use std::time::Duration;

use connectors::microsoft::is_directory;
use domain::{Choice, Provider, Rules};
use engine::Engine;
use engine::directory::{Ended, Place, Report, USUAL, Wish, is_changed};
use engine::mailboxes::Backfill;
use jiff::SignedDuration;
use serde_json::{Value, json};
use store::TenantStore;
use store::sql::directories::{Directory, DirectoryWish};

use crate::app;
use crate::cli::directory::{At, Directory as Command, Rules as RuleArgs, Set};
use crate::config::Config;
use crate::config::units::{DURATION_UNITS, parse_backfill, parse_duration};
use crate::failure::Failure;
use crate::output::{Output, count};

pub async fn run(config: &Config, command: Command, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    match command {
        Command::Set(args) => set(config, &engine, *args, out).await?,
        Command::Show { tenant } => show(&app::tenant_store(&engine, &tenant.tenant).await?, out).await?,
        Command::Discover { provider, tenant, dry_run, force } => {
            let store = app::tenant_store(&engine, &tenant.tenant).await?;
            app::must_be_active(&store, &tenant.tenant).await?;
            let looked = discover(config, &engine, &store, provider, (dry_run, force), out).await;
            // Nothing more is written from the moment on at which it was deactivated; that is what there is to say then.
            if looked.is_err() {
                app::must_be_active(&store, &tenant.tenant).await?;
            }
            return looked;
        }
        Command::Remove { provider, tenant } => {
            let store = app::tenant_store(&engine, &tenant.tenant).await?;
            remove(&engine, &store, provider, out).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl From<At> for Provider {
    fn from(at: At) -> Self {
        match at {
            At::Gmail => Self::Gmail,
            At::Outlook => Self::Outlook,
        }
    }
}

async fn set(config: &Config, engine: &Engine, args: Set, out: Output) -> Result<(), Failure> {
    let provider = args.provider.into();
    must_be_somebody(config, provider)?;
    let store = app::tenant_store(engine, &args.tenant.tenant).await?;
    let before = store.find_directory(provider).await?;
    let wish = wish(config, &args, before.as_ref())?;
    let after = json!({"settings": &wish.settings, "rules": &wish.rules, "is_paused": wish.is_paused});
    let recorded = app::recorded(engine, store.id, "directory.put", provider.as_str(), after).await?;
    match recorded.put_directory(store.id, &wish, before.as_ref()).await {
        Err(e) if is_changed(&e) => {
            return Err(Failure::problem("somebody else is changing this directory; try again"));
        }
        put => put?,
    }
    let name = provider.as_str();
    if out.json {
        return out.object(&json!({"provider": name, "is_new": before.is_none(), "is_paused": wish.is_paused}));
    }
    out.line(&match wish.is_paused {
        true => format!("The directory at {name} is known. `mailroom directory discover` looks at it."),
        false => {
            let every = SignedDuration::from_secs(wish.interval_seconds as i64);
            format!("The directory at {name} is looked at as soon as a worker is free, and every {every:#}.")
        }
    })
}

/// Without an app of ours nothing could ever be read.
fn must_be_somebody(config: &Config, provider: Provider) -> Result<(), Failure> {
    let providers = &config.providers;
    match provider {
        Provider::Gmail if providers.google.settings.service_account.is_none() => Err(Failure::usage(
            "a directory at Google needs a service account: set providers.google.service_account_file",
        )),
        Provider::Outlook if !providers.microsoft.settings.has_client() => Err(Failure::usage(
            "a directory at Microsoft needs an app that is registered there: set providers.microsoft.client_id, and client_secret_file or certificate_file",
        )),
        _ => Ok(()),
    }
}

/// What is not given stays as it was.
fn wish(config: &Config, args: &Set, before: Option<&Directory>) -> Result<DirectoryWish, Failure> {
    let backfill = match (&args.backfill, before) {
        (None, None) => config.sync.backfill,
        (None, Some(before)) => match before.backfill_seconds {
            None => Backfill::All,
            Some(0) => Backfill::None,
            Some(seconds) => Backfill::Last(Duration::from_secs(seconds)),
        },
        (Some(text), _) => parse_backfill(text).ok_or_else(|| {
            Failure::usage(format!("--backfill wants all, none or a duration like 30d, not {text:?}"))
        })?,
    };
    let interval = match &args.interval {
        None => before.map_or(USUAL, |before| Duration::from_secs(before.interval_seconds)),
        Some(text) => parse_duration(text).map_err(|_| {
            Failure::usage(format!("--interval wants a duration like 6h, not {text:?}; units are {DURATION_UNITS}"))
        })?,
    };
    let was: Place = before.map_or_else(Place::default, place);
    let wish = Wish {
        provider: args.provider.into(),
        place: Place {
            directory: args.directory.clone().or(was.directory),
            administrator: args.administrator.clone().or(was.administrator),
        },
        rules: rules(&args.rules, before)?,
        backfill,
        interval,
        is_paused: args.paused.or(before.map(|before| before.is_paused)).unwrap_or(false),
    };
    wish.checked(is_directory).map_err(|wrong| Failure::usage(format!("{}: {}", wrong.field, wrong.why)))
}

fn place(directory: &Directory) -> Place {
    serde_json::from_value(directory.settings.clone()).unwrap_or_default()
}

fn rules(args: &RuleArgs, before: Option<&Directory>) -> Result<Rules, Failure> {
    let was = match before.filter(|_| !args.no_rules) {
        None => Rules::default(),
        Some(before) => serde_json::from_value(before.rules.clone()).map_err(anyhow::Error::from)?,
    };
    let or = |given: &Vec<String>, was: Vec<String>| if given.is_empty() { was } else { given.clone() };
    Ok(Rules {
        include: Choice {
            groups: or(&args.include_group, was.include.groups),
            units: or(&args.include_unit, was.include.units),
            domains: or(&args.include_domain, was.include.domains),
            addresses: or(&args.include_address, was.include.addresses),
        },
        exclude: Choice {
            groups: or(&args.exclude_group, was.exclude.groups),
            units: or(&args.exclude_unit, was.exclude.units),
            domains: or(&args.exclude_domain, was.exclude.domains),
            addresses: or(&args.exclude_address, was.exclude.addresses),
        },
        suspended: args.suspended.unwrap_or(was.suspended),
        guests: args.guests.unwrap_or(was.guests),
        unlicensed: args.unlicensed.unwrap_or(was.unlicensed),
    })
}

async fn show(store: &TenantStore, out: Output) -> Result<(), Failure> {
    let directories = store.list_directories().await?;
    if out.json {
        return directories.iter().try_for_each(|directory| out.object(&shown(directory)));
    }
    if directories.is_empty() {
        return out.line("No directory yet; `mailroom directory set` says which one this tenant has.");
    }
    for directory in &directories {
        let place = place(directory);
        let place = place.directory.or(place.administrator).unwrap_or_default();
        let last = match (&directory.outcome, directory.last_run_at) {
            (Some(outcome), Some(at)) => format!("{outcome} at {}", at.strftime("%Y-%m-%d %H:%M:%SZ")),
            _ => "never looked at".to_owned(),
        };
        let next = match directory.is_paused {
            true => "paused".to_owned(),
            false => format!("next at {}", directory.next_at.strftime("%Y-%m-%d %H:%M:%SZ")),
        };
        out.line(&format!("{}: {place}, {last}, {next}", directory.provider.as_str()))?;
        let report = directory.last_run.clone().and_then(|report| serde_json::from_value::<Report>(report).ok());
        if let Some(report) = report {
            tell(&report, "", out)?;
        }
    }
    Ok(())
}

/// Without where a listing stands, which is of use to nobody.
fn shown(directory: &Directory) -> Value {
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
    at: Option<At>,
    (dry_run, force): (bool, bool),
    out: Output,
) -> Result<ExitCode, Failure> {
    let all = store.list_directories().await?;
    let wanted = at.map(Provider::from);
    let providers: Vec<Provider> = all
        .iter()
        .map(|found| found.provider)
        .filter(|provider| wanted.is_none_or(|wanted| wanted == *provider))
        .collect();
    if providers.is_empty() {
        return Err(Failure::problem("this tenant has no such directory; `mailroom directory set` says which it has"));
    }
    let syncer = app::syncer(config, engine, "command")?;
    let mut is_held = false;
    for provider in providers {
        let name = provider.as_str();
        let failed = |e: engine::directory::DiscoveryError| match e.is_overtaken() {
            true => Failure::problem("somebody else looks at this directory at the same time; try again"),
            false => Failure::problem(format!("the directory at {name} cannot be looked at: {e}")),
        };
        if dry_run {
            let report = syncer.try_discovery(store.id, provider, &|| {}).await.map_err(failed)?;
            told(name, "dry_run", &report.unwrap_or_default(), out)?;
            continue;
        }
        match syncer.discover(store.id, provider, force, &|| {}).await.map_err(failed)? {
            Ended::Done(report) => told(name, "done", &report, out)?,
            Ended::Held(report) => {
                is_held = true;
                told(name, "held", &report, out)?;
            }
            Ended::Nowhere => return Err(Failure::problem("the directory was removed meanwhile")),
        }
    }
    Ok(if is_held { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn told(name: &str, outcome: &str, report: &Report, out: Output) -> Result<(), Failure> {
    if out.json {
        let mut object = serde_json::to_value(report).map_err(anyhow::Error::from)?;
        object["provider"] = json!(name);
        object["outcome"] = json!(outcome);
        return out.object(&object);
    }
    out.line(&format!("{name}: {} people", count(report.people)))?;
    match (&report.reason, outcome) {
        (Some(reason), "dry_run") => {
            tell(&Report { reason: None, ..report.clone() }, "would be ", out)?;
            out.line(&format!("  but nothing would be changed: {reason}"))?;
        }
        (_, "dry_run") => tell(report, "would be ", out)?,
        _ => tell(report, "", out)?,
    }
    let rows: Vec<[String; 4]> = report
        .items
        .iter()
        .map(|item| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            [item.action.clone(), text(&item.address), text(&item.name), text(&item.reason)]
        })
        .collect();
    if !rows.is_empty() {
        out.table(["what", "address", "name", "why"], &rows)?;
    }
    if report.is_cut {
        out.line("and more")?;
    }
    Ok(())
}

fn tell(report: &Report, would: &str, out: Output) -> Result<(), Failure> {
    if let Some(reason) = &report.reason {
        out.line(&format!("  nothing was changed: {reason}"))?;
        return Ok(());
    }
    let parts = [
        (report.added, "new"),
        (report.adopted, "known to be theirs"),
        (report.returned, "looked at again"),
        (report.left, "not looked at any more"),
        (report.renamed, "called otherwise"),
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

async fn remove(engine: &Engine, store: &TenantStore, at: At, out: Output) -> Result<(), Failure> {
    let provider = Provider::from(at);
    let found = store.find_directory(provider).await?;
    let found = found.ok_or_else(|| Failure::problem("this tenant has no such directory"))?;
    let recorded = app::recorded(engine, store.id, "directory.delete", provider.as_str(), Value::Null).await?;
    match recorded.remove_directory(store.id, &found).await {
        Err(e) if is_changed(&e) => {
            return Err(Failure::problem("somebody else is changing this directory; try again"));
        }
        removed => removed?,
    }
    if out.json {
        return out.object(&json!({"provider": provider.as_str(), "removed": true}));
    }
    out.line(&format!("The directory at {} is forgotten. Mailboxes stay as they are.", provider.as_str()))
}
