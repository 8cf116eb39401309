//! Backups of PostgreSQL by its own programs: `pg_dump` and `pg_restore`.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use tokio_postgres::config::Host;
use tokio_postgres::{Config, IsolationLevel};

use super::roles::{self, SYSTEM_ROLE};
use super::{Postgres, error, isolation_check};
use crate::StoreError;
use crate::snapshot::{LivePack, Snapshot};

/// Dumps the database. `pg_dump` takes the snapshot that we hold open, so that both read the same state.
pub(crate) async fn take(url: &str, to: &Path) -> Result<Snapshot, StoreError> {
    let db = Postgres::open(url, 1)?;
    let mut client = db.client().await?;
    let moment = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    let moment = moment.start().await.map_err(error)?;
    let problems = isolation_check::find_problems(moment.client()).await?;
    if let Some(first) = problems.iter().find(|problem| !problem.starts_with("the login ")) {
        // A policy that was changed by hand could leave rows out in silence.
        return Err(StoreError::Refused(format!("the dump might not be whole: {first}").into()));
    }
    moment.batch_execute(&format!("set local role {SYSTEM_ROLE}")).await.map_err(|_| login_without_rights())?;
    let id: String = moment.query_one("select pg_export_snapshot()", &[]).await.map_err(error)?.get(0);
    let about = "select max(version), min(applied_at) filter (where version = 1) from schema_migrations";
    let about = moment.query_one(about, &[]).await.map_err(error)?;
    let packs = "select object_key, coalesce(size_bytes, 0) from packs where state = 'live' order by id";
    let packs = moment.query(packs, &[]).await.map_err(error)?;

    let snapshot = format!("--snapshot={id}");
    // Into a file that is open already: should we be killed, `pg_dump` must not find the next one under its name.
    let to = File::options().write(true).open(to).map_err(|e| StoreError::other(e.to_string()))?;
    let role = format!("--role={SYSTEM_ROLE}");
    let args = ["--format=custom", "--no-owner", "--enable-row-security", &role, &snapshot].map(OsStr::new);
    run("pg_dump", url, &args, Stdio::null(), to.into()).await?;
    Ok(Snapshot {
        schema_version: u32::try_from(about.get::<_, i32>(0)).unwrap_or(0),
        origin: about.get(1),
        packs: packs
            .iter()
            .map(|row| LivePack {
                object_key: row.get(0),
                size_bytes: u64::try_from(row.get::<_, i64>(1)).unwrap_or(0),
            })
            .collect(),
    })
}

/// Restores a dump in one transaction, so that an interrupted restore leaves the database as empty as it was. Should this
/// process be killed, `pg_restore` goes on and commits: it inherits `lock`, so that the next restore waits for it.
pub(crate) async fn restore(url: &str, from: &Path, lock: File) -> Result<(), StoreError> {
    let config = config(url)?;
    let name = config.get_dbname().unwrap_or_default();
    // As the owner of the tables, so that they are its again. Without grants: they name logins that this server may not
    // have, and `migrate`, which follows, states what Mailroom needs.
    let role = format!("--role={SYSTEM_ROLE}");
    roles::make_roles(&*Postgres::open(url, 1)?.client().await?).await?;
    let args = ["--exit-on-error", "--single-transaction", "--no-owner", "--no-privileges", &role, "--dbname", name];
    let args = args.map(OsStr::new);
    run("pg_restore", url, &[&args[..], &[from.as_os_str()]].concat(), lock.into(), Stdio::null()).await
}

fn login_without_rights() -> StoreError {
    StoreError::Misconfigured(
        "this login does not see all rows, so its dump would not be whole; set backup.postgres_url to a login that mailroom_system was granted to, like that of database.url"
            .into(),
    )
}

fn config(url: &str) -> Result<Config, StoreError> {
    url.parse().map_err(|_| StoreError::Misconfigured("backup.postgres_url is not a PostgreSQL address".into()))
}

/// Runs a program of PostgreSQL. The login goes by the environment, because every user of the machine can read a command
/// line.
async fn run(program: &'static str, url: &str, args: &[&OsStr], stdin: Stdio, stdout: Stdio) -> Result<(), StoreError> {
    let config = config(url)?;
    let mut command = Command::new(program);
    // In English, because we read what they say.
    command.args(args).arg("--no-password").env("PGAPPNAME", "mailroom").env("LC_ALL", "C");
    command.stdin(stdin).stdout(stdout).stderr(Stdio::piped());
    let hosts = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let ports = config.get_ports().iter().map(ToString::to_string);
    let login = [
        ("PGHOST", Some(hosts.collect::<Vec<_>>().join(","))),
        ("PGPORT", Some(ports.collect::<Vec<_>>().join(","))),
        ("PGUSER", config.get_user().map(str::to_owned)),
        ("PGPASSWORD", config.get_password().map(|password| String::from_utf8_lossy(password).into_owned())),
        ("PGDATABASE", config.get_dbname().map(str::to_owned)),
    ];
    command.envs(login.into_iter().filter_map(|(name, value)| Some((name, value.filter(|value| !value.is_empty())?))));
    let output = tokio::task::spawn_blocking(move || command.spawn()?.wait_with_output()).await;
    let output = output.map_err(|e| StoreError::other(e.to_string()))?.map_err(|e| {
        StoreError::Refused(
            format!("cannot run {program} ({e}); install PostgreSQL's client programs (Debian: postgresql-client), not older than the server")
                .into(),
        )
    })?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(());
    }
    if said.contains("No space left on device") {
        return Err(StoreError::Full("the dump".into()));
    }
    Err(StoreError::Refused(format!("{}; fix that and run the command again", first_error(&said)).into()))
}

/// Returns the first error line: what follows repeats statements with the values of rows.
fn first_error(said: &str) -> &str {
    said.lines().find(|line| line.contains("error:")).or(said.lines().next()).unwrap_or("PostgreSQL's program failed")
}
