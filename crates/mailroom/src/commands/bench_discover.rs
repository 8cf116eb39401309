//! `mailroom bench discover`: how long it takes until everybody of a large organisation has a mailbox, and how long a look
//! that finds nothing new.
//!
//! The provider is a process of its own, so that what is measured is ours.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use connectors::http::{Deadlines, Http};
use domain::{PlanTier, Provider};
use engine::directory::{Ended, Report};
use serde_json::{Value, json};
use store::scratch;
use store::sql::directories::DirectoryWish;

use crate::app;
use crate::cli;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{Output, count, tell};

/// The one that the simulator makes first.
const DOMAIN: &str = "org1.example";

const PROVIDERS: [Provider; 2] = [Provider::Gmail, Provider::Outlook];

pub async fn run(args: &cli::bench::BenchDiscover, out: Output) -> Result<ExitCode, Failure> {
    // Not the system's temporary folder: where that is memory, an fsync costs nothing.
    let folder = tempfile::Builder::new().prefix("mailroom-bench-").tempdir_in(".")?;
    let sim = Simulation::start(args)?;
    sim.let_us_in(folder.path()).await?;
    let mut figures = measure(&sim, folder.path(), None).await?;
    if let Some(server) = &args.postgres {
        let url = scratch::create_database(server).await?;
        let measured = measure(&sim, folder.path(), Some(&url)).await;
        scratch::drop_database(server, &url).await?;
        figures.extend(measured?);
    }
    sim.check().await?;
    if out.json {
        let all = json!({"people": args.people, "latency_ms": args.latency_ms, "looks": figures});
        return out.object(&all).map(|()| ExitCode::SUCCESS);
    }
    let text = |figure: &Value, key: &str| figure[key].as_str().unwrap_or_default().to_owned();
    let seconds = |figure: &Value, key: &str| format!("{:.2} s", figure[key].as_f64().unwrap_or_default());
    let rows: Vec<[String; 5]> = figures
        .iter()
        .map(|figure| {
            let mailboxes = count(figure["mailboxes"].as_u64().unwrap_or_default());
            let (first, again) = (seconds(figure, "first_seconds"), seconds(figure, "again_seconds"));
            [text(figure, "database"), text(figure, "provider"), mailboxes, first, again]
        })
        .collect();
    out.line(&format!("An organisation of {} people, {} ms away:", count(args.people as u64), args.latency_ms))?;
    out.table(["database", "provider", "mailboxes", "first look", "nothing new"], &rows)?;
    Ok(ExitCode::SUCCESS)
}

/// Both providers, in a database that is empty before.
async fn measure(sim: &Simulation, folder: &Path, postgres: Option<&str>) -> Result<Vec<Value>, Failure> {
    let database = if postgres.is_some() { "PostgreSQL" } else { "SQLite" };
    let mut settings = sim.settings(folder);
    settings.push(("MAILROOM_DATA_DIR".to_owned(), folder.join(database).display().to_string()));
    settings.extend(postgres.map(|url| ("MAILROOM_DATABASE__URL".to_owned(), url.to_owned())));
    let config = Config::load(None, settings, None)?;
    if postgres.is_some() {
        app::open_store(&config)?.migrate().await?;
    }
    let engine = app::open(&config).await?;
    let syncer = app::syncer(&config, &engine, "bench")?;
    let mut figures = Vec::new();
    for provider in PROVIDERS {
        tell(&format!("{database}: looking at {} …", provider.as_str()));
        let tenant = engine.store.system().create_tenant(provider.as_str(), PlanTier::Standard).await?;
        let tenant = tenant.ok_or_else(|| Failure::problem("there is a tenant already"))?.id;
        let mut unit = engine.store.tenant(tenant).write();
        unit.put_directory(&wish(provider), None);
        unit.commit().await?;
        let look = async || -> Result<(f64, Report), Failure> {
            let begun = Instant::now();
            match syncer.discover(tenant, provider, false, &|| {}).await {
                Ok(Ended::Done(report)) => Ok((begun.elapsed().as_secs_f64(), report)),
                Ok(other) => Err(Failure::problem(format!("the look ended otherwise: {other:?}"))),
                Err(e) => Err(Failure::problem(format!("the look failed: {e}"))),
            }
        };
        let (first_seconds, first) = look().await?;
        let (again_seconds, again) = look().await?;
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

fn wish(provider: Provider) -> DirectoryWish {
    let settings = match provider {
        Provider::Gmail => json!({"administrator": format!("user1@{DOMAIN}")}),
        _ => json!({"directory": DOMAIN}),
    };
    let (interval_seconds, is_paused) = (3600, true);
    DirectoryWish { provider, settings, rules: json!({}), backfill_seconds: Some(0), interval_seconds, is_paused }
}

/// The simulator, until it is dropped.
struct Simulation {
    process: Child,
    url: String,
    http: Http,
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Simulation {
    fn start(args: &cli::bench::BenchDiscover) -> Result<Self, Failure> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["sim", "--json", "--listen", "127.0.0.1:0", "--accounts", "0", "--emails", "0"])
            .args(["--organisations", "1", "--people", &args.people.to_string()])
            .args(["--latency-ms", &args.latency_ms.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take().ok_or_else(|| Failure::problem("the simulator says nothing"))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let said: Value = serde_json::from_str(&line).map_err(|e| Failure::problem(format!("the simulator: {e}")))?;
        let http = Http::new(Deadlines::default()).map_err(|e| Failure::problem(e.to_string()))?;
        Ok(Self { process, url: said["url"].as_str().unwrap_or_default().to_owned(), http })
    }

    async fn get(&self, path: &str) -> Result<Value, Failure> {
        let request = self.http.client.get(format!("{}/control/{path}", self.url));
        self.http.json(request).await.map_err(|e| Failure::problem(format!("the simulator: {e}")))
    }

    /// As their administrators do once.
    async fn let_us_in(&self, folder: &Path) -> Result<(), Failure> {
        let key = self.get("google/service-account").await?;
        std::fs::write(folder.join("account.json"), key.to_string())?;
        let url = format!("{}/control/microsoft/directories/{DOMAIN}", self.url);
        let request = self.http.client.put(url).header("content-type", "application/json");
        let consent: Result<Value, _> = self.http.json(request.body(json!({"admin_consent": true}).to_string())).await;
        consent.map(drop).map_err(|e| Failure::problem(format!("the simulator: {e}")))
    }

    fn settings(&self, folder: &Path) -> Vec<(String, String)> {
        let url = &self.url;
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

    /// Whether all that was said is as the providers describe it.
    async fn check(&self) -> Result<(), Failure> {
        for company in ["google", "microsoft"] {
            let violations = self.get(&format!("{company}/violations")).await?;
            if violations["items"].as_array().is_none_or(|items| !items.is_empty()) {
                return Err(Failure::problem(format!("what was said is not {company}'s API: {violations}")));
            }
        }
        Ok(())
    }
}
