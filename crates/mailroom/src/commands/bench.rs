//! `mailroom bench`: measured work with a table at the end. Every import is a process of its own, as a user runs it,
//! with durable settings.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use domain::EmailId;
use engine::search::Search;
use serde_json::{Value, json};
use sim::mail::{Generator, LineEnd, Profile, bench_mailbox, write_mbox};
use store::scratch;

use crate::cli;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{Output, count, size, tell};

/// Enough for a 99th percentile that one slow query does not decide.
const QUERIES: usize = 400;

pub async fn run(args: &cli::BenchIngest, out: Output) -> Result<ExitCode, Failure> {
    if let Some(url) = &args.imap {
        return super::bench_imap::run(args, url, out).await;
    }
    if let Some(which) = args.sim {
        return super::bench_sim::run(which, args, out).await;
    }
    // Not the system's temporary folder: where that is memory, an fsync costs nothing.
    let folder = tempfile::Builder::new().prefix("mailroom-bench-").tempdir_in(".")?;
    let mbox = folder.path().join("bench.mbox");
    tell(&format!("Generating {} messages …", count(args.messages as u64)));
    write(&mbox, bench_mailbox(args.seed, args.messages))?;
    tell(&format!("Measuring {} ({}), {} rounds …", mbox.display(), size(fs::metadata(&mbox)?.len()), args.rounds));
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
        searches = measure_searches(args, folder.path()).await?;
    }
    show(&results, &searches, args, out)?;
    Ok(ExitCode::SUCCESS)
}

/// The rounds of one contender.
struct Measured {
    name: &'static str,
    seconds: Vec<f64>,
    peak_memory: Option<u64>,
}

struct Searched {
    name: &'static str,
    emails: u64,
    p50: Duration,
    p99: Duration,
}

pub(super) fn write(mbox: &Path, messages: Generator) -> Result<(), Failure> {
    let mut file = BufWriter::new(File::create(mbox)?);
    write_mbox(&mut file, messages, LineEnd::CrLf)?;
    file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
    Ok(())
}

fn measure(
    name: &'static str,
    rounds: usize,
    mut round: impl FnMut(usize) -> Result<Value, Failure>,
) -> Result<Measured, Failure> {
    let mut measured = Measured { name, seconds: Vec::new(), peak_memory: None };
    for n in 0..rounds {
        let result = round(n)?;
        measured.add(&result);
        tell(&format!("  {name}: {:.2} s", measured.seconds.last().copied().unwrap_or_default()));
    }
    Ok(measured)
}

impl Measured {
    fn add(&mut self, result: &Value) {
        self.seconds.extend(result["seconds"].as_f64());
        self.peak_memory = self.peak_memory.max(result["peak_memory_bytes"].as_u64());
    }
}

async fn measure_postgres(server: &str, mbox: &Path, folder: &Path, rounds: usize) -> Result<Measured, Failure> {
    let name = "mailroom, PostgreSQL";
    let mut measured = Measured { name, seconds: Vec::new(), peak_memory: None };
    for n in 0..rounds {
        let url = scratch::create_database(server).await?;
        run_self(&folder.join(format!("postgres-{n}")), Some(&url), &["migrate"])?;
        let result = run_import(mbox, &folder.join(format!("postgres-{n}")), Some(&url));
        scratch::drop_database(server, &url).await?;
        measured.add(&result?);
        tell(&format!("  {name}: {:.2} s", measured.seconds.last().copied().unwrap_or_default()));
    }
    Ok(measured)
}

fn run_floor(program: &Path, mbox: &Path, folder: &Path, n: usize) -> Result<Value, Failure> {
    let work = folder.join(format!("floor-{n}"));
    fs::create_dir_all(&work)?;
    let result = answer(Command::new(program).arg(mbox).arg(&work));
    fs::remove_dir_all(&work)?;
    result
}

fn run_import(mbox: &Path, data_dir: &Path, url: Option<&str>) -> Result<Value, Failure> {
    let mbox = mbox.to_string_lossy();
    let result = run_self(data_dir, url, &["import", &mbox, "--tenant", "bench", "--mailbox", "bench@bench.test"]);
    if data_dir.exists() {
        fs::remove_dir_all(data_dir)?;
    }
    result
}

/// This program again, as a user would run it.
pub(super) fn run_self(data_dir: &Path, url: Option<&str>, args: &[&str]) -> Result<Value, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(args).arg("--json").env("MAILROOM_DATA_DIR", data_dir);
    if let Some(url) = url {
        command.env("MAILROOM_DATABASE__URL", url);
    }
    answer(&mut command)
}

/// The object on the last line that a program prints.
pub(super) fn answer(command: &mut Command) -> Result<Value, Failure> {
    let done = command.output()?;
    let text = String::from_utf8_lossy(&done.stdout);
    let last = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
    match last {
        Some(answer) if done.status.success() => Ok(answer),
        _ => Err(Failure::problem(format!("a measured program failed: {}", String::from_utf8_lossy(&done.stderr)))),
    }
}

async fn measure_searches(args: &cli::BenchIngest, folder: &Path) -> Result<Vec<Searched>, Failure> {
    tell(&format!("Generating {} emails to search …", count(args.search_emails as u64)));
    let mbox = folder.join("search.mbox");
    write(&mbox, Generator::new(args.seed, Profile::ordinary(args.seed, args.search_emails)))?;
    let mut searched = vec![measure_search("search, SQLite", &mbox, folder.join("search-sqlite"), None).await?];
    if let Some(server) = &args.postgres {
        let url = scratch::create_database(server).await?;
        run_self(&folder.join("search-postgres"), Some(&url), &["migrate"])?;
        let result = measure_search("search, PostgreSQL", &mbox, folder.join("search-postgres"), Some(&url)).await;
        scratch::drop_database(server, &url).await?;
        searched.push(result?);
    }
    Ok(searched)
}

async fn measure_search(
    name: &'static str,
    mbox: &Path,
    data_dir: PathBuf,
    url: Option<&str>,
) -> Result<Searched, Failure> {
    let path = mbox.to_string_lossy();
    run_self(&data_dir, url, &["import", &path, "--tenant", "bench", "--mailbox", "bench@bench.test"])?;
    let mut environment = vec![("MAILROOM_DATA_DIR".to_owned(), data_dir.to_string_lossy().into_owned())];
    environment.extend(url.map(|url| ("MAILROOM_DATABASE__URL".to_owned(), url.to_owned())));
    let config = Config::load(None, environment, None)?;
    let engine = crate::app::open(&config).await?;
    let store = crate::app::tenant_store(&engine, "bench").await?;
    // As a database does by itself within a minute.
    engine.store.system().analyze().await?;
    let search = Search { mailbox: None, limit: 50, order: Default::default(), cursor: None, marks: ("**", "**") };
    let queries = two_word_queries(&engine, &store, &search).await?;
    let mut times = Vec::with_capacity(queries.len());
    for query in &queries {
        let started = Instant::now();
        engine.search(&store, query, &search).await.map_err(|e| Failure::problem(e.to_string()))?;
        times.push(started.elapsed());
    }
    times.sort();
    let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
    Ok(Searched { name, emails: store.totals().await?.emails, p50: at(50), p99: at(99) })
}

/// Two words that stand in one email, from emails all over the mailbox: what a person who looks for it would type.
async fn two_word_queries(
    engine: &engine::Engine,
    store: &store::TenantStore,
    search: &Search,
) -> Result<Vec<String>, Failure> {
    let mut queries = Vec::new();
    let mut page = Search { limit: 200, ..search.clone() };
    while queries.len() < QUERIES {
        let found = engine.search(store, "", &page).await.map_err(|e| Failure::problem(e.to_string()))?;
        let ids: Vec<EmailId> = found.hits.iter().map(|hit| hit.email.id).collect();
        for (n, email) in store.get_searched_emails(&ids).await?.iter().enumerate() {
            let body = email.body_text.as_deref().unwrap_or_default();
            let words: Vec<&str> =
                body.split_whitespace().filter(|word| word.chars().all(char::is_alphabetic)).collect();
            if let (Some(first), Some(second)) = (words.get(n % 7), words.get(words.len() * 2 / 3)) {
                queries.push(format!("{first} {second}"));
            }
        }
        page.cursor = found.next_cursor;
        if page.cursor.is_none() {
            break;
        }
    }
    Ok(queries)
}

fn show(results: &[Measured], searches: &[Searched], args: &cli::BenchIngest, out: Output) -> Result<(), Failure> {
    let best = |measured: &Measured| measured.seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let worst = |measured: &Measured| measured.seconds.iter().copied().fold(0.0, f64::max);
    if out.json {
        for measured in results {
            out.object(
                &json!({"name": measured.name, "best_seconds": best(measured), "worst_seconds": worst(measured),
                "messages": args.messages, "peak_memory_bytes": measured.peak_memory}),
            )?;
        }
        return searches.iter().try_for_each(|searched| {
            out.object(&json!({"name": searched.name, "emails": searched.emails, "p50_ms": milliseconds(searched.p50),
                "p99_ms": milliseconds(searched.p99)}))
        });
    }
    let row = |measured: &Measured| {
        [
            measured.name.to_owned(),
            format!("{:.2}", best(measured)),
            format!("{:.2}", worst(measured)),
            count((args.messages as f64 / best(measured)) as u64),
            measured.peak_memory.map_or("-".to_owned(), size),
        ]
    };
    let rows: Vec<[String; 5]> = results.iter().map(row).collect();
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

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
