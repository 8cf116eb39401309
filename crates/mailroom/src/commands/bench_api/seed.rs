//! `mailroom bench seed`: mail of one tenant is really imported, and copied by SQL for the others.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use domain::{PlanTier, TenantId};
use engine::keys;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use sim::mail::{Attachments, Generator, Kind, Profile};

use super::super::bench::{run_self, write};
use crate::app;
use crate::cli::bench::BenchSeed;
use crate::config::{Config, DatabaseUrl};
use crate::failure::Failure;
use crate::output::{Output, count, tell};

/// Two years until now, so that PostgreSQL has it in as many partitions as it would have.
const SPAN: SignedDuration = SignedDuration::from_hours(2 * 365 * 24);

pub async fn run(config: &Config, args: &BenchSeed, out: Output) -> Result<ExitCode, Failure> {
    let begun = Instant::now();
    let engine = app::open(config).await?;
    let system = engine.store.system();
    if !system.list_tenants().await?.is_empty() {
        return Err(Failure::problem("this database has tenants; give an empty one, which nobody misses"));
    }
    let each = (args.emails / args.tenants.max(1)).max(1);
    import(config, args.seed, each, engine.store.clock().now())?;
    let first = app::tenant_store(&engine, &name(1)).await?.id;
    // So that the copying itself is planned well.
    system.analyze().await?;
    let mut tenants = vec![first];
    for n in 2..=args.tenants {
        let made = system.create_tenant(&name(n), PlanTier::Standard).await?;
        tenants.extend(made.map(|tenant| tenant.id));
    }
    tell(&format!("Copying {} emails for {} tenants …", count(each as u64), count(tenants.len() as u64 - 1)));
    system
        .copy_mail(first, &tenants[1..], |copied| {
            if copied.is_multiple_of(10) {
                tell(&format!("  {copied} tenants, {:.0} s", begun.elapsed().as_secs_f64()));
            }
        })
        .await?;
    system.analyze().await?;
    write_keys(&engine, &tenants, args).await?;
    let (emails, seconds) = (each * tenants.len(), begun.elapsed().as_secs_f64());
    if out.json {
        out.object(&json!({"emails": emails, "tenants": tenants.len(), "seconds": seconds}))?;
    } else {
        let (emails, tenants) = (count(emails as u64), tenants.len());
        out.line(&format!("{emails} emails of {tenants} tenants, in {seconds:.0} s."))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn name(n: usize) -> String {
    format!("tenant-{n}")
}

/// Real mail by the real program: 1 to 2 KB of text each, few files.
fn import(config: &Config, seed: u64, messages: usize, now: Timestamp) -> Result<(), Failure> {
    tell(&format!("Importing {} generated messages …", count(messages as u64)));
    let folder = tempfile::Builder::new().prefix("seed-").tempdir_in(&config.data_dir)?;
    let mbox = folder.path().join("INBOX.mbox");
    let kinds = Kind::ORDINARY.into_iter().filter(|(kind, _)| *kind != Kind::ForwardAttached).collect();
    let profile = Profile {
        kinds,
        from: now - SPAN,
        to: now,
        smallest_body: 800,
        largest_body: 2_500,
        attachments: Attachments { per_twenty: 2, ..Profile::ordinary(seed, messages).attachments },
        has_logos: false,
        ..Profile::ordinary(seed, messages)
    };
    write(&mbox, Generator::new(seed, profile))?;
    let url = match &config.database.url {
        DatabaseUrl::Sqlite(path) => format!("sqlite://{}", path.display()),
        DatabaseUrl::Postgres(url) => url.expose().clone(),
    };
    let path = mbox.to_string_lossy().into_owned();
    let import = ["import", &path, "--tenant", &name(1), "--mailbox", "seed@bench.test"];
    run_self(&config.data_dir, Some(&url), &import).map(drop)
}

async fn write_keys(engine: &engine::Engine, tenants: &[TenantId], args: &BenchSeed) -> Result<(), Failure> {
    let mut text = String::new();
    for tenant in tenants {
        let (_, key) = keys::create(&engine.store.tenant(*tenant), "bench", &["read".to_owned()], None).await?;
        let _ = writeln!(text, "{}", key.expose()); // a string takes everything
    }
    Ok(std::fs::write(&args.keys, text)?)
}
