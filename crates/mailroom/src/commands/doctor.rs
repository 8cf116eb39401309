//! `mailroom doctor`

use std::process::ExitCode;

use engine::Progress;
use engine::secrets::Standing;
use jiff::SignedDuration;
use serde::Serialize;

use crate::app;
use crate::config::{Config, DatabaseUrl};
use crate::failure::Failure;
use crate::output::{Output, one_line};

/// More apart than this, and "after" and "before" mean something else to the database than to us.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(5);

#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    ok: bool,
    detail: String,
}

pub async fn run(config: &Config, out: Output) -> Result<ExitCode, Failure> {
    let mut findings = vec![finding("configuration", Ok("every setting is understood".to_owned()))];
    findings.push(finding("google", config.providers.google.standing().map_err(Failure::problem)));
    findings.push(finding("microsoft", config.providers.microsoft.standing().map_err(Failure::problem)));
    if let DatabaseUrl::Sqlite(_) = config.database.url {
        findings.push(finding("data folder", data_folder(config)));
    }
    match app::open_store(config) {
        Err(e) => findings.push(finding("database", Err(e))),
        Ok(store) => {
            let describe = store.describe().await.map_err(Failure::from);
            let is_reachable = describe.is_ok();
            findings.push(finding("database", describe));
            if is_reachable {
                findings.push(finding("schema", schema(&store).await));
                findings.push(finding("clock", clock(&store).await));
                findings.extend(isolation(&store).await);
                if store.check_schema().await.is_ok() {
                    findings.push(finding("keys", keys(config, &store).await));
                }
            }
        }
    }
    let blobs = blobs(config).await;
    let are_blobs_usable = blobs.is_ok();
    findings.push(finding("blobs", blobs));
    if findings.iter().all(|finding| finding.ok) && are_blobs_usable {
        findings.push(finding("packs", packs(config).await));
    }
    let is_well = findings.iter().all(|finding| finding.ok);
    if out.json {
        findings.iter().try_for_each(|finding| out.object(finding))?;
    } else {
        for finding in &findings {
            out.line(&format!("{}  {:<14} {}", if finding.ok { "ok " } else { "BAD" }, finding.check, finding.detail))?;
        }
    }
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn finding(check: &'static str, outcome: Result<String, Failure>) -> Finding {
    match outcome {
        Ok(detail) => Finding { check, ok: true, detail },
        Err(e) => Finding { check, ok: false, detail: e.to_string() },
    }
}

fn data_folder(config: &Config) -> Result<String, Failure> {
    let folder = &config.data_dir;
    match app::is_writable(folder) {
        Ok(()) => Ok(format!("{} can be written", folder.display())),
        Err(e) => Err(Failure::problem(format!(
            "{} cannot be written ({e}); change its rights or set data_dir to another folder",
            folder.display()
        ))),
    }
}

async fn schema(store: &store::Store) -> Result<String, Failure> {
    let version = store.schema_version().await?;
    match (store.dialect(), version) {
        (store::Dialect::Sqlite, 0) => Ok("empty; the first command makes it".to_owned()),
        _ => {
            store.check_schema().await?;
            Ok(format!("version {version}, up to date"))
        }
    }
}

/// What keeps tenants apart in a PostgreSQL, a finding for each thing that is not in place.
async fn isolation(store: &store::Store) -> Vec<Finding> {
    const CHECK: &str = "isolation";
    if store.dialect() == store::Dialect::Sqlite || store.check_schema().await.is_err() {
        return Vec::new(); // SQLite has no roles; and the check of the schema says what to do about that
    }
    match store.system().isolation_problems().await {
        Err(e) => vec![finding(CHECK, Err(e.into()))],
        Ok(problems) if problems.is_empty() => {
            vec![finding(CHECK, Ok("roles, policies and grants are in place".to_owned()))]
        }
        Ok(problems) => problems.into_iter().map(|problem| finding(CHECK, Err(Failure::problem(problem)))).collect(),
    }
}

async fn clock(store: &store::Store) -> Result<String, Failure> {
    if store.schema_version().await? == 0 && store.dialect() == store::Dialect::Postgres {
        return Ok("not compared: the schema is not there yet".to_owned());
    }
    let apart = store.system().now().await?.duration_since(store.clock().now()).abs();
    if apart > CLOCK_TOLERANCE {
        return Err(Failure::problem(format!(
            "the database's clock differs from this machine's by {} s; let both follow a time server",
            apart.as_secs()
        )));
    }
    Ok("the database's clock agrees with this machine's".to_owned())
}

/// Whether what opens mailboxes can be read here.
async fn keys(config: &Config, store: &store::Store) -> Result<String, Failure> {
    let vault = app::vault(config, store);
    Ok(match vault.standing().await? {
        Standing::None => format!("none yet; the first start makes {}", config.secrets.key_file.display()),
        Standing::Unused(fingerprint) => format!("master key {fingerprint}, not in use yet"),
        Standing::Ready(fingerprint) => format!("master key {fingerprint}, the one of this database"),
    })
}

async fn blobs(config: &Config) -> Result<String, Failure> {
    app::open_blobs(config)?.check().await?;
    Ok(format!("{} takes, gives back and deletes an object", config.blobs.url.shown()))
}

/// Whether the objects are there with their sizes; reading them all is for `verify --deep`.
async fn packs(config: &Config) -> Result<String, Failure> {
    let engine = app::open(config).await?;
    let mut damaged = Vec::new();
    for tenant in engine.store.system().list_tenants().await? {
        damaged.extend(engine.verify_packs(&engine.store.tenant(tenant.id), false, &Progress::default()).await?);
    }
    match damaged.as_slice() {
        [] => Ok("every pack is there with its size; `mailroom verify --deep` reads them all".to_owned()),
        [only] => Err(Failure::problem(one_line(&only.to_string(), 400))),
        [first, rest @ ..] => {
            let first = one_line(&first.to_string(), 400);
            Err(Failure::problem(format!("{first}; {} more are damaged, `mailroom verify` names them", rest.len())))
        }
    }
}
