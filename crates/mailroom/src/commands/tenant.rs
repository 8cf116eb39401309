//! `mailroom tenant …`

use std::io::IsTerminal;
use std::process::ExitCode;

use domain::{PlanTier, TenantSettings};
use engine::Engine;
use engine::operations::Invocation;
use engine::operations::tenants::{self, NewTenant, TenantChange};
use jiff::SignedDuration;
use serde_json::json;
use store::sql::tenants::Tenant;
use store::{Precondition, Store};
use terminal::{Failure, Output, count, note};

use super::{mailbox, tenant_settings};
use crate::app;
use crate::cli::PlanArg;
use crate::cli::tenant::TenantCommand;
use crate::config::Config;

pub async fn run(config: &Config, command: TenantCommand, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    match command {
        TenantCommand::Create { name, plan } => create(&engine, &name, plan, out).await?,
        TenantCommand::List => list(&engine.store, out).await?,
        TenantCommand::Show { tenant } => show(&engine.store, &tenant, out).await?,
        TenantCommand::Set(args) => tenant_settings::set(&engine, &args, out).await?,
        TenantCommand::Usage { tenant } => super::usage::run(config, &engine, &tenant, out).await?,
        TenantCommand::Activate { tenant } => set_active(&engine, &tenant, true, out).await?,
        TenantCommand::Deactivate { tenant } => set_active(&engine, &tenant, false, out).await?,
        TenantCommand::Delete { tenant, yes } => delete(config, &engine, &tenant, yes, out).await?,
        TenantCommand::Undelete { tenant } => undelete(&engine, &tenant, out).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn create(engine: &Engine, name: &str, plan: PlanArg, out: Output) -> Result<(), Failure> {
    let plan = match plan {
        PlanArg::Standard => PlanTier::Standard,
        PlanArg::Vip => PlanTier::Vip,
    };
    let Some(tenant) = create_unless_taken(engine, name, plan).await? else {
        return Err(Failure::problem(format!("there is already a tenant {name:?}; choose another name")));
    };
    if out.json {
        return out.object(&tenant);
    }
    out.line(&format!("Created tenant {} ({}).", tenant.name, tenant.id))
}

/// Creates a tenant. Returns `None` if the name is taken.
pub async fn create_unless_taken(engine: &Engine, name: &str, plan: PlanTier) -> Result<Option<Tenant>, Failure> {
    check_name(name)?;
    let origin = app::origin();
    let call = Invocation::begin(engine, &origin).await?;
    let new = NewTenant { name: name.to_owned(), plan, settings: TenantSettings::default() };
    match tenants::create(&call, new).await {
        Err(refusal) if refusal.is(Precondition::TenantNameTaken) => Ok(None),
        created => created.map(Some).map_err(app::refused),
    }
}

fn check_name(name: &str) -> Result<(), Failure> {
    if domain::tenant::is_valid_name(name) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "a tenant's name must have 1 to 100 characters on one line, without leading or trailing blanks, and must not be an id, not {name:?}"
    )))
}

async fn list(store: &Store, out: Output) -> Result<(), Failure> {
    let tenants = store.system().list_tenants().await?;
    if out.json {
        return tenants.iter().try_for_each(|tenant| out.object(tenant));
    }
    if tenants.is_empty() {
        return out.line("No tenants yet; `mailroom tenant create NAME` creates one.");
    }
    let rows: Vec<[String; 4]> = tenants
        .into_iter()
        .map(|tenant| {
            [tenant.name.clone(), tenant.plan_tier.as_str().to_owned(), state(&tenant), tenant.id.to_string()]
        })
        .collect();
    out.table(["name", "plan", "state", "id"], &rows)
}

fn state(tenant: &Tenant) -> String {
    if tenant.deleted_at.is_some() { "deleted".to_owned() } else { active(tenant.is_active) }
}

fn active(is_active: bool) -> String {
    if is_active { "active" } else { "inactive" }.to_owned()
}

async fn show(store: &Store, name: &str, out: Output) -> Result<(), Failure> {
    let tenant = app::find_tenant(store, name).await?;
    let scoped = store.tenant(tenant.id);
    let (mailboxes, totals) = (scoped.list_mailboxes().await?, scoped.totals().await?);
    if out.json {
        return out.object(&json!({"tenant": tenant, "mailboxes": mailboxes, "totals": totals}));
    }
    out.line(&format!("{} ({}), plan {}, {}", tenant.name, tenant.id, tenant.plan_tier.as_str(), state(&tenant)))?;
    if tenant.settings != TenantSettings::default() {
        out.line(&format!("defaults for its mailboxes: {}", tenant_settings::describe(&tenant.settings)))?;
    }
    out.line(&format!(
        "{} emails, {} attachments, {} blobs",
        count(totals.emails),
        count(totals.attachments),
        count(totals.blobs)
    ))?;
    let rows: Vec<[String; 4]> = mailboxes
        .into_iter()
        .map(|m| [m.address.clone(), m.provider.as_str().to_owned(), mailbox::state(&m), m.id.to_string()])
        .collect();
    out.table(["mailbox", "provider", "state", "id"], &rows)
}

async fn set_active(engine: &Engine, name: &str, is_active: bool, out: Output) -> Result<(), Failure> {
    let tenant = app::find_tenant(&engine.store, name).await?;
    if tenant.erasing_at.is_some() {
        return Err(Failure::problem(format!("tenant {name} is being erased and cannot be restored")));
    }
    if tenant.deleted_at.is_some() && is_active {
        let remedy = format!("`mailroom tenant undelete {name}` restores it");
        return Err(Failure::problem(format!("tenant {name} is deleted and cannot be activated; {remedy}")));
    }
    let changed = tenant.is_active != is_active;
    if changed {
        let origin = app::origin();
        let call = Invocation::begin(engine, &origin).await?;
        let change = TenantChange { is_active: Some(is_active), ..TenantChange::default() };
        tenants::change(&call, &tenant, change).await.map_err(app::refused)?;
    }
    if out.json {
        return out.object(&json!({"id": tenant.id, "is_active": is_active, "changed": changed}));
    }
    let already = if changed { "now" } else { "already" };
    out.line(&format!("Tenant {} is {already} {}.", tenant.name, active(is_active)))
}

async fn delete(config: &Config, engine: &Engine, name: &str, yes: bool, out: Output) -> Result<(), Failure> {
    let tenant = app::find_tenant(&engine.store, name).await?;
    let erase_after = app::bounded(config.tenants.erase_after);
    if !yes {
        confirm(&tenant, erase_after)?;
    }
    let origin = app::origin();
    let call = Invocation::begin(engine, &origin).await?;
    let deleted = tenants::delete(&call, &tenant, erase_after).await.map_err(app::refused)?;
    if out.json {
        return out.object(&deleted);
    }
    out.line(&format!(
        "Deleted tenant {name}. A server erases all it has {}; until then `mailroom tenant undelete {name}` restores it.",
        time_of_erasure(erase_after)
    ))
}

fn confirm(tenant: &Tenant, erase_after: SignedDuration) -> Result<(), Failure> {
    let name = &tenant.name;
    let effect = format!("tenant {name} is locked at once, and all it has is erased {}", time_of_erasure(erase_after));
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(format!("{effect}; confirm with --yes")));
    }
    note(&format!("{effect}. Type its name to confirm:"));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if answer.trim() == name { Ok(()) } else { Err(Failure::problem("nothing was changed")) }
}

fn time_of_erasure(after: SignedDuration) -> String {
    let days = after.as_hours() / 24;
    if days > 0 { format!("after {days} days") } else { format!("after {after:#}") }
}

async fn undelete(engine: &Engine, name: &str, out: Output) -> Result<(), Failure> {
    let tenant = app::find_tenant(&engine.store, name).await?;
    let origin = app::origin();
    let call = Invocation::begin(engine, &origin).await?;
    let restored = tenants::undelete(&call, &tenant).await.map_err(app::refused)?;
    if out.json {
        return out.object(&restored);
    }
    out.line(&format!("Tenant {} is restored and active.", restored.name))
}
