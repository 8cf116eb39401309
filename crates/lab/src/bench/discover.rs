//! `mailroom bench discover`: how long a discovery takes that gives everybody of a large organisation a mailbox, and how long
//! one that finds nothing new.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use domain::{PlanTier, Provider, TenantId};
use engine::directory::{DiscoveryOutcome, DiscoveryReport};
use engine::sync::Syncer;
use serde_json::{Value, json};
use store::scratch;
use store::sql::directories::DirectoryDefinition;
use terminal::{Failure, Output, count, note};

use super::simulator_process::{SimulatorControl, SimulatorProcess};
use super::{number, scratch_folder};
use crate::Installation;
use crate::installation::{Variable, migrate};

/// The organisation that the simulator makes first.
const DOMAIN: &str = "org1.example";

const PROVIDERS: [Provider; 2] = [Provider::Gmail, Provider::Outlook];

#[derive(Debug, Args)]
pub struct DiscoverArgs {
    /// People in the organisation, some of them suspended, guests or without a mailbox
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub people: usize,
    /// Latency of the simulated provider
    #[arg(long, default_value_t = 20, value_name = "MS")]
    pub latency_ms: u64,
    /// Also measure on this PostgreSQL server, in a temporary database
    #[arg(long, value_name = "URL")]
    pub postgres: Option<String>,
}

pub async fn run(args: &DiscoverArgs, installation: &dyn Installation, out: Output) -> Result<ExitCode, Failure> {
    let folder = scratch_folder()?;
    let simulator = OrganisationSimulator::start(args)?;
    simulator.grant_admin_access(folder.path()).await?;
    let mut figures = measure(&simulator, installation, folder.path(), None).await?;
    if let Some(server) = &args.postgres {
        let url = scratch::create_database(server).await?;
        let measured = measure(&simulator, installation, folder.path(), Some(&url)).await;
        scratch::drop_database(server, &url).await?;
        figures.extend(measured?);
    }
    simulator.check_violations().await?;
    if out.json {
        let all = json!({"people": args.people, "latency_ms": args.latency_ms, "looks": figures});
        return out.object(&all).map(|()| ExitCode::SUCCESS);
    }
    let rows: Vec<[String; 5]> = figures
        .iter()
        .map(|figure| {
            let mailboxes = count(figure["mailboxes"].as_u64().unwrap_or_default());
            let [database, provider] =
                ["database", "provider"].map(|key| figure[key].as_str().unwrap_or_default().to_owned());
            let [first, again] = ["first_seconds", "again_seconds"].map(|key| format!("{:.2} s", number(figure, key)));
            [database, provider, mailboxes, first, again]
        })
        .collect();
    out.line(&format!("An organisation of {} people, {} ms away:", count(args.people as u64), args.latency_ms))?;
    out.table(["database", "provider", "mailboxes", "first look", "nothing new"], &rows)?;
    Ok(ExitCode::SUCCESS)
}

/// Measures both providers, in an empty database.
async fn measure(
    simulator: &OrganisationSimulator,
    installation: &dyn Installation,
    folder: &Path,
    postgres: Option<&str>,
) -> Result<Vec<Value>, Failure> {
    let database = if postgres.is_some() { "PostgreSQL" } else { "SQLite" };
    let mut settings = simulator.settings(folder);
    settings.push(("MAILROOM_DATA_DIR".to_owned(), folder.join(database).display().to_string()));
    settings.extend(postgres.map(|url| ("MAILROOM_DATABASE__URL".to_owned(), url.to_owned())));
    let installation = installation.load(None, settings)?;
    if postgres.is_some() {
        migrate(&*installation).await?;
    }
    let engine = installation.open().await?;
    let syncer = installation.syncer(&engine, "bench")?;
    let mut figures = Vec::new();
    for provider in PROVIDERS {
        note(&format!("{database}: looking at {} …", provider.as_str()));
        let tenant = engine.store.system().create_tenant(provider.as_str(), PlanTier::Standard).await?;
        let tenant = tenant.ok_or_else(|| Failure::problem("there is a tenant already"))?.id;
        let mut unit = engine.store.tenant(tenant).write();
        unit.put_directory(&directory_definition(provider), None, engine.store.system().now().await?);
        unit.commit().await?;
        let (first_seconds, first) = discover(&syncer, tenant, provider).await?;
        let (again_seconds, again) = discover(&syncer, tenant, provider).await?;
        if first.added == 0 || again.changes() != 0 {
            return Err(Failure::problem(format!("what was found is not right: {first:?}, then {again:?}")));
        }
        figures.push(json!({
            "database": database, "provider": provider.as_str(), "people": first.people, "mailboxes": first.added,
            "first_seconds": first_seconds, "again_seconds": again_seconds,
        }));
    }
    Ok(figures)
}

/// Runs a discovery and returns how many seconds it took.
async fn discover(syncer: &Syncer, tenant: TenantId, provider: Provider) -> Result<(f64, DiscoveryReport), Failure> {
    let begun = Instant::now();
    match syncer.discover(tenant, provider, false, &|| {}).await {
        Ok(DiscoveryOutcome::Done(report)) => Ok((begun.elapsed().as_secs_f64(), report)),
        Ok(other) => Err(Failure::problem(format!("the look ended otherwise: {other:?}"))),
        Err(e) => Err(Failure::problem(format!("the look failed: {e}"))),
    }
}

fn directory_definition(provider: Provider) -> DirectoryDefinition {
    let settings = match provider {
        Provider::Gmail => json!({"administrator": format!("user1@{DOMAIN}")}),
        _ => json!({"directory": DOMAIN}),
    };
    let (interval_seconds, is_paused) = (3600, true);
    DirectoryDefinition { provider, settings, rules: json!({}), backfill_seconds: Some(0), interval_seconds, is_paused }
}

/// The simulator of both providers, with one organisation.
struct OrganisationSimulator(SimulatorProcess);

impl OrganisationSimulator {
    fn start(args: &DiscoverArgs) -> Result<Self, Failure> {
        let (people, latency) = (args.people.to_string(), args.latency_ms.to_string());
        let organisation = ["--organisations", "1", "--people", &people, "--latency-ms", &latency];
        let process = SimulatorProcess::start(&[&["--accounts", "0", "--emails", "0"], &organisation[..]].concat())?;
        Ok(Self(process))
    }

    fn control(&self) -> &SimulatorControl {
        &self.0.control
    }

    /// Grants access as the administrators of the organisation do once.
    async fn grant_admin_access(&self, folder: &Path) -> Result<(), Failure> {
        let key = self.control().get("google/service-account").await?;
        std::fs::write(folder.join("account.json"), key.to_string())?;
        let consent = json!({"admin_consent": true});
        self.control().put(&format!("microsoft/directories/{DOMAIN}"), &consent).await.map(drop)
    }

    /// Returns the settings of an installation that uses this simulator.
    fn settings(&self, folder: &Path) -> Vec<Variable> {
        let url = &self.control().url;
        let google = [
            ("GOOGLE__TOKEN_URL", format!("{url}/token")),
            ("GOOGLE__API_URL", url.clone()),
            ("GOOGLE__DIRECTORY_URL", url.clone()),
            ("GOOGLE__SERVICE_ACCOUNT_FILE", folder.join("account.json").display().to_string()),
        ];
        let microsoft = [
            ("MICROSOFT__AUTHORITY_URL", url.clone()),
            ("MICROSOFT__GRAPH_URL", url.clone()),
            ("MICROSOFT__CLIENT_ID", sim::microsoft::CLIENT_ID.to_owned()),
            ("MICROSOFT__CLIENT_SECRET", sim::microsoft::CLIENT_SECRET.to_owned()),
        ];
        let all = google.into_iter().chain(microsoft);
        all.map(|(name, value)| (format!("MAILROOM_PROVIDERS__{name}"), value)).collect()
    }

    /// Fails if a call or a response was not as the providers describe it.
    async fn check_violations(&self) -> Result<(), Failure> {
        for provider in ["google", "microsoft"] {
            self.control().check_violations(provider, provider).await?;
        }
        Ok(())
    }
}
