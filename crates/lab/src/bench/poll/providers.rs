//! The simulated providers of the benchmark, and mailboxes there that were synced once.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use domain::{Actor, Backfill, MailboxSettings, PlanTier, Provider, Secret, TenantId};
use engine::Engine;
use engine::operations::mailboxes::{self, ConnectRequest};
use engine::operations::{Invocation, Origin};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use terminal::Failure;

use super::PollArgs;
use crate::Installation;
use crate::bench::program::read_last_object;
use crate::bench::simulator_process::{SimulatorControl, SimulatorProcess};
use crate::installation::Variable;

/// Mailboxes that are connected at the same time.
const MAX_CONCURRENT_CONNECTS: usize = 64;

/// The name of the tenant that has most of the mailboxes, if one has.
pub const LARGE_TENANT_NAME: &str = "the large one";

/// Calls per second without a budget: more than are made.
const UNLIMITED_CALLS_PER_SECOND: &str = "1000000";

/// The simulator of both providers.
pub struct PollProviders(SimulatorProcess);

/// A mailbox at its provider, by its number from 0 on.
struct SimulatedAccount {
    provider: Provider,
    control: &'static str,
    address: String,
}

impl SimulatedAccount {
    fn of(args: &PollArgs, number: usize) -> Self {
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

impl PollProviders {
    pub fn start(args: &PollArgs) -> Result<Self, Failure> {
        let accounts = if args.one_provider { args.mailboxes } else { args.mailboxes.div_ceil(2) };
        let (accounts, latency) = (accounts.to_string(), args.latency_ms.to_string());
        let process = SimulatorProcess::start(&["--emails", "0", "--accounts", &accounts, "--latency-ms", &latency])?;
        Ok(Self(process))
    }

    fn url(&self) -> &str {
        &self.0.control.url
    }

    /// Returns the number of requests since the last count, by provider.
    pub async fn count_requests(&self) -> Result<Value, Failure> {
        let mut requests = json!({});
        for provider in ["google", "microsoft"] {
            let path = format!("{provider}/requests");
            let counted = self.0.control.get(&path).await?;
            let routes = counted["all"]["routes"].as_object().cloned().unwrap_or_default();
            requests[provider] = json!(routes.values().filter_map(Value::as_u64).sum::<u64>());
            self.0.control.delete(&path).await?;
        }
        Ok(requests)
    }

    /// Returns the settings of an installation in that folder.
    pub fn settings(&self, args: &PollArgs, folder: &Path, database: Option<&str>) -> Vec<Variable> {
        settings(self.url(), args, folder, database)
    }
}

fn settings(url: &str, args: &PollArgs, folder: &Path, database: Option<&str>) -> Vec<Variable> {
    let rate = args.calls_per_second.to_string();
    let rate = if args.unlimited || args.prepare.is_some() { UNLIMITED_CALLS_PER_SECOND } else { &rate };
    let mut settings = vec![
        variable("DATA_DIR", &folder.display().to_string()),
        variable("SYNC__MAILBOX_WORKERS", &args.in_flight.to_string()),
        variable("PROVIDERS__GOOGLE__TOKEN_URL", &format!("{url}/token")),
        variable("PROVIDERS__GOOGLE__API_URL", url),
        variable("PROVIDERS__GOOGLE__CLIENT_ID", sim::google::CLIENT_ID),
        variable("PROVIDERS__GOOGLE__CLIENT_SECRET", sim::google::CLIENT_SECRET),
        variable("PROVIDERS__GOOGLE__CALLS_PER_SECOND", rate),
        variable("PROVIDERS__MICROSOFT__AUTHORITY_URL", url),
        variable("PROVIDERS__MICROSOFT__GRAPH_URL", url),
        variable("PROVIDERS__MICROSOFT__CLIENT_ID", sim::microsoft::CLIENT_ID),
        variable("PROVIDERS__MICROSOFT__CLIENT_SECRET", sim::microsoft::CLIENT_SECRET),
        variable("PROVIDERS__MICROSOFT__CALLS_PER_SECOND", rate),
    ];
    settings.extend(database.map(|url| variable("DATABASE__URL", url)));
    settings
}

fn variable(name: &str, value: &str) -> Variable {
    (format!("MAILROOM_{name}"), value.to_owned())
}

/// Obtains the consent of an account's owner; returns the refresh token.
async fn grant(control: &SimulatorControl, account: &SimulatedAccount) -> Result<String, Failure> {
    let path = format!("{}/accounts/{}/grant", account.control, account.address);
    let granted = control.post(&path, &json!({})).await?;
    let token = granted["refresh_token"].as_str();
    token.map(str::to_owned).ok_or_else(|| Failure::problem("the simulator grants nothing"))
}

/// Connects all mailboxes and syncs them once, in a process of its own, so that its memory is not counted.
pub fn prepare_in_child_process(
    args: &PollArgs,
    providers: &PollProviders,
    folder: &Path,
    database: Option<&str>,
) -> Result<(), Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "poll", "--json", "--prepare", providers.url(), "--folder"]).arg(folder);
    command.args(["--mailboxes", &args.mailboxes.to_string(), "--tenants", &args.tenants.to_string()]);
    command.args(["--in-flight", &args.in_flight.to_string()]);
    command.args(database.map(|url| format!("--postgres={url}")));
    command.args(args.one_provider.then_some("--one-provider"));
    command.args(args.one_large_tenant.then_some("--one-large-tenant"));
    read_last_object(&mut command).map(drop)
}

/// Connects all mailboxes and syncs them once, for [`prepare_in_child_process`]; returns their number.
pub async fn prepare(
    args: &PollArgs,
    installation: &dyn Installation,
    url: &str,
    folder: &Path,
) -> Result<usize, Failure> {
    let control = SimulatorControl::new(url)?;
    let installation = installation.load(None, settings(url, args, folder, args.postgres.as_deref()))?;
    let engine = installation.open().await?;
    let tenants = create_tenants(args, &engine).await?;
    let origin = Origin::from(Actor::Operator);
    let (control, engine, tenants, origin) = (&control, &engine, &tenants, &origin);
    let connecting = stream::iter(0..args.mailboxes).map(|number| async move {
        let account = SimulatedAccount::of(args, number);
        let connect = ConnectRequest {
            secret: Some(Secret::new(grant(control, &account).await?)),
            provider: account.provider,
            address: account.address,
            settings: MailboxSettings::default(),
            backfill: Backfill::None,
        };
        let call = Invocation::begin(engine, origin).await?;
        let created = mailboxes::create(&call, tenants[tenant_index(args, number)], &connect).await;
        created.map_err(|e| Failure::problem(e.to_string()))
    });
    let connected: Vec<_> = connecting.buffer_unordered(MAX_CONCURRENT_CONNECTS).try_collect().await?;
    let syncer = installation.syncer(engine, "bench")?;
    let worker = installation.start_worker(&syncer, "bench");
    wait_until_idle(engine).await?;
    worker.shut_down().await;
    Ok(connected.len())
}

async fn create_tenants(args: &PollArgs, engine: &Engine) -> Result<Vec<TenantId>, Failure> {
    let mut tenants = Vec::with_capacity(args.tenants);
    for number in 0..args.tenants.max(1) {
        let is_large = args.one_large_tenant && number == 0;
        let name = if is_large { LARGE_TENANT_NAME.to_owned() } else { format!("tenant {number}") };
        let created = engine.store.system().create_tenant(&name, PlanTier::Standard).await?;
        tenants.extend(created.map(|tenant| tenant.id));
    }
    Ok(tenants)
}

/// Returns the index of the tenant that has this mailbox. Each tenant has some at both providers.
fn tenant_index(args: &PollArgs, number: usize) -> usize {
    let tenants = args.tenants.max(1);
    let turn = number / 2;
    if !args.one_large_tenant || tenants == 1 {
        return turn % tenants;
    }
    // Nine of ten belong to the large tenant.
    if turn.is_multiple_of(10) { 1 + turn / 10 % (tenants - 1) } else { 0 }
}

/// Waits until no job is left to do.
pub async fn wait_until_idle(engine: &Engine) -> Result<(), Failure> {
    while store::bench::has_pending_jobs(&engine.store.system()).await? {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct PollCommandLine {
        #[command(flatten)]
        args: PollArgs,
    }

    fn args(more: &[&str]) -> PollArgs {
        PollCommandLine::try_parse_from(["poll"].iter().chain(more)).unwrap().args
    }

    fn shares(args: &PollArgs) -> Vec<usize> {
        let mut shares = vec![0; args.tenants];
        (0..args.mailboxes).for_each(|number| shares[tenant_index(args, number)] += 1);
        shares
    }

    #[test]
    fn mailboxes_are_spread_over_tenants_evenly() {
        assert!(shares(&args(&[])).iter().all(|share| *share == 50));
    }

    #[test]
    fn large_tenant_has_nine_of_ten_mailboxes() {
        let large = shares(&args(&["--one-large-tenant"]));
        assert_eq!(large[0], 9_000);
        assert!(large[1..].iter().all(|share| (4..=6).contains(share)), "{large:?}");
    }

    #[test]
    fn accounts_are_distinct_and_half_at_each_provider() {
        let accounts: Vec<SimulatedAccount> =
            (0..10_000).map(|number| SimulatedAccount::of(&args(&[]), number)).collect();
        assert_eq!(accounts.iter().filter(|account| account.provider == Provider::Outlook).count(), 5_000);
        let addresses: std::collections::HashSet<&str> = accounts.iter().map(|account| &*account.address).collect();
        assert_eq!(addresses.len(), 10_000);
        assert_eq!(SimulatedAccount::of(&args(&["--one-provider"]), 9_999).address, "user10000@sim.example");
    }
}
