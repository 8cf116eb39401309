//! `mailroom bench ingest --imap`: the first sync of a mailbox at an IMAP server, later syncs, and new mail by IDLE.
//!
//! The server is one's own, on this machine: the mailbox is filled if it is empty, and gets more mail for a while.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::SystemRandom;
use engine::Engine;
use engine::sync::mailbox_listeners::ListenSettings;
use serde_json::{Value, json};
use sim::mail::{Generator, bench_mailbox};
use store::TenantStore;
use store::sql::mailboxes::Mailbox;
use terminal::{Failure, Output, count, note};

use super::ingest::IngestArgs;
use super::program::run_program;
use super::{number, percentiles, scratch_folder};
use crate::Installation;
use crate::installation::tenant_store;

const ADDRESS: &str = "bench@bench.test";

/// How often a sync without news, and one with new messages, is measured.
const SYNC_SAMPLES: usize = 20;

/// New messages of one sync.
const NEW_MESSAGES: usize = 100;

/// Messages whose way through IDLE is measured.
const IDLE_SAMPLES: usize = 100;

pub async fn run(
    args: &IngestArgs,
    url: &str,
    installation: &dyn Installation,
    out: Output,
) -> Result<ExitCode, Failure> {
    let server = ImapServer::parse(url)?;
    let mut inbox = server.log_in()?;
    let there = inbox.count_messages()?;
    if there == 0 {
        note(&format!("Filling the mailbox with {} messages …", count(args.messages as u64)));
        inbox.append(bench_mailbox(args.seed, args.messages))?;
    }
    let messages = inbox.count_messages()?;
    let folder = scratch_folder()?;
    let mut best: Option<Value> = None;
    for n in 1..=args.rounds.max(1) {
        let figures = server.first_sync(&folder.path().join(format!("round-{n}")))?;
        note(&format!("  first sync: {:.2} s", seconds(&figures)));
        if best.as_ref().is_none_or(|best| seconds(&figures) < seconds(best)) {
            best = Some(figures);
        }
    }
    let first = best.unwrap_or_default();
    let last = folder.path().join(format!("round-{}", args.rounds.max(1)));
    let mut figures = measure_later_syncs(installation, &last, &mut inbox, args.seed).await?;
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
    let (first, messages) = (&figures["first"], figures["messages"].as_u64().unwrap_or_default());
    out.line(&format!("{} messages over IMAP into SQLite, durable and searchable at the end:\n", count(messages)))?;
    let rows = [
        ["first sync, s".to_owned(), format!("{:.2}", number(first, "seconds"))],
        ["  messages/s".to_owned(), count((messages as f64 / number(first, "seconds")) as u64)],
        ["  CPU s of ours".to_owned(), format!("{:.1}", number(first, "cpu_seconds"))],
        ["  memory at most, MB".to_owned(), format!("{:.0}", number(first, "peak_memory_bytes") / 1e6)],
        ["a look when nothing is new, ms p50 / p99".to_owned(), pair(&figures["nothing_new_ms"])],
        [format!("{NEW_MESSAGES} new messages, ms p50 / p99"), pair(&figures["many_new_ms"])],
        ["new mail → searchable by IDLE, ms p50 / p99".to_owned(), pair(&figures["heard_ms"])],
    ];
    out.table(["", ""], &rows)
}

/// Formats two percentiles.
pub fn pair(percentiles: &Value) -> String {
    let [p50, p99] = [0, 1].map(|index| percentiles[index].as_f64().unwrap_or_default());
    format!("{p50:.0} / {p99:.0}")
}

/// Measures what comes after the first sync, in this process, so that connections stay open.
async fn measure_later_syncs(
    installation: &dyn Installation,
    data_dir: &Path,
    inbox: &mut ImapInbox,
    seed: u64,
) -> Result<Value, Failure> {
    let variables = vec![("MAILROOM_DATA_DIR".to_owned(), data_dir.display().to_string())];
    let installation = installation.load(None, variables)?;
    let engine = installation.open().await?;
    let store = tenant_store(&engine, "bench").await?;
    let mailbox = store.find_mailbox(ADDRESS).await?;
    let mailbox = mailbox.ok_or_else(|| Failure::problem("the mailbox is gone"))?;
    let syncer = installation.syncer(&engine, "bench")?;
    let worker = installation.start_worker(&syncer, "bench");
    let mut more = bench_mailbox(seed + 1000, SYNC_SAMPLES * NEW_MESSAGES + IDLE_SAMPLES);
    let mut nothing_new = Vec::new();
    for _ in 0..SYNC_SAMPLES {
        nothing_new.push(time_sync(&engine, &store, &mailbox).await?);
    }
    let mut many_new = Vec::new();
    for _ in 0..SYNC_SAMPLES {
        inbox.append(more.by_ref().take(NEW_MESSAGES))?;
        many_new.push(time_sync(&engine, &store, &mailbox).await?);
    }
    let settings = ListenSettings::new("bench", Arc::new(SystemRandom));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let listening =
        engine::sync::mailbox_listeners::listen_to_mailboxes(&syncer, &settings, async { drop(stopped.await) });
    let measuring = async {
        let times = measure_idle(&store, &mailbox, inbox, &mut more).await;
        drop(stop);
        times
    };
    let (by_idle, ()) = tokio::join!(measuring, listening);
    worker.shut_down().await;
    Ok(json!({"nothing_new_ms": percentiles(nothing_new), "many_new_ms": percentiles(many_new),
        "heard_ms": percentiles(by_idle?)}))
}

/// Measures one sync, from its request to the end of its jobs.
async fn time_sync(engine: &Engine, store: &TenantStore, mailbox: &Mailbox) -> Result<Duration, Failure> {
    let begun = Instant::now();
    engine.request_sync(mailbox).await?;
    wait_until_synced(store, mailbox).await?;
    Ok(begun.elapsed())
}

/// Measures from the end of each delivery until its email is stored, which is when a search finds it.
async fn measure_idle(
    store: &TenantStore,
    mailbox: &Mailbox,
    inbox: &mut ImapInbox,
    more: &mut Generator,
) -> Result<Vec<Duration>, Failure> {
    // Until a listener is connected and has synced what came before.
    tokio::time::sleep(Duration::from_secs(6)).await;
    wait_until_synced(store, mailbox).await?;
    let mut times = Vec::new();
    for _ in 0..IDLE_SAMPLES {
        let before = store.totals().await?.emails;
        inbox.append(more.by_ref().take(1))?;
        let begun = Instant::now();
        while store.totals().await?.emails == before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        times.push(begun.elapsed());
        // Uneven, so that it is not in step with any interval.
        tokio::time::sleep(Duration::from_millis(150 + times.len() as u64 * 7 % 200)).await;
    }
    Ok(times)
}

async fn wait_until_synced(store: &TenantStore, mailbox: &Mailbox) -> Result<(), Failure> {
    while store.has_sync_jobs(mailbox.id).await? {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// The server of `imap://user:password@host:port`, without TLS.
struct ImapServer {
    host: String,
    port: u16,
    user: String,
    password: String,
}

impl ImapServer {
    fn parse(url: &str) -> Result<Self, Failure> {
        Self::parse_parts(url)
            .ok_or_else(|| Failure::usage("--imap takes imap://user:password@host:port, a server of your own"))
    }

    fn parse_parts(url: &str) -> Option<Self> {
        let (user, host) = url.strip_prefix("imap://")?.trim_end_matches('/').split_once('@')?;
        let ((user, password), (host, port)) = (user.split_once(':')?, host.rsplit_once(':')?);
        Some(Self {
            host: host.to_owned(),
            port: port.parse().ok()?,
            user: user.to_owned(),
            password: password.to_owned(),
        })
    }

    /// Connects and syncs the mailbox in an empty installation, as a user would, with a process for each step.
    fn first_sync(&self, data_dir: &Path) -> Result<Value, Failure> {
        std::fs::create_dir_all(data_dir)?;
        let password = data_dir.join("password");
        std::fs::write(&password, &self.password)?;
        let (password, port) = (password.to_string_lossy(), self.port.to_string());
        run_program(data_dir, None, &["tenant", "create", "bench"])?;
        let mut args = vec!["mailbox", "add", "imap", "--tenant", "bench", "--address", ADDRESS, "--user", &self.user];
        args.extend(["--host", &self.host, "--port", &port, "--tls", "none", "--password-file", &password]);
        args.extend(["--backfill", "all"]);
        run_program(data_dir, None, &args)?;
        run_program(data_dir, None, &["mailbox", "sync", ADDRESS, "--tenant", "bench", "--wait"])
    }

    fn log_in(&self) -> Result<ImapInbox, Failure> {
        let stream = TcpStream::connect((&*self.host, self.port))
            .map_err(|e| Failure::problem(format!("{}:{} cannot be reached: {e}", self.host, self.port)))?;
        let mut inbox = ImapInbox { stream: BufReader::new(stream) };
        inbox.run_command(&format!("LOGIN \"{}\" \"{}\"", self.user, self.password), b"")?;
        Ok(inbox)
    }
}

/// A connection over which mail is delivered and removed.
struct ImapInbox {
    stream: BufReader<TcpStream>,
}

impl ImapInbox {
    /// Sends a command, with the literal at its end, and returns the untagged responses.
    fn run_command(&mut self, command: &str, literal: &[u8]) -> Result<Vec<String>, Failure> {
        let mut bytes = format!("x {command}\r\n").into_bytes();
        bytes.extend_from_slice(literal);
        self.stream.get_mut().write_all(&bytes)?;
        let mut responses = Vec::new();
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(Failure::problem("the IMAP server went away"));
            }
            if let Some(end) = line.strip_prefix("x ") {
                if end.starts_with("OK") {
                    return Ok(responses);
                }
                return Err(Failure::problem(format!("the IMAP server says: {}", end.trim())));
            }
            responses.push(line);
        }
    }

    fn count_messages(&mut self) -> Result<u64, Failure> {
        let responses = self.run_command("STATUS INBOX (MESSAGES)", b"")?;
        let number =
            responses.iter().find_map(|line| line.split_once("MESSAGES ")?.1.split(')').next()?.trim().parse().ok());
        number.ok_or_else(|| Failure::problem("the IMAP server does not say how many messages there are"))
    }

    /// Removes the messages after the first ones: those that were delivered for the measurement.
    fn keep_only(&mut self, messages: u64) -> Result<(), Failure> {
        self.run_command("SELECT INBOX", b"")?;
        self.run_command(&format!("STORE {}:* +FLAGS.SILENT (\\Deleted)", messages + 1), b"")?;
        self.run_command("EXPUNGE", b"").map(drop)
    }

    fn append(&mut self, messages: impl Iterator<Item = sim::mail::GeneratedMessage>) -> Result<(), Failure> {
        for message in messages {
            let mut raw = message.raw;
            raw.extend_from_slice(b"\r\n");
            self.run_command(&format!("APPEND INBOX {{{}+}}", raw.len() - 2), &raw)?;
        }
        Ok(())
    }
}
