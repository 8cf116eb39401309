//! `mailroom bench ingest`: imports of a generated mailbox and searches in it. Every import is a process of its own, as a
//! user runs it, with durable settings.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Args;
use domain::EmailId;
use engine::archive::search::SearchRequest;
use serde_json::{Value, json};
use sim::mail::{Generator, LineEnd, Profile, bench_mailbox, write_mbox};
use store::scratch;
use terminal::{Failure, Output, count, note, size};

use super::program::{read_last_object, run_program};
use super::simulated::SimulatedProvider;
use super::{milliseconds, percentile, scratch_folder};
use crate::Installation;
use crate::installation::tenant_store;

/// Enough for a 99th percentile that one slow query does not decide.
const QUERIES: usize = 400;

#[derive(Debug, Args)]
pub struct IngestArgs {
    /// Messages in the mailbox; 10,000 are 177 MB
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub messages: usize,
    /// Emails in the database that is searched
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub search_emails: usize,
    /// Runs of each import; the table shows best and worst
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub rounds: usize,
    /// Also measure on this PostgreSQL server, in temporary databases
    #[arg(long, value_name = "URL")]
    pub postgres: Option<String>,
    /// Measure a mailbox at this IMAP server instead (imap://user:password@host:port); it is filled if it is empty
    #[arg(long, value_name = "URL")]
    pub imap: Option<String>,
    /// Measure mailboxes at this simulated provider instead
    #[arg(long, value_name = "PROVIDER", conflicts_with = "imap")]
    pub sim: Option<SimulatedProvider>,
    /// Mailboxes that the messages are spread over, with --sim
    #[arg(long, default_value_t = 1, value_name = "N", requires = "sim")]
    pub mailboxes: usize,
    /// Latency of the simulated provider
    #[arg(long, default_value_t = 0, value_name = "MS", requires = "sim")]
    pub latency_ms: u64,
    /// Simulate the provider's documented quotas
    #[arg(long, requires = "sim")]
    pub quota: bool,
    /// A peer to measure in the same run: a program that takes an mbox and a working folder and prints `{"seconds":x}`
    #[arg(long, value_name = "PROGRAM")]
    pub floor: Option<PathBuf>,
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
}

pub async fn run(args: &IngestArgs, installation: &dyn Installation, out: Output) -> Result<ExitCode, Failure> {
    if let Some(url) = &args.imap {
        return super::imap::run(args, url, installation, out).await;
    }
    if let Some(provider) = args.sim {
        return super::simulated::run(provider, args, installation, out).await;
    }
    let folder = scratch_folder()?;
    let mbox = folder.path().join("bench.mbox");
    note(&format!("Generating {} messages …", count(args.messages as u64)));
    write_mailbox(&mbox, bench_mailbox(args.seed, args.messages))?;
    note(&format!("Measuring {} ({}), {} rounds …", mbox.display(), size(fs::metadata(&mbox)?.len()), args.rounds));
    let mut results = Vec::new();
    if let Some(program) = &args.floor {
        results.push(measure("floor: one thread, blobs not synced", args.rounds, |n| {
            run_floor(program, &mbox, folder.path(), n)
        })?);
    }
    results.push(measure("mailroom, SQLite", args.rounds, |n| {
        run_import(&mbox, &folder.path().join(format!("sqlite-{n}")), None)
    })?);
    if let Some(server) = &args.postgres {
        results.push(measure_postgres(server, &mbox, folder.path(), args.rounds).await?);
    }
    let mut searches = Vec::new();
    if args.search_emails > 0 {
        searches = measure_searches(args, installation, folder.path()).await?;
    }
    show(&results, &searches, args, out)?;
    Ok(ExitCode::SUCCESS)
}

/// The rounds of one contender.
struct ImportTimes {
    name: &'static str,
    seconds: Vec<f64>,
    peak_memory: Option<u64>,
}

/// How long searches took in one database.
struct SearchTimes {
    name: &'static str,
    emails: u64,
    p50: Duration,
    p99: Duration,
}

/// Writes an mbox file, durably.
pub fn write_mailbox(mbox: &Path, messages: Generator) -> Result<(), Failure> {
    let mut file = BufWriter::new(File::create(mbox)?);
    write_mbox(&mut file, messages, LineEnd::CrLf)?;
    file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
    Ok(())
}

fn measure(
    name: &'static str,
    rounds: usize,
    mut round: impl FnMut(usize) -> Result<Value, Failure>,
) -> Result<ImportTimes, Failure> {
    let mut measured = ImportTimes { name, seconds: Vec::new(), peak_memory: None };
    for n in 0..rounds {
        let result = round(n)?;
        measured.add(&result);
        note(&format!("  {name}: {:.2} s", measured.seconds.last().copied().unwrap_or_default()));
    }
    Ok(measured)
}

impl ImportTimes {
    fn best(&self) -> f64 {
        self.seconds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn worst(&self) -> f64 {
        self.seconds.iter().copied().fold(0.0, f64::max)
    }

    fn add(&mut self, result: &Value) {
        self.seconds.extend(result["seconds"].as_f64());
        self.peak_memory = self.peak_memory.max(result["peak_memory_bytes"].as_u64());
    }
}

async fn measure_postgres(server: &str, mbox: &Path, folder: &Path, rounds: usize) -> Result<ImportTimes, Failure> {
    let name = "mailroom, PostgreSQL";
    let mut measured = ImportTimes { name, seconds: Vec::new(), peak_memory: None };
    for n in 0..rounds {
        let url = scratch::create_database(server).await?;
        run_program(&folder.join(format!("postgres-{n}")), Some(&url), &["migrate"])?;
        let result = run_import(mbox, &folder.join(format!("postgres-{n}")), Some(&url));
        scratch::drop_database(server, &url).await?;
        measured.add(&result?);
        note(&format!("  {name}: {:.2} s", measured.seconds.last().copied().unwrap_or_default()));
    }
    Ok(measured)
}

fn run_floor(program: &Path, mbox: &Path, folder: &Path, n: usize) -> Result<Value, Failure> {
    let work = folder.join(format!("floor-{n}"));
    fs::create_dir_all(&work)?;
    let result = read_last_object(Command::new(program).arg(mbox).arg(&work));
    fs::remove_dir_all(&work)?;
    result
}

fn run_import(mbox: &Path, data_dir: &Path, url: Option<&str>) -> Result<Value, Failure> {
    let mbox = mbox.to_string_lossy();
    let result = run_program(data_dir, url, &["import", &mbox, "--tenant", "bench", "--mailbox", "bench@bench.test"]);
    if data_dir.exists() {
        fs::remove_dir_all(data_dir)?;
    }
    result
}

async fn measure_searches(
    args: &IngestArgs,
    installation: &dyn Installation,
    folder: &Path,
) -> Result<Vec<SearchTimes>, Failure> {
    note(&format!("Generating {} emails to search …", count(args.search_emails as u64)));
    let mbox = folder.join("search.mbox");
    write_mailbox(&mbox, Generator::new(args.seed, Profile::ordinary(args.seed, args.search_emails)))?;
    let data_dir = folder.join("search-sqlite");
    let mut searches = vec![measure_search("search, SQLite", &mbox, installation, data_dir, None).await?];
    if let Some(server) = &args.postgres {
        let url = scratch::create_database(server).await?;
        run_program(&folder.join("search-postgres"), Some(&url), &["migrate"])?;
        let data_dir = folder.join("search-postgres");
        let result = measure_search("search, PostgreSQL", &mbox, installation, data_dir, Some(&url)).await;
        scratch::drop_database(server, &url).await?;
        searches.push(result?);
    }
    Ok(searches)
}

async fn measure_search(
    name: &'static str,
    mbox: &Path,
    installation: &dyn Installation,
    data_dir: PathBuf,
    url: Option<&str>,
) -> Result<SearchTimes, Failure> {
    let path = mbox.to_string_lossy();
    run_program(&data_dir, url, &["import", &path, "--tenant", "bench", "--mailbox", "bench@bench.test"])?;
    let mut environment = vec![("MAILROOM_DATA_DIR".to_owned(), data_dir.to_string_lossy().into_owned())];
    environment.extend(url.map(|url| ("MAILROOM_DATABASE__URL".to_owned(), url.to_owned())));
    let engine = installation.load(None, environment)?.open().await?;
    let store = tenant_store(&engine, "bench").await?;
    // A database does so by itself within a minute.
    engine.store.system().refresh_statistics().await?;
    let search = SearchRequest { limit: 50, marks: ("**", "**"), ..SearchRequest::default() };
    let queries = two_word_queries(&engine, &store, &search).await?;
    let mut times = Vec::with_capacity(queries.len());
    for query in &queries {
        let started = Instant::now();
        engine.search(&store, query, &search).await.map_err(|e| Failure::problem(e.to_string()))?;
        times.push(started.elapsed());
    }
    times.sort();
    let (p50, p99) = (percentile(&times, 50), percentile(&times, 99));
    Ok(SearchTimes { name, emails: store.totals().await?.emails, p50, p99 })
}

/// Makes queries of two words that occur in one email, from emails all over the mailbox, as a person who looks for the email
/// would type them.
async fn two_word_queries(
    engine: &engine::Engine,
    store: &store::TenantStore,
    search: &SearchRequest,
) -> Result<Vec<String>, Failure> {
    let mut queries = Vec::new();
    let mut page = SearchRequest { limit: 200, ..search.clone() };
    while queries.len() < QUERIES {
        let results = engine.search(store, "", &page).await.map_err(|e| Failure::problem(e.to_string()))?;
        let ids: Vec<EmailId> = results.hits.iter().map(|hit| hit.email.id).collect();
        for (n, email) in store.get_searched_emails(&ids).await?.iter().enumerate() {
            let body = email.body_text.as_deref().unwrap_or_default();
            let words: Vec<&str> =
                body.split_whitespace().filter(|word| word.chars().all(char::is_alphabetic)).collect();
            if let (Some(first), Some(second)) = (words.get(n % 7), words.get(words.len() * 2 / 3)) {
                queries.push(format!("{first} {second}"));
            }
        }
        page.cursor = results.next_cursor;
        if page.cursor.is_none() {
            break;
        }
    }
    Ok(queries)
}

fn show(results: &[ImportTimes], searches: &[SearchTimes], args: &IngestArgs, out: Output) -> Result<(), Failure> {
    if out.json {
        for measured in results {
            out.object(
                &json!({"name": measured.name, "best_seconds": measured.best(), "worst_seconds": measured.worst(),
                "messages": args.messages, "peak_memory_bytes": measured.peak_memory}),
            )?;
        }
        return searches.iter().try_for_each(|search| {
            out.object(&json!({"name": search.name, "emails": search.emails, "p50_ms": milliseconds(search.p50),
                "p99_ms": milliseconds(search.p99)}))
        });
    }
    let rows: Vec<[String; 5]> = results
        .iter()
        .map(|measured| {
            [
                measured.name.to_owned(),
                format!("{:.2}", measured.best()),
                format!("{:.2}", measured.worst()),
                count((args.messages as f64 / measured.best()) as u64),
                measured.peak_memory.map_or("-".to_owned(), size),
            ]
        })
        .collect();
    out.line(&format!("Import of {} messages, durable and searchable at the end:\n", count(args.messages as u64)))?;
    out.table(["", "best s", "worst s", "messages/s", "peak memory"], &rows)?;
    let rows: Vec<[String; 4]> = searches
        .iter()
        .map(|s| {
            [
                s.name.to_owned(),
                count(s.emails),
                format!("{:.1}", milliseconds(s.p50)),
                format!("{:.1}", milliseconds(s.p99)),
            ]
        })
        .collect();
    out.line("\nTwo-word searches, 50 emails with snippets each:\n")?;
    out.table(["", "emails", "p50 ms", "p99 ms"], &rows)
}
