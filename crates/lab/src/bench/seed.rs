//! `mailroom bench seed`: imports the mail of one tenant, and copies it by SQL for the others.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use domain::{PlanTier, TenantId};
use engine::credentials::api_keys;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use sim::mail::{AttachmentMix, Generator, MailKind, Profile};
use terminal::{Failure, Output, count, note};

use store::Location;

use super::ingest::write_mailbox;
use super::program::run_program;
use crate::Installation;
use crate::installation::tenant_store;

/// Age of the oldest mail: two years, so that PostgreSQL has as many partitions as in use.
const MAX_MAIL_AGE: SignedDuration = SignedDuration::from_hours(2 * 365 * 24);

#[derive(Debug, Args)]
pub struct SeedArgs {
    /// Emails of all tenants together
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub emails: usize,
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub tenants: usize,
    /// File to write an API key of each tenant to, a line each
    #[arg(long, value_name = "FILE")]
    pub keys: PathBuf,
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
}

pub async fn run(args: &SeedArgs, installation: &dyn Installation, out: Output) -> Result<ExitCode, Failure> {
    let begun = Instant::now();
    let engine = installation.open().await?;
    let system = engine.store.system();
    if !system.list_tenants().await?.is_empty() {
        return Err(Failure::problem("this database has tenants; give an empty one, which nobody misses"));
    }
    let each = (args.emails / args.tenants.max(1)).max(1);
    import(installation, args.seed, each, engine.store.clock().now())?;
    let first = tenant_store(&engine, &name(1)).await?.id;
    // The copying itself needs good query plans.
    system.refresh_statistics().await?;
    let mut tenants = vec![first];
    for n in 2..=args.tenants {
        let made = system.create_tenant(&name(n), PlanTier::Standard).await?;
        tenants.extend(made.map(|tenant| tenant.id));
    }
    note(&format!("Copying {} emails for {} tenants …", count(each as u64), count(tenants.len() as u64 - 1)));
    store::bench::copy_mail(&system, first, &tenants[1..], |copied| {
        if copied.is_multiple_of(10) {
            note(&format!("  {copied} tenants, {:.0} s", begun.elapsed().as_secs_f64()));
        }
    })
    .await?;
    system.refresh_statistics().await?;
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

/// Imports generated mail by the program itself: 1 to 2 KB of text each, few attachments.
fn import(installation: &dyn Installation, seed: u64, messages: usize, now: Timestamp) -> Result<(), Failure> {
    note(&format!("Importing {} generated messages …", count(messages as u64)));
    let folder = tempfile::Builder::new().prefix("seed-").tempdir_in(installation.data_dir())?;
    let mbox = folder.path().join("INBOX.mbox");
    let kinds = MailKind::ORDINARY.into_iter().filter(|(kind, _)| *kind != MailKind::ForwardAttached).collect();
    let profile = Profile {
        kinds,
        from: now - MAX_MAIL_AGE,
        to: now,
        smallest_body: 800,
        largest_body: 2_500,
        attachments: AttachmentMix { per_twenty: 2, ..Profile::ordinary(seed, messages).attachments },
        has_logos: false,
        ..Profile::ordinary(seed, messages)
    };
    write_mailbox(&mbox, Generator::new(seed, profile))?;
    let url = match installation.database() {
        Location::Sqlite { path, .. } => format!("sqlite://{}", path.display()),
        Location::Postgres { url, .. } => url,
    };
    let path = mbox.to_string_lossy().into_owned();
    let import = ["import", &path, "--tenant", &name(1), "--mailbox", "seed@bench.test"];
    run_program(installation.data_dir(), Some(&url), &import).map(drop)
}

async fn write_keys(engine: &engine::Engine, tenants: &[TenantId], args: &SeedArgs) -> Result<(), Failure> {
    let mut text = String::new();
    for tenant in tenants {
        let (_, key) = api_keys::create(&engine.store.tenant(*tenant), "bench", &["read".to_owned()], None).await?;
        let _ = writeln!(text, "{}", key.expose()); // a string takes everything
    }
    Ok(std::fs::write(&args.keys, text)?)
}
