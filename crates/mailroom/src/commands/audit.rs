//! `mailroom audit …`

use std::collections::HashMap;
use std::process::ExitCode;

use domain::TenantId;
use terminal::{Failure, Output, count};

use crate::app;
use crate::config::Config;

pub async fn verify(config: &Config, tenant: Option<&str>, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    let tenant = match tenant {
        Some(name) => Some(app::find_tenant(&engine.store, name).await?.id),
        None => None,
    };
    let verified = engine.verify_audit(tenant).await?;
    let is_whole = verified.iter().all(|chain| chain.broken.is_none());
    let end = if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if out.json {
        verified.iter().try_for_each(|chain| out.object(chain))?;
        return Ok(end);
    }
    if verified.is_empty() {
        out.line("The audit log is empty.")?;
    }
    let tenants = engine.store.system().list_tenants().await?;
    let mut names: HashMap<TenantId, String> = tenants.into_iter().map(|tenant| (tenant.id, tenant.name)).collect();
    names.insert(TenantId::SYSTEM, "system".to_owned());
    for chain in verified {
        let name = names.remove(&chain.tenant_id).unwrap_or_else(|| chain.tenant_id.to_string());
        match chain.broken {
            Some(broken) => out.line(&format!("{name}: entry {} is broken: {}", broken.seq, broken.problem))?,
            None => out.line(&format!("{name}: {} entries are intact, up to {}", count(chain.entries), chain.head))?,
        }
    }
    Ok(end)
}
