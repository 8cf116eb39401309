//! `mailroom bench ingest --sim PROVIDER`: mailboxes at the simulator are taken in, and one of them is followed by push.
//!
//! The simulator is a process of its own, and so is what is measured.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use connectors::http::{Deadlines, Http};
use serde_json::{Value, json};
use store::TenantStore;

use super::bench::answer;
use crate::app;
use crate::cli;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{Output, count, tell};

/// Messages whose way from a push to a search is measured.
const PUSHED: usize = 100;

const TENANT: &str = "bench";
const AUDIENCE: &str = "mailroom-bench";
const PUSHER: &str = "push@bench.iam.gserviceaccount.com";

/// Quota units of a message, and of a user in a minute; see docs/providers/gmail.md.
const UNITS: f64 = 20.0;
const USER_UNITS_PER_MINUTE: f64 = 6_000.0;

impl cli::Simulated {
    /// As people say.
    fn name(self) -> &'static str {
        match self {
            Self::Gmail => "Gmail",
            Self::Outlook => "Outlook",
        }
    }

    /// As commands say.
    fn provider(self) -> &'static str {
        match self {
            Self::Gmail => "gmail",
            Self::Outlook => "outlook",
        }
    }

    /// Where the simulator is steered.
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

    /// What the time is that is shown beside ours.
    fn floor_is(self) -> &'static str {
        match self {
            Self::Gmail => "  what the quota alone takes, s",
            Self::Outlook => "  four callers that list and read, s",
        }
    }
}

pub async fn run(which: cli::Simulated, args: &cli::BenchIngest, out: Output) -> Result<ExitCode, Failure> {
    let mailboxes = args.mailboxes.max(1);
    let each = args.messages.div_ceil(mailboxes);
    let (boxes, messages) = (count(mailboxes as u64), count(each as u64));
    tell(&format!("Simulating {} with {boxes} mailboxes of {messages} messages …", which.name()));
    let sim = Sim::start(which, args, mailboxes, each)?;
    // Not the system's temporary folder: where that is memory, an fsync costs nothing.
    let folder = tempfile::Builder::new().prefix("mailroom-bench-").tempdir_in(".")?;
    let mut rounds = Vec::new();
    for n in 1..=args.rounds.max(1) {
        let place = Place { data_dir: folder.path().join(format!("round-{n}")), sim: &sim, listen: free_address()? };
        place.prepare(mailboxes).await?;
        sim.renew_quota().await?;
        let mut figures = place.take_in(mailboxes).await?;
        figures["emails"] = json!(place.emails().await?);
        tell(&format!("  first sync: {:.2} s", figures["seconds"].as_f64().unwrap_or_default()));
        rounds.push(figures);
        if n == args.rounds.max(1) {
            let pushed = if args.quota { Value::Null } else { place.follow().await? };
            let emails = rounds[0]["emails"].as_u64().unwrap_or_default() as usize / mailboxes;
            let floor = if args.quota { Some(sim.floor(emails).await?) } else { None };
            let violations = sim.get("violations").await?;
            show(which, args, &rounds, &pushed, floor, out)?;
            if violations["items"].as_array().is_none_or(|items| !items.is_empty()) {
                return Err(Failure::problem(format!("what was said is not {}'s API: {violations}", which.name())));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(
    which: cli::Simulated,
    args: &cli::BenchIngest,
    rounds: &[Value],
    pushed: &Value,
    floor: Option<f64>,
    out: Output,
) -> Result<(), Failure> {
    let seconds = |round: &Value| round["seconds"].as_f64().unwrap_or(f64::INFINITY);
    let best = rounds.iter().min_by(|a, b| seconds(a).total_cmp(&seconds(b))).cloned().unwrap_or_default();
    // What was fetched: drafts, spam and trash are named and left out.
    let messages = best["emails"].as_u64().unwrap_or_default();
    let mailboxes = args.mailboxes.max(1);
    if out.json {
        return out.object(&json!({
            "messages": messages, "mailboxes": mailboxes, "latency_ms": args.latency_ms, "floor_seconds": floor,
            "first": best, "rounds": rounds, "pushed_ms": pushed,
        }));
    }
    let (messages_said, name) = (count(messages), which.name());
    out.line(&format!("{messages_said} messages from {name} into SQLite, durable and searchable at the end:\n"))?;
    let row = |what: &str, value: String| [what.to_owned(), value];
    let mut rows = vec![
        row("first sync, s (best)", format!("{:.2}", seconds(&best))),
        row("  messages/s", count((messages as f64 / seconds(&best)) as u64)),
        row("  CPU s of ours", format!("{:.1}", best["cpu_seconds"].as_f64().unwrap_or_default())),
        row("  memory at most, MB", format!("{:.0}", best["peak_memory_bytes"].as_f64().unwrap_or_default() / 1e6)),
    ];
    if let Some(floor) = floor {
        rows.push(row(which.floor_is(), format!("{floor:.2}")));
    }
    if pushed.is_array() {
        let at = |n: usize| pushed[n].as_f64().unwrap_or_default();
        rows.push(row("change → searchable by push, ms p50 / p99", format!("{:.0} / {:.0}", at(0), at(1))));
    }
    out.table(["", ""], &rows)
}

/// The simulator, until it is dropped.
struct Sim {
    which: cli::Simulated,
    child: Child,
    url: String,
    http: Http,
    has_quota: bool,
}

impl Drop for Sim {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended by itself
        let _ = self.child.wait();
    }
}

impl Sim {
    fn start(which: cli::Simulated, args: &cli::BenchIngest, mailboxes: usize, each: usize) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["sim", "--json", "--listen", "127.0.0.1:0", "--seed", &args.seed.to_string()]);
        command.args(["--accounts", &mailboxes.to_string(), "--emails", &each.to_string()]);
        command.args(["--latency-ms", &args.latency_ms.to_string()]);
        if args.quota {
            command.arg("--quota");
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let told: Value = serde_json::from_str(&line).unwrap_or_default();
        let url = told["url"].as_str().ok_or_else(|| Failure::problem("the simulator did not start"))?.to_owned();
        let http = Http::new(Deadlines::default()).map_err(|e| Failure::problem(e.to_string()))?;
        Ok(Self { which, child, url, http, has_quota: args.quota })
    }

    async fn get(&self, path: &str) -> Result<Value, Failure> {
        let request = self.http.client.get(format!("{}/control/{}/{path}", self.url, self.which.control()));
        self.http.json(request).await.map_err(|e| Failure::problem(format!("the simulator: {e}")))
    }

    async fn steer(&self, method: &str, path: &str, body: &Value) -> Result<Value, Failure> {
        let url = format!("{}/control/{}/{path}", self.url, self.which.control());
        let request = match method {
            "PUT" => self.http.client.put(url),
            _ => self.http.client.post(url),
        };
        let request = request.header("content-type", "application/json").body(body.to_string());
        self.http.json(request).await.map_err(|e| Failure::problem(format!("the simulator: {e}")))
    }

    /// Seconds that so many messages of each mailbox take at best by the provider's limits.
    async fn floor(&self, messages: usize) -> Result<f64, Failure> {
        if self.which == cli::Simulated::Gmail {
            return Ok(messages as f64 * UNITS / USER_UNITS_PER_MINUTE * 60.0);
        }
        let address = self.which.address(1);
        let granted = self.steer("POST", &format!("accounts/{address}/grant"), &json!({})).await?;
        self.renew_quota().await?;
        let token = granted["access_token"].as_str().unwrap_or_default();
        super::bench_lanes::measure(&self.url, token, messages).await
    }

    /// Ten minutes are longer than a round.
    async fn renew_quota(&self) -> Result<(), Failure> {
        if self.has_quota && self.which == cli::Simulated::Outlook {
            self.steer("PUT", "quota", &json!({})).await?;
        }
        Ok(())
    }

    /// Where it is, for a Mailroom that is reached there.
    fn settings(&self, listen: SocketAddr) -> Vec<(String, String)> {
        match self.which {
            cli::Simulated::Gmail => self.google(),
            cli::Simulated::Outlook => self.microsoft(listen),
        }
    }

    fn microsoft(&self, listen: SocketAddr) -> Vec<(String, String)> {
        let microsoft = |name: &str, value: String| (format!("MAILROOM_PROVIDERS__MICROSOFT__{name}"), value);
        let url = &self.url;
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

    fn google(&self) -> Vec<(String, String)> {
        let google = |name: &str, value: String| (format!("MAILROOM_PROVIDERS__GOOGLE__{name}"), value);
        let url = &self.url;
        let mut settings = vec![
            google("AUTH_URL", format!("{url}/o/oauth2/v2/auth")),
            google("TOKEN_URL", format!("{url}/token")),
            google("API_URL", url.clone()),
            google("JWKS_URL", format!("{url}/oauth2/v3/certs")),
            google("CLIENT_ID", sim::google::CLIENT_ID.to_owned()),
            google("CLIENT_SECRET", sim::google::CLIENT_SECRET.to_owned()),
            google("PUBSUB_TOPIC", "projects/bench/topics/mail".to_owned()),
            google("PUSH_SERVICE_ACCOUNT", PUSHER.to_owned()),
            google("PUSH_AUDIENCE", AUDIENCE.to_owned()),
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

/// Where nobody listens, which is soon taken.
fn free_address() -> Result<SocketAddr, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// A Mailroom of one round.
struct Place<'a> {
    data_dir: std::path::PathBuf,
    sim: &'a Sim,
    /// Of its server.
    listen: SocketAddr,
}

impl Place<'_> {
    fn address(&self, number: usize) -> String {
        self.sim.which.address(number)
    }

    fn settings(&self) -> Vec<(String, String)> {
        let data_dir = ("MAILROOM_DATA_DIR".to_owned(), self.data_dir.display().to_string());
        self.sim.settings(self.listen).into_iter().chain([data_dir]).collect()
    }

    fn run(&self, args: &[&str]) -> Result<Value, Failure> {
        answer(Command::new(std::env::current_exe()?).args(args).arg("--json").envs(self.settings()))
    }

    /// As a user would, with a program for each step.
    async fn prepare(&self, mailboxes: usize) -> Result<(), Failure> {
        std::fs::create_dir_all(&self.data_dir)?;
        self.run(&["tenant", "create", TENANT])?;
        for number in 1..=mailboxes {
            let granted =
                self.sim.steer("POST", &format!("accounts/{}/grant", self.address(number)), &json!({})).await?;
            let token = granted["refresh_token"].as_str().unwrap_or_default();
            let file = self.data_dir.join("token");
            std::fs::write(&file, token)?;
            let mut args = vec!["mailbox", "add", self.sim.which.provider(), "--tenant", TENANT, "--backfill", "all"];
            let (file, address) = (file.to_string_lossy(), self.address(number));
            args.extend(["--address", &address, "--refresh-token-file", &file]);
            self.run(&args)?;
        }
        Ok(())
    }

    /// One mailbox by a command, several by a server's work in this process.
    async fn take_in(&self, mailboxes: usize) -> Result<Value, Failure> {
        if mailboxes == 1 {
            return self.run(&["mailbox", "sync", &self.address(1), "--tenant", TENANT, "--wait"]);
        }
        let config = Config::load(None, self.settings(), None)?;
        let engine = app::open(&config).await?;
        let store = app::tenant_store(&engine, TENANT).await?;
        let syncer = app::syncer(&config, &engine, "bench")?;
        let begun = Instant::now();
        let worker = app::start_worker(&config, &syncer, "bench");
        for number in 1..=mailboxes {
            let mailbox = store.find_mailbox(&self.address(number)).await?;
            let mailbox = mailbox.ok_or_else(|| Failure::problem("a mailbox is gone"))?;
            while store.is_at_work(mailbox.id).await? {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        worker.shut_down().await;
        Ok(json!({ "seconds": seconds }))
    }

    /// Those that are stored now: drafts, spam and trash are left out.
    async fn emails(&self) -> Result<u64, Failure> {
        let engine = app::open(&Config::load(None, self.settings(), None)?).await?;
        Ok(app::tenant_store(&engine, TENANT).await?.totals().await?.emails)
    }

    /// With a server, until each change is found; milliseconds from when it is made.
    async fn follow(&self) -> Result<Value, Failure> {
        let mut serve = Serve::start(&self.data_dir, self.listen, self.settings())?;
        let url = serve.url()?;
        // Microsoft is told by the subscription where we are.
        if self.sim.which == cli::Simulated::Gmail {
            let push = json!({"url": format!("{url}/v1/hooks/gmail"), "audience": AUDIENCE,
                "service_account_email": PUSHER, "rate_limit": false});
            self.sim.steer("PUT", "push", &push).await?;
        }
        let config = Config::load(None, self.settings(), None)?;
        let engine = app::open(&config).await?;
        let store = app::tenant_store(&engine, TENANT).await?;
        self.until_watched().await?;
        let mut times = Vec::new();
        for n in 0..PUSHED {
            times.push(self.deliver(&store).await?);
            // Not in step with anything.
            tokio::time::sleep(Duration::from_millis(150 + n as u64 * 7 % 200)).await;
        }
        Ok(super::bench_imap::percentiles(times))
    }

    async fn until_watched(&self) -> Result<(), Failure> {
        // Where nobody listened during the first sync, it is asked for once more a minute or two later.
        for _ in 0..2400 {
            let watches = match self.sim.which {
                cli::Simulated::Gmail => self.sim.get(&format!("accounts/{}/watches", self.address(1))).await?,
                cli::Simulated::Outlook => self.sim.get("subscriptions").await?,
            };
            if watches["items"].as_array().is_some_and(|items| !items.is_empty()) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(Failure::problem("the mailbox is not watched"))
    }

    async fn deliver(&self, store: &TenantStore) -> Result<Duration, Failure> {
        let before = store.totals().await?.emails;
        let begun = Instant::now();
        self.sim.steer("POST", &format!("accounts/{}/apply", self.address(1)), &json!({"op": "deliver"})).await?;
        while store.totals().await?.emails == before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(begun.elapsed())
    }
}

/// A server of our own, until it is dropped.
struct Serve(Child);

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended by itself
        let _ = self.0.wait();
    }
}

impl Serve {
    fn start(data_dir: &Path, listen: SocketAddr, settings: Vec<(String, String)>) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--json"]).envs(settings).env("MAILROOM_SERVER__LISTEN", listen.to_string());
        let log = std::fs::File::create(data_dir.join("serve.log"))?;
        Ok(Self(command.stdout(Stdio::piped()).stderr(log).spawn()?))
    }

    fn url(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if let Some(stdout) = self.0.stdout.as_mut() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let told: Value = serde_json::from_str(&line).unwrap_or_default();
        let at = told["listening"].as_str().or(told["listen"].as_str());
        at.map(|at| format!("http://{at}")).ok_or_else(|| Failure::problem(format!("the server said: {line}")))
    }
}
