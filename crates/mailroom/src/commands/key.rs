//! `mailroom key …`

use std::process::ExitCode;

use domain::ApiKeyId;
use domain::units::{DURATION_UNITS, parse_duration};
use engine::Engine;
use engine::credentials::api_keys::SCOPES;
use engine::operations::api_keys::{self, NewKey};
use engine::operations::{Invocation, Refusal};
use jiff::Timestamp;
use serde_json::json;
use store::TenantStore;
use terminal::{Failure, Output, note};

use crate::app;
use crate::cli;
use crate::config::Config;

pub async fn run(config: &Config, command: cli::KeyCommand, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    match command {
        cli::KeyCommand::Create { tenant, name, scopes, expires } => {
            create(&engine, &tenant.tenant, &name, &scopes, expires.as_deref(), out).await?;
        }
        cli::KeyCommand::List { tenant } => list(&app::tenant_store(&engine, &tenant.tenant).await?, out).await?,
        cli::KeyCommand::Revoke { tenant, id } => {
            revoke(&engine, &tenant.tenant, &id, out).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn create(
    engine: &Engine,
    tenant: &str,
    name: &str,
    scopes: &[String],
    expires: Option<&str>,
    out: Output,
) -> Result<(), Failure> {
    if let Some(unknown) = scopes.iter().find(|scope| !SCOPES.contains(&scope.as_str())) {
        return Err(Failure::usage(format!("{unknown:?} is not a scope; use any of {}", SCOPES.join(", "))));
    }
    let tenant = app::find_tenant(&engine.store, tenant).await?.id;
    let origin = app::origin();
    let call = Invocation::begin(engine, &origin).await?;
    let expires_at = expires.map(|text| expiry(call.now, text)).transpose()?;
    let new = NewKey { name: name.to_owned(), scopes: scopes.to_vec(), expires_at };
    let created = api_keys::create(&call, tenant, new).await.map_err(app::refused)?;
    let (id, key) = (created.id, created.key.expose());
    if out.json {
        return out.object(&json!({"id": id, "name": name, "scopes": scopes, "expires_at": expires_at, "key": key}));
    }
    note("This key is shown only now; store it safely.");
    out.line(key)
}

fn expiry(now: Timestamp, text: &str) -> Result<Timestamp, Failure> {
    let expiry = parse_duration(text).ok().and_then(|duration| now.checked_add(duration).ok());
    expiry.ok_or_else(|| {
        Failure::usage(format!("--expires must be a duration such as 90d, not {text:?}; units are {DURATION_UNITS}"))
    })
}

async fn list(store: &TenantStore, out: Output) -> Result<(), Failure> {
    let keys = store.list_api_keys().await?;
    if out.json {
        return keys.iter().try_for_each(|key| out.object(key));
    }
    if keys.is_empty() {
        return out.line("No keys yet; `mailroom key create` creates one.");
    }
    let now = store.clock().now();
    let rows: Vec<[String; 5]> = keys
        .into_iter()
        .map(|key| {
            let state = match (key.revoked_at, key.expires_at) {
                (Some(_), _) => "revoked".to_owned(),
                (None, Some(time)) if time <= now => "expired".to_owned(),
                (None, Some(time)) => format!("valid until {}", time.strftime("%Y-%m-%d")),
                (None, None) => "valid".to_owned(),
            };
            let created = key.created_at.strftime("%Y-%m-%d").to_string();
            [key.name, key.scopes.join(","), state, created, key.id.to_string()]
        })
        .collect();
    out.table(["name", "scopes", "state", "created", "id"], &rows)
}

async fn revoke(engine: &Engine, tenant: &str, id: &str, out: Output) -> Result<(), Failure> {
    let parsed: ApiKeyId =
        id.parse().map_err(|_| Failure::usage(format!("{id:?} is not a key's id; `mailroom key list` shows them")))?;
    let tenant = app::find_tenant(&engine.store, tenant).await?.id;
    let origin = app::origin();
    let call = Invocation::begin(engine, &origin).await?;
    api_keys::revoke(&call, tenant, parsed).await.map_err(|refusal: Refusal| match refusal {
        Refusal::NotFound(_) => {
            Failure::problem(format!("this tenant has no valid key {id}; `mailroom key list` shows its keys"))
        }
        refusal => app::refused(refusal),
    })?;
    if out.json {
        out.object(&json!({"id": parsed, "revoked": true}))
    } else {
        out.line(&format!("Key {id} is revoked."))
    }
}
