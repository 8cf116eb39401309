//! The providers of the benchmark, and mailboxes there that were synced once.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use connectors::http::{Deadlines, Http};
use domain::{PlanTier, Provider, Secret, TenantId};
use engine::Engine;
use engine::mailboxes::{Backfill, Connect};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

use crate::app;
use crate::cli::bench::BenchPoll;
use crate::commands::bench::answer;
use crate::config::Config;
use crate::failure::Failure;

/// Mailboxes that are connected at the same time.
const AT_ONCE: usize = 64;

/// The name of the tenant that has most of the mailboxes, if one has.
pub const LARGE: &str = "the large one";

/// Calls a second where nobody holds back.
const UNLIMITED: &str = "1000000";

/// The simulators, until it is dropped.
pub struct World {
    process: Option<Child>,
    pub url: String,
    http: Http,
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill(); // it may have ended by itself
            let _ = process.wait();
        }
    }
}

/// What a mailbox is called at its provider, by its number from 0 on.
struct Place {
    provider: Provider,
    control: &'static str,
    address: String,
}

impl Place {
    fn of(args: &BenchPoll, number: usize) -> Self {
        if args.one_provider || number.is_multiple_of(2) {
            let number = if args.one_provider { number } else { number / 2 };
            return Self {
                provider: Provider::Gmail,
                control: "google",
                address: format!("user{}@sim.example", number + 1),
            };
        }
        let address = format!("user{}@contoso.example", number / 2 + 1);
        Self { provider: Provider::Outlook, control: "microsoft", address }
    }
}

impl World {
    pub fn start(args: &BenchPoll) -> Result<Self, Failure> {
        let accounts = if args.one_provider { args.mailboxes } else { args.mailboxes.div_ceil(2) };
        let mut process = Command::new(std::env::current_exe()?)
            .args(["sim", "--json", "--listen", "127.0.0.1:0", "--emails", "0"])
            .args(["--accounts", &accounts.to_string(), "--latency-ms", &args.latency_ms.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let told: Value = serde_json::from_str(&line).unwrap_or_default();
        let url = told["url"].as_str().ok_or_else(|| Failure::problem("the simulator did not start"))?.to_owned();
        let mut world = Self::at(url)?;
        world.process = Some(process);
        Ok(world)
    }

    /// One that somebody else has started.
    pub fn at(url: String) -> Result<Self, Failure> {
        let http = Http::new(Deadlines::default()).map_err(|e| Failure::problem(e.to_string()))?;
        Ok(Self { process: None, url, http })
    }

    /// Requests since they were last counted, by provider.
    pub async fn requests(&self) -> Result<Value, Failure> {
        let mut requests = json!({});
        for provider in ["google", "microsoft"] {
            let url = format!("{}/control/{provider}/requests", self.url);
            let counted = self.http.json::<Value>(self.http.client.get(&url)).await.map_err(failed)?;
            let routes = counted["all"]["routes"].as_object().cloned().unwrap_or_default();
            requests[provider] = json!(routes.values().filter_map(Value::as_u64).sum::<u64>());
            let forgotten = self.http.client.delete(&url).send().await;
            forgotten.map_err(|e| Failure::problem(format!("the simulator: {e}")))?;
        }
        Ok(requests)
    }

    /// The settings of a Mailroom in that folder.
    pub fn config(&self, args: &BenchPoll, folder: &Path, database: Option<&str>) -> Result<Config, Failure> {
        let url = &self.url;
        let set = |name: &str, value: &str| (format!("MAILROOM_{name}"), value.to_owned());
        let google = |name: &str, value: &str| set(&format!("PROVIDERS__GOOGLE__{name}"), value);
        let microsoft = |name: &str, value: &str| set(&format!("PROVIDERS__MICROSOFT__{name}"), value);
        let rate = args.calls_per_second.to_string();
        let rate = if args.unlimited || args.prepare.is_some() { UNLIMITED } else { &rate };
        let mut settings = vec![
            set("DATA_DIR", &folder.display().to_string()),
            set("SYNC__MAILBOX_WORKERS", &args.in_flight.to_string()),
            google("TOKEN_URL", &format!("{url}/token")),
            google("API_URL", url),
            google("CLIENT_ID", sim::google::CLIENT_ID),
            google("CLIENT_SECRET", sim::google::CLIENT_SECRET),
            google("CALLS_PER_SECOND", rate),
            microsoft("AUTHORITY_URL", url),
            microsoft("GRAPH_URL", url),
            microsoft("CLIENT_ID", sim::microsoft::CLIENT_ID),
            microsoft("CLIENT_SECRET", sim::microsoft::CLIENT_SECRET),
            microsoft("CALLS_PER_SECOND", rate),
        ];
        settings.extend(database.map(|url| set("DATABASE__URL", url)));
        Ok(Config::load(None, settings, None)?)
    }

    async fn grant(&self, place: &Place) -> Result<String, Failure> {
        let url = format!("{}/control/{}/accounts/{}/grant", self.url, place.control, place.address);
        let request = self.http.client.post(url).header("content-type", "application/json").body("{}");
        let granted = self.http.json::<Value>(request).await.map_err(failed)?;
        let token = granted["refresh_token"].as_str();
        token.map(str::to_owned).ok_or_else(|| Failure::problem("the simulator grants nothing"))
    }
}

fn failed(e: impl std::fmt::Display) -> Failure {
    Failure::problem(format!("the simulator: {e}"))
}

/// A process of its own connects all mailboxes and syncs them once, so that its memory is not counted.
pub fn prepare_apart(args: &BenchPoll, world: &World, folder: &Path, database: Option<&str>) -> Result<(), Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "poll", "--json", "--prepare", &world.url, "--folder"]).arg(folder);
    command.args(["--mailboxes", &args.mailboxes.to_string(), "--tenants", &args.tenants.to_string()]);
    command.args(["--in-flight", &args.in_flight.to_string()]);
    command.args(database.map(|url| format!("--postgres={url}")));
    command.args(args.one_provider.then_some("--one-provider"));
    command.args(args.one_large_tenant.then_some("--one-large-tenant"));
    answer(&mut command).map(drop)
}

/// What that process does.
pub async fn prepare(args: &BenchPoll, url: &str, folder: &Path) -> Result<usize, Failure> {
    let world = World::at(url.to_owned())?;
    let config = world.config(args, folder, args.postgres.as_deref())?;
    let engine = app::open(&config).await?;
    let tenants = tenants(args, &engine).await?;
    let (world, engine, tenants) = (&world, &engine, &tenants);
    let connecting = stream::iter(0..args.mailboxes).map(|number| async move {
        let place = Place::of(args, number);
        let connect = Connect {
            secret: Some(Secret::new(world.grant(&place).await?)),
            provider: place.provider,
            address: place.address,
            settings: json!({}),
            backfill: Backfill::None,
        };
        Ok::<_, Failure>(engine.connect(tenants[whose(args, number)], connect).await?)
    });
    let made: Vec<_> = connecting.buffer_unordered(AT_ONCE).try_collect().await?;
    let syncer = app::syncer(&config, engine, "bench")?;
    let worker = app::start_worker(&config, &syncer, "bench");
    until_quiet(engine).await?;
    worker.shut_down().await;
    Ok(made.into_iter().flatten().count())
}

async fn tenants(args: &BenchPoll, engine: &Engine) -> Result<Vec<TenantId>, Failure> {
    let mut tenants = Vec::with_capacity(args.tenants);
    for number in 0..args.tenants.max(1) {
        let is_large = args.one_large_tenant && number == 0;
        let name = if is_large { LARGE.to_owned() } else { format!("tenant {number}") };
        let made = engine.store.system().create_tenant(&name, PlanTier::Standard).await?;
        tenants.extend(made.map(|tenant| tenant.id));
    }
    Ok(tenants)
}

/// The number of the tenant that has this mailbox. Each has some at both providers.
fn whose(args: &BenchPoll, number: usize) -> usize {
    let tenants = args.tenants.max(1);
    let turn = number / 2;
    if !args.one_large_tenant || tenants == 1 {
        return turn % tenants;
    }
    // Nine of ten are the large one's.
    if turn.is_multiple_of(10) { 1 + turn / 10 % (tenants - 1) } else { 0 }
}

pub async fn until_quiet(engine: &Engine) -> Result<(), Failure> {
    while engine.store.system().has_work().await? {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli;

    fn args(more: &[&str]) -> BenchPoll {
        let line = ["mailroom", "bench", "poll"].iter().chain(more);
        match cli::Cli::try_parse_from(line).unwrap().command {
            cli::Command::Bench(cli::Bench::Poll(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    fn shares(args: &BenchPoll) -> Vec<usize> {
        let mut shares = vec![0; args.tenants];
        (0..args.mailboxes).for_each(|number| shares[whose(args, number)] += 1);
        shares
    }

    #[test]
    fn mailboxes_are_spread_over_tenants_evenly_or_nine_of_ten_are_one_tenants() {
        assert!(shares(&args(&[])).iter().all(|share| *share == 50));

        let large = shares(&args(&["--one-large-tenant"]));
        assert_eq!(large[0], 9_000);
        assert!(large[1..].iter().all(|share| (4..=6).contains(share)), "{large:?}");
    }

    #[test]
    fn half_of_them_are_at_each_provider_and_no_two_are_the_same() {
        let places: Vec<Place> = (0..10_000).map(|number| Place::of(&args(&[]), number)).collect();
        assert_eq!(places.iter().filter(|place| place.provider == Provider::Outlook).count(), 5_000);
        let addresses: std::collections::HashSet<&str> = places.iter().map(|place| &*place.address).collect();
        assert_eq!(addresses.len(), 10_000);
        assert_eq!(Place::of(&args(&["--one-provider"]), 9_999).address, "user10000@sim.example");
    }
}
