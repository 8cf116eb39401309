//! `mailroom bench ingest --sim PROVIDER`: the first sync of mailboxes at the simulator, and new mail of one of them by push.
//!
//! The simulator is a process of its own, and so is what is measured.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde_json::{Value, json};
use store::TenantStore;
use terminal::{Failure, Output, count, note};

use super::imap::pair;
use super::ingest::IngestArgs;
use super::program::read_last_object;
use super::simulator_process::{SimulatorControl, SimulatorProcess};
use super::{number, outlook_floor, percentiles, scratch_folder};
use crate::Installation;
use crate::installation::{Variable, tenant_store};

/// Messages whose way from a push to a search is measured.
const PUSH_SAMPLES: usize = 100;

const TENANT: &str = "bench";
const PUSH_AUDIENCE: &str = "mailroom-bench";
const PUSH_SERVICE_ACCOUNT: &str = "push@bench.iam.gserviceaccount.com";

/// Quota units of a message, and of a user in a minute; see docs/providers/gmail.md.
const UNITS_PER_MESSAGE: f64 = 20.0;
const USER_UNITS_PER_MINUTE: f64 = 6_000.0;

/// A provider that `mailroom sim` simulates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SimulatedProvider {
    Gmail,
    Outlook,
}

impl SimulatedProvider {
    /// Its name for people.
    fn name(self) -> &'static str {
        match self {
            Self::Gmail => "Gmail",
            Self::Outlook => "Outlook",
        }
    }

    /// Its name in commands.
    fn as_str(self) -> &'static str {
        match self {
            Self::Gmail => "gmail",
            Self::Outlook => "outlook",
        }
    }

    /// Its part of the simulator's control API.
    fn control(self) -> &'static str {
        match self {
            Self::Gmail => "google",
            Self::Outlook => "microsoft",
        }
    }

    fn address(self, number: usize) -> String {
        match self {
            Self::Gmail => format!("user{number}@sim.example"),
            Self::Outlook => format!("user{number}@contoso.example"),
        }
    }

    /// The label of the least possible time, which is shown beside ours.
    fn floor_label(self) -> &'static str {
        match self {
            Self::Gmail => "  what the quota alone takes, s",
            Self::Outlook => "  four callers that list and read, s",
        }
    }
}

pub async fn run(
    provider: SimulatedProvider,
    args: &IngestArgs,
    installation: &dyn Installation,
    out: Output,
) -> Result<ExitCode, Failure> {
    let mailboxes = args.mailboxes.max(1);
    let each = args.messages.div_ceil(mailboxes);
    let (boxes, messages) = (count(mailboxes as u64), count(each as u64));
    note(&format!("Simulating {} with {boxes} mailboxes of {messages} messages …", provider.name()));
    let simulator = QuotaSimulator::start(provider, args, mailboxes, each)?;
    let folder = scratch_folder()?;
    let mut rounds = Vec::new();
    for n in 1..=args.rounds.max(1) {
        let data_dir = folder.path().join(format!("round-{n}"));
        let round = IngestRound { data_dir, simulator: &simulator, listen: find_free_address()?, installation };
        round.connect_mailboxes(mailboxes).await?;
        simulator.renew_quota().await?;
        let mut figures = round.sync_all(mailboxes).await?;
        figures["emails"] = json!(round.count_emails().await?);
        note(&format!("  first sync: {:.2} s", number(&figures, "seconds")));
        rounds.push(figures);
        if n == args.rounds.max(1) {
            let pushed = if args.quota { Value::Null } else { round.measure_pushes().await? };
            let emails = rounds[0]["emails"].as_u64().unwrap_or_default() as usize / mailboxes;
            let floor = if args.quota { Some(simulator.floor_seconds(emails).await?) } else { None };
            let checked = simulator.control().check_violations(provider.control(), provider.name()).await;
            show(provider, args, &rounds, &pushed, floor, out)?;
            checked?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(
    provider: SimulatedProvider,
    args: &IngestArgs,
    rounds: &[Value],
    pushed: &Value,
    floor: Option<f64>,
    out: Output,
) -> Result<(), Failure> {
    let best = rounds.iter().min_by(|a, b| seconds(a).total_cmp(&seconds(b))).cloned().unwrap_or_default();
    // Only what was fetched: drafts, spam and trash are listed and left out.
    let messages = best["emails"].as_u64().unwrap_or_default();
    let mailboxes = args.mailboxes.max(1);
    if out.json {
        return out.object(&json!({
            "messages": messages, "mailboxes": mailboxes, "latency_ms": args.latency_ms, "floor_seconds": floor,
            "first": best, "rounds": rounds, "pushed_ms": pushed,
        }));
    }
    let (message_count, name) = (count(messages), provider.name());
    out.line(&format!("{message_count} messages from {name} into SQLite, durable and searchable at the end:\n"))?;
    let mut rows = vec![
        ["first sync, s (best)".to_owned(), format!("{:.2}", seconds(&best))],
        ["  messages/s".to_owned(), count((messages as f64 / seconds(&best)) as u64)],
        ["  CPU s of ours".to_owned(), format!("{:.1}", number(&best, "cpu_seconds"))],
        ["  memory at most, MB".to_owned(), format!("{:.0}", number(&best, "peak_memory_bytes") / 1e6)],
    ];
    if let Some(floor) = floor {
        rows.push([provider.floor_label().to_owned(), format!("{floor:.2}")]);
    }
    if pushed.is_array() {
        rows.push(["change → searchable by push, ms p50 / p99".to_owned(), pair(pushed)]);
    }
    out.table(["", ""], &rows)
}

fn seconds(round: &Value) -> f64 {
    round["seconds"].as_f64().unwrap_or(f64::INFINITY)
}

/// The simulator of one provider, with or without its quotas.
struct QuotaSimulator {
    provider: SimulatedProvider,
    process: SimulatorProcess,
    has_quota: bool,
}

impl QuotaSimulator {
    fn start(provider: SimulatedProvider, args: &IngestArgs, mailboxes: usize, each: usize) -> Result<Self, Failure> {
        let (seed, latency) = (args.seed.to_string(), args.latency_ms.to_string());
        let (accounts, emails) = (mailboxes.to_string(), each.to_string());
        let mut arguments =
            vec!["--seed", &seed, "--accounts", &accounts, "--emails", &emails, "--latency-ms", &latency];
        arguments.extend(args.quota.then_some("--quota"));
        Ok(Self { provider, process: SimulatorProcess::start(&arguments)?, has_quota: args.quota })
    }

    fn control(&self) -> &SimulatorControl {
        &self.process.control
    }

    async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.control().get(&format!("{}/{path}", self.provider.control())).await
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.control().post(&format!("{}/{path}", self.provider.control()), body).await
    }

    async fn put(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.control().put(&format!("{}/{path}", self.provider.control()), body).await
    }

    /// Returns the seconds that so many messages of each mailbox take at least by the provider's limits.
    async fn floor_seconds(&self, messages: usize) -> Result<f64, Failure> {
        if self.provider == SimulatedProvider::Gmail {
            return Ok(messages as f64 * UNITS_PER_MESSAGE / USER_UNITS_PER_MINUTE * 60.0);
        }
        let address = self.provider.address(1);
        let granted = self.post(&format!("accounts/{address}/grant"), &json!({})).await?;
        self.renew_quota().await?;
        let token = granted["access_token"].as_str().unwrap_or_default();
        outlook_floor::measure(&self.control().url, token, messages).await
    }

    /// Starts a new quota at Microsoft, whose ten minutes are longer than a round.
    async fn renew_quota(&self) -> Result<(), Failure> {
        if self.has_quota && self.provider == SimulatedProvider::Outlook {
            self.put("quota", &json!({})).await?;
        }
        Ok(())
    }

    /// Returns the settings of an installation that uses this simulator and listens at that address.
    fn settings(&self, listen: SocketAddr) -> Vec<Variable> {
        match self.provider {
            SimulatedProvider::Gmail => self.google_settings(),
            SimulatedProvider::Outlook => self.microsoft_settings(listen),
        }
    }

    fn microsoft_settings(&self, listen: SocketAddr) -> Vec<Variable> {
        let url = &self.control().url;
        let mut settings = vec![
            microsoft("AUTHORITY_URL", url.clone()),
            microsoft("GRAPH_URL", url.clone()),
            microsoft("CLIENT_ID", sim::microsoft::CLIENT_ID.to_owned()),
            microsoft("CLIENT_SECRET", sim::microsoft::CLIENT_SECRET.to_owned()),
            microsoft("NOTIFICATION_URL", format!("http://{listen}/v1/hooks/graph")),
            microsoft("CALLS_PER_SECOND", "100000".to_owned()),
        ];
        if !self.has_quota {
            settings.push(microsoft("MAILBOX_REQUESTS_PER_10_MINUTES", "0".to_owned()));
        }
        settings
    }

    fn google_settings(&self) -> Vec<Variable> {
        let url = &self.control().url;
        let mut settings = vec![
            google("AUTH_URL", format!("{url}/o/oauth2/v2/auth")),
            google("TOKEN_URL", format!("{url}/token")),
            google("API_URL", url.clone()),
            google("JWKS_URL", format!("{url}/oauth2/v3/certs")),
            google("CLIENT_ID", sim::google::CLIENT_ID.to_owned()),
            google("CLIENT_SECRET", sim::google::CLIENT_SECRET.to_owned()),
            google("PUBSUB_TOPIC", "projects/bench/topics/mail".to_owned()),
            google("PUSH_SERVICE_ACCOUNT", PUSH_SERVICE_ACCOUNT.to_owned()),
            google("PUSH_AUDIENCE", PUSH_AUDIENCE.to_owned()),
            google("CALLS_PER_SECOND", "100000".to_owned()),
        ];
        if !self.has_quota {
            settings.extend([
                google("USER_UNITS_PER_MINUTE", "0".to_owned()),
                google("PROJECT_UNITS_PER_MINUTE", "0".to_owned()),
            ]);
        }
        settings
    }
}

fn google(name: &str, value: String) -> Variable {
    (format!("MAILROOM_PROVIDERS__GOOGLE__{name}"), value)
}

fn microsoft(name: &str, value: String) -> Variable {
    (format!("MAILROOM_PROVIDERS__MICROSOFT__{name}"), value)
}

/// Returns an address at which no process listens.
fn find_free_address() -> Result<SocketAddr, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// One round, in an installation of its own.
struct IngestRound<'a> {
    data_dir: PathBuf,
    simulator: &'a QuotaSimulator,
    /// The address of its server.
    listen: SocketAddr,
    installation: &'a dyn Installation,
}

impl IngestRound<'_> {
    fn address(&self, number: usize) -> String {
        self.simulator.provider.address(number)
    }

    fn settings(&self) -> Vec<Variable> {
        let data_dir = ("MAILROOM_DATA_DIR".to_owned(), self.data_dir.display().to_string());
        self.simulator.settings(self.listen).into_iter().chain([data_dir]).collect()
    }

    fn load(&self) -> Result<Box<dyn Installation>, Failure> {
        self.installation.load(None, self.settings())
    }

    fn run(&self, args: &[&str]) -> Result<Value, Failure> {
        read_last_object(Command::new(std::env::current_exe()?).args(args).arg("--json").envs(self.settings()))
    }

    /// Connects the mailboxes as a user would, with a process for each step.
    async fn connect_mailboxes(&self, mailboxes: usize) -> Result<(), Failure> {
        std::fs::create_dir_all(&self.data_dir)?;
        self.run(&["tenant", "create", TENANT])?;
        for number in 1..=mailboxes {
            let granted = self.simulator.post(&format!("accounts/{}/grant", self.address(number)), &json!({})).await?;
            let token = granted["refresh_token"].as_str().unwrap_or_default();
            let file = self.data_dir.join("token");
            std::fs::write(&file, token)?;
            let provider = self.simulator.provider.as_str();
            let mut args = vec!["mailbox", "add", provider, "--tenant", TENANT, "--backfill", "all"];
            let (file, address) = (file.to_string_lossy(), self.address(number));
            args.extend(["--address", &address, "--refresh-token-file", &file]);
            self.run(&args)?;
        }
        Ok(())
    }

    /// Runs the first sync: of one mailbox by a command, of several by a worker in this process.
    async fn sync_all(&self, mailboxes: usize) -> Result<Value, Failure> {
        if mailboxes == 1 {
            return self.run(&["mailbox", "sync", &self.address(1), "--tenant", TENANT, "--wait"]);
        }
        let installation = self.load()?;
        let engine = installation.open().await?;
        let store = tenant_store(&engine, TENANT).await?;
        let syncer = installation.syncer(&engine, "bench")?;
        let begun = Instant::now();
        let worker = installation.start_worker(&syncer, "bench");
        for number in 1..=mailboxes {
            let mailbox = store.find_mailbox(&self.address(number)).await?;
            let mailbox = mailbox.ok_or_else(|| Failure::problem("a mailbox is gone"))?;
            while store.has_sync_jobs(mailbox.id).await? {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        worker.shut_down().await;
        Ok(json!({ "seconds": seconds }))
    }

    /// Counts the stored emails: drafts, spam and trash are left out.
    async fn count_emails(&self) -> Result<u64, Failure> {
        let engine = self.load()?.open().await?;
        Ok(tenant_store(&engine, TENANT).await?.totals().await?.emails)
    }

    /// Measures, with a server, the milliseconds from a change at the provider until its email is stored.
    async fn measure_pushes(&self) -> Result<Value, Failure> {
        let mut server = ServerProcess::start(&self.data_dir, self.listen, self.settings())?;
        let url = server.read_url()?;
        // Microsoft knows the address by the subscription.
        if self.simulator.provider == SimulatedProvider::Gmail {
            let push = json!({"url": format!("{url}/v1/hooks/gmail"), "audience": PUSH_AUDIENCE,
                "service_account_email": PUSH_SERVICE_ACCOUNT, "rate_limit": false});
            self.simulator.put("push", &push).await?;
        }
        let engine = self.load()?.open().await?;
        let store = tenant_store(&engine, TENANT).await?;
        self.wait_until_watched().await?;
        let mut times = Vec::new();
        for n in 0..PUSH_SAMPLES {
            times.push(self.deliver(&store).await?);
            // Uneven, so that it is not in step with any interval.
            tokio::time::sleep(Duration::from_millis(150 + n as u64 * 7 % 200)).await;
        }
        Ok(percentiles(times))
    }

    /// Waits for the subscription to pushes. If no server listened during the first sync, it is requested again a minute or
    /// two later.
    async fn wait_until_watched(&self) -> Result<(), Failure> {
        for _ in 0..2400 {
            let watches = match self.simulator.provider {
                SimulatedProvider::Gmail => {
                    self.simulator.get(&format!("accounts/{}/watches", self.address(1))).await?
                }
                SimulatedProvider::Outlook => self.simulator.get("subscriptions").await?,
            };
            if watches["items"].as_array().is_some_and(|items| !items.is_empty()) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(Failure::problem("the mailbox is not watched"))
    }

    /// Delivers an email at the provider and returns the time until it is stored.
    async fn deliver(&self, store: &TenantStore) -> Result<Duration, Failure> {
        let before = store.totals().await?.emails;
        let begun = Instant::now();
        self.simulator.post(&format!("accounts/{}/apply", self.address(1)), &json!({"op": "deliver"})).await?;
        while store.totals().await?.emails == before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(begun.elapsed())
    }
}

/// `mailroom serve` as a process that ends when this is dropped.
struct ServerProcess(Child);

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended by itself
        let _ = self.0.wait();
    }
}

impl ServerProcess {
    fn start(data_dir: &Path, listen: SocketAddr, settings: Vec<Variable>) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--json"]).envs(settings).env("MAILROOM_SERVER__LISTEN", listen.to_string());
        let log = std::fs::File::create(data_dir.join("serve.log"))?;
        Ok(Self(command.stdout(Stdio::piped()).stderr(log).spawn()?))
    }

    /// Waits until the server listens, and returns its URL.
    fn read_url(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if let Some(stdout) = self.0.stdout.as_mut() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let announcement: Value = serde_json::from_str(&line).unwrap_or_default();
        let address = announcement["listening"].as_str().or(announcement["listen"].as_str());
        address
            .map(|address| format!("http://{address}"))
            .ok_or_else(|| Failure::problem(format!("the server said: {line}")))
    }
}
