//! `mailroom bench ingest --imap`: a mailbox at an IMAP server is taken in and followed.
//!
//! The server is one's own, on this machine: the mailbox is filled if it is empty, and gets more mail for a while.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::watch::WatchSettings;
use jobs::SystemDice;
use serde_json::{Value, json};
use sim::mail::{Generator, bench_mailbox};
use store::TenantStore;
use store::sql::mailboxes::Mailbox;

use super::bench::run_self;
use crate::app;
use crate::cli;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{Output, count, tell};

const ADDRESS: &str = "bench@bench.test";

/// How often each of the short ones is measured.
const TIMES: usize = 20;

/// New messages that come together.
const MANY: usize = 100;

/// Messages whose way through IDLE is measured.
const HEARD: usize = 100;

pub async fn run(args: &cli::BenchIngest, url: &str, out: Output) -> Result<ExitCode, Failure> {
    let server = Server::of(url)?;
    let mut inbox = server.log_in()?;
    let there = inbox.messages()?;
    if there == 0 {
        tell(&format!("Filling the mailbox with {} messages …", count(args.messages as u64)));
        inbox.append(bench_mailbox(args.seed, args.messages))?;
    }
    let messages = inbox.messages()?;
    // Not the system's temporary folder: where that is memory, an fsync costs nothing.
    let folder = tempfile::Builder::new().prefix("mailroom-bench-").tempdir_in(".")?;
    let mut best: Option<Value> = None;
    for n in 1..=args.rounds.max(1) {
        let figures = server.first_sync(&folder.path().join(format!("round-{n}")))?;
        tell(&format!("  first sync: {:.2} s", seconds(&figures)));
        if best.as_ref().is_none_or(|best| seconds(&figures) < seconds(best)) {
            best = Some(figures);
        }
    }
    let first = best.unwrap_or_default();
    let last = folder.path().join(format!("round-{}", args.rounds.max(1)));
    let mut figures = follow(&last, &mut inbox, args.seed).await?;
    figures["messages"] = json!(messages);
    figures["first"] = first;
    inbox.keep_only(messages)?;
    show(&figures, out)?;
    Ok(ExitCode::SUCCESS)
}

fn seconds(figures: &Value) -> f64 {
    figures["seconds"].as_f64().unwrap_or(f64::INFINITY)
}

fn show(figures: &Value, out: Output) -> Result<(), Failure> {
    if out.json {
        return out.object(figures);
    }
    let number = |key: &str| figures["first"][key].as_f64().unwrap_or_default();
    let messages = figures["messages"].as_u64().unwrap_or_default();
    let row = |what: &str, value: String| [what.to_owned(), value];
    out.line(&format!("{} messages over IMAP into SQLite, durable and searchable at the end:\n", count(messages)))?;
    let rows = [
        row("first sync, s", format!("{:.2}", number("seconds"))),
        row("  messages/s", count((messages as f64 / number("seconds")) as u64)),
        row("  CPU s of ours", format!("{:.1}", number("cpu_seconds"))),
        row("  memory at most, MB", format!("{:.0}", number("peak_memory_bytes") / 1e6)),
        row("a look when nothing is new, ms p50 / p99", pair(figures, "nothing_new_ms")),
        row(&format!("{MANY} new messages, ms p50 / p99"), pair(figures, "many_new_ms")),
        row("new mail → searchable by IDLE, ms p50 / p99", pair(figures, "heard_ms")),
    ];
    out.table(["", ""], &rows)
}

fn pair(figures: &Value, key: &str) -> String {
    let at = |n: usize| figures[key][n].as_f64().unwrap_or_default();
    format!("{:.0} / {:.0}", at(0), at(1))
}

/// What comes after the first sync, in this process, so that connections are kept.
async fn follow(data_dir: &Path, inbox: &mut Inbox, seed: u64) -> Result<Value, Failure> {
    let settings = vec![("MAILROOM_DATA_DIR".to_owned(), data_dir.display().to_string())];
    let config = Config::load(None, settings, None)?;
    let engine = app::open(&config).await?;
    let store = app::tenant_store(&engine, "bench").await?;
    let mailbox = store.find_mailbox(ADDRESS).await?;
    let mailbox = mailbox.ok_or_else(|| Failure::problem("the mailbox is gone"))?;
    let syncer = app::syncer(&config, &engine, "bench")?;
    let worker = app::start_worker(&config, &syncer, "bench");
    let mut more = bench_mailbox(seed + 1000, TIMES * MANY + HEARD);
    let mut looks = Vec::new();
    for _ in 0..TIMES {
        looks.push(timed(&engine, &store, &mailbox).await?);
    }
    let mut many = Vec::new();
    for _ in 0..TIMES {
        inbox.append(more.by_ref().take(MANY))?;
        many.push(timed(&engine, &store, &mailbox).await?);
    }
    let watch = WatchSettings::new("bench", Arc::new(SystemDice));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let watching = engine::watch::watch(&syncer, &watch, async { drop(stopped.await) });
    let heard = async {
        let heard = heard(&store, &mailbox, inbox, &mut more).await;
        drop(stop);
        heard
    };
    let (heard, ()) = tokio::join!(heard, watching);
    worker.shut_down().await;
    Ok(json!({"nothing_new_ms": percentiles(looks), "many_new_ms": percentiles(many), "heard_ms": percentiles(heard?)}))
}

async fn timed(engine: &engine::Engine, store: &TenantStore, mailbox: &Mailbox) -> Result<Duration, Failure> {
    let begun = Instant::now();
    engine.request_sync(mailbox).await?;
    until_done(store, mailbox).await?;
    Ok(begun.elapsed())
}

/// From the end of each delivery until its email is there, which is when it can be found.
async fn heard(
    store: &TenantStore,
    mailbox: &Mailbox,
    inbox: &mut Inbox,
    more: &mut Generator,
) -> Result<Vec<Duration>, Failure> {
    // Until somebody listens, and has looked for what came before.
    tokio::time::sleep(Duration::from_secs(6)).await;
    until_done(store, mailbox).await?;
    let mut times = Vec::new();
    for _ in 0..HEARD {
        let before = store.totals().await?.emails;
        inbox.append(more.by_ref().take(1))?;
        let begun = Instant::now();
        while store.totals().await?.emails == before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        times.push(begun.elapsed());
        // Not in step with anything.
        tokio::time::sleep(Duration::from_millis(150 + times.len() as u64 * 7 % 200)).await;
    }
    Ok(times)
}

async fn until_done(store: &TenantStore, mailbox: &Mailbox) -> Result<(), Failure> {
    while store.is_at_work(mailbox.id).await? {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

pub(super) fn percentiles(mut times: Vec<Duration>) -> Value {
    times.sort();
    let at = |share: usize| times.get((times.len() * share / 100).min(times.len().saturating_sub(1)));
    let milliseconds = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1000.0);
    json!([milliseconds(at(50)), milliseconds(at(99))])
}

/// `imap://user:password@host:port`, in the open.
struct Server {
    host: String,
    port: u16,
    user: String,
    password: String,
}

impl Server {
    fn of(url: &str) -> Result<Self, Failure> {
        let parts = || {
            let (user, host) = url.strip_prefix("imap://")?.trim_end_matches('/').split_once('@')?;
            let ((user, password), (host, port)) = (user.split_once(':')?, host.rsplit_once(':')?);
            Some(Self {
                host: host.to_owned(),
                port: port.parse().ok()?,
                user: user.to_owned(),
                password: password.to_owned(),
            })
        };
        parts().ok_or_else(|| Failure::usage("--imap takes imap://user:password@host:port, a server of your own"))
    }

    /// As a user would, with a program for each step.
    fn first_sync(&self, data_dir: &Path) -> Result<Value, Failure> {
        std::fs::create_dir_all(data_dir)?;
        let password = data_dir.join("password");
        std::fs::write(&password, &self.password)?;
        let (password, port) = (password.to_string_lossy(), self.port.to_string());
        run_self(data_dir, None, &["tenant", "create", "bench"])?;
        let mut args = vec!["mailbox", "add", "imap", "--tenant", "bench", "--address", ADDRESS, "--user", &self.user];
        args.extend(["--host", &self.host, "--port", &port, "--tls", "none", "--password-file", &password]);
        args.extend(["--backfill", "all"]);
        run_self(data_dir, None, &args)?;
        run_self(data_dir, None, &["mailbox", "sync", ADDRESS, "--tenant", "bench", "--wait"])
    }

    fn log_in(&self) -> Result<Inbox, Failure> {
        let stream = TcpStream::connect((&*self.host, self.port))
            .map_err(|e| Failure::problem(format!("{}:{} cannot be reached: {e}", self.host, self.port)))?;
        let mut inbox = Inbox { stream: BufReader::new(stream) };
        inbox.does(&format!("LOGIN \"{}\" \"{}\"", self.user, self.password), b"")?;
        Ok(inbox)
    }
}

/// Mail is delivered here.
struct Inbox {
    stream: BufReader<TcpStream>,
}

impl Inbox {
    fn does(&mut self, command: &str, then: &[u8]) -> Result<Vec<String>, Failure> {
        let mut bytes = format!("x {command}\r\n").into_bytes();
        bytes.extend_from_slice(then);
        self.stream.get_mut().write_all(&bytes)?;
        let mut said = Vec::new();
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(Failure::problem("the IMAP server went away"));
            }
            if let Some(end) = line.strip_prefix("x ") {
                return match end.starts_with("OK") {
                    true => Ok(said),
                    false => Err(Failure::problem(format!("the IMAP server says: {}", end.trim()))),
                };
            }
            said.push(line);
        }
    }

    fn messages(&mut self) -> Result<u64, Failure> {
        let said = self.does("STATUS INBOX (MESSAGES)", b"")?;
        let number =
            said.iter().find_map(|line| line.split_once("MESSAGES ")?.1.split(')').next()?.trim().parse().ok());
        number.ok_or_else(|| Failure::problem("the IMAP server does not say how many messages there are"))
    }

    /// What was delivered for the measuring goes again.
    fn keep_only(&mut self, messages: u64) -> Result<(), Failure> {
        self.does("SELECT INBOX", b"")?;
        self.does(&format!("STORE {}:* +FLAGS.SILENT (\\Deleted)", messages + 1), b"")?;
        self.does("EXPUNGE", b"").map(drop)
    }

    fn append(&mut self, messages: impl Iterator<Item = sim::mail::Message>) -> Result<(), Failure> {
        for message in messages {
            let mut raw = message.raw;
            raw.extend_from_slice(b"\r\n");
            self.does(&format!("APPEND INBOX {{{}+}}", raw.len() - 2), &raw)?;
        }
        Ok(())
    }
}
