//! `mailroom doctor`

use std::process::ExitCode;

use engine::Progress;
use engine::credentials::secrets::VaultStatus;
use jiff::SignedDuration;
use providers::app::ProviderApp;
use serde::Serialize;
use terminal::{Failure, Output, one_line};

use crate::app;
use crate::config::{Config, DatabaseUrl};

/// Maximum difference to the database's clock; above it, times compared between both are unreliable.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(5);

#[derive(Debug, Serialize)]
struct CheckResult {
    check: &'static str,
    ok: bool,
    detail: String,
}

pub async fn run(config: &Config, out: Output) -> Result<ExitCode, Failure> {
    let mut results = vec![check_result("configuration", Ok("all settings are valid".to_owned()))];
    for (section, status) in config.providers.iter().filter_map(ProviderApp::setup_status) {
        results.push(check_result(section, status.map_err(Failure::problem)));
    }
    if let DatabaseUrl::Sqlite(_) = config.database.url {
        results.push(check_result("data folder", data_folder(config)));
    }
    match app::open_store(config) {
        Err(e) => results.push(check_result("database", Err(e))),
        Ok(store) => {
            let describe = store.describe().await.map_err(Failure::from);
            let is_reachable = describe.is_ok();
            results.push(check_result("database", describe));
            if is_reachable {
                results.push(check_result("schema", schema(&store).await));
                results.push(check_result("clock", clock(&store).await));
                results.extend(isolation(&store).await);
                if store.check_schema().await.is_ok() {
                    results.push(check_result("keys", keys(config, &store).await));
                }
            }
        }
    }
    let blobs = blobs(config).await;
    let are_blobs_usable = blobs.is_ok();
    results.push(check_result("blobs", blobs));
    if results.iter().all(|check_result| check_result.ok) && are_blobs_usable {
        results.push(check_result("packs", packs(config).await));
    }
    let all_ok = results.iter().all(|check_result| check_result.ok);
    if out.json {
        results.iter().try_for_each(|check_result| out.object(check_result))?;
    } else {
        for check_result in &results {
            out.line(&format!(
                "{}  {:<14} {}",
                if check_result.ok { "ok " } else { "BAD" },
                check_result.check,
                check_result.detail
            ))?;
        }
    }
    Ok(if all_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check_result(check: &'static str, outcome: Result<String, Failure>) -> CheckResult {
    match outcome {
        Ok(detail) => CheckResult { check, ok: true, detail },
        Err(e) => CheckResult { check, ok: false, detail: e.to_string() },
    }
}

fn data_folder(config: &Config) -> Result<String, Failure> {
    let folder = &config.data_dir;
    match app::check_writable(folder) {
        Ok(()) => Ok(format!("{} is writable", folder.display())),
        Err(e) => Err(Failure::problem(format!(
            "{} is not writable ({e}); change its permissions or set data_dir to another folder",
            folder.display()
        ))),
    }
}

async fn schema(store: &store::Store) -> Result<String, Failure> {
    let version = store.schema_version().await?;
    match (store.dialect(), version) {
        (store::Dialect::Sqlite, 0) => Ok("empty; the first command creates it".to_owned()),
        _ => {
            store.check_schema().await?;
            Ok(format!("version {version}, up to date"))
        }
    }
}

/// Checks the isolation of tenants in PostgreSQL; one result for each problem.
async fn isolation(store: &store::Store) -> Vec<CheckResult> {
    const CHECK: &str = "isolation";
    if store.dialect() == store::Dialect::Sqlite || store.check_schema().await.is_err() {
        return Vec::new(); // SQLite has no roles; an outdated schema is reported by its own check
    }
    match store.system().isolation_problems().await {
        Err(e) => vec![check_result(CHECK, Err(e.into()))],
        Ok(problems) if problems.is_empty() => {
            vec![check_result(CHECK, Ok("roles, policies and grants are in place".to_owned()))]
        }
        Ok(problems) => {
            problems.into_iter().map(|problem| check_result(CHECK, Err(Failure::problem(problem)))).collect()
        }
    }
}

async fn clock(store: &store::Store) -> Result<String, Failure> {
    if store.schema_version().await? == 0 && store.dialect() == store::Dialect::Postgres {
        return Ok("not compared: the schema does not exist yet".to_owned());
    }
    let apart = store.system().now().await?.duration_since(store.clock().now()).abs();
    if apart > CLOCK_TOLERANCE {
        return Err(Failure::problem(format!(
            "the database's clock differs from this machine's by {} s; synchronise both with a time server",
            apart.as_secs()
        )));
    }
    Ok("the database's clock agrees with this machine's".to_owned())
}

/// Checks that the stored credentials can be decrypted.
async fn keys(config: &Config, store: &store::Store) -> Result<String, Failure> {
    let vault = app::vault(config, store);
    Ok(match vault.status().await? {
        VaultStatus::None => format!("none yet; the first start creates {}", config.secrets.key_file.display()),
        VaultStatus::Unused(fingerprint) => format!("master key {fingerprint}, not in use yet"),
        VaultStatus::Ready(fingerprint) => format!("master key {fingerprint}, the one of this database"),
    })
}

async fn blobs(config: &Config) -> Result<String, Failure> {
    app::open_blobs(config)?.check().await?;
    Ok(format!("{} can write, read and delete an object", config.blobs.url.shown()))
}

/// Checks that all packs exist with their sizes; `verify --deep` reads them all.
async fn packs(config: &Config) -> Result<String, Failure> {
    let engine = app::open(config).await?;
    let mut damaged = Vec::new();
    for tenant in engine.store.system().list_tenants().await? {
        damaged.extend(engine.verify_packs(&engine.store.tenant(tenant.id), false, &Progress::default()).await?);
    }
    match damaged.as_slice() {
        [] => Ok("every pack exists with its size; `mailroom verify --deep` reads them all".to_owned()),
        [only] => Err(Failure::problem(one_line(&only.to_string(), 400))),
        [first, rest @ ..] => {
            let first = one_line(&first.to_string(), 400);
            Err(Failure::problem(format!("{first}; {} more are damaged, `mailroom verify` names them", rest.len())))
        }
    }
}
