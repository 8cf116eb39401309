//! `mailroom tenant set`: defaults for the mailboxes of a tenant.

use domain::TenantSettings;
use engine::Engine;
use engine::operations::Invocation;
use engine::operations::tenants::{self, TenantChange};
use jiff::SignedDuration;
use store::sql::tenants::Tenant;
use terminal::{Failure, Output, size};

use super::sync_options::{invalid_option, read_backfill, read_bytes_per_day, read_interval};
use crate::app;
use crate::cli::tenant::SetTenantArgs;

pub async fn set(engine: &Engine, args: &SetTenantArgs, out: Output) -> Result<(), Failure> {
    let before = app::find_tenant(&engine.store, &args.tenant).await?;
    if before.erasing_at.is_some() {
        return Err(Failure::problem(format!("tenant {} is being erased and cannot be changed", before.name)));
    }
    if args.is_empty() {
        return Err(Failure::usage("name a setting to change, such as --backfill 30d, or --unset one".to_owned()));
    }
    let settings = changed(before.settings.clone(), args)?;
    if settings == before.settings {
        // A script that is run again finds it as it left it.
        return show(&before, out);
    }
    let origin = app::origin();
    let call = Invocation::begin(engine, &origin).await?;
    let change = TenantChange { settings: Some(settings), ..TenantChange::default() };
    let after = tenants::change(&call, &before, change).await.map_err(app::refused)?;
    show(&after, out)
}

fn show(tenant: &Tenant, out: Output) -> Result<(), Failure> {
    if out.json {
        return out.object(tenant);
    }
    out.line(&format!("Defaults for the mailboxes of {}: {}.", tenant.name, describe(&tenant.settings)))
}

/// Applies the options to the settings of a tenant.
fn changed(mut settings: TenantSettings, args: &SetTenantArgs) -> Result<TenantSettings, Failure> {
    for field in &args.unset {
        settings.unset(field.name());
    }
    if let Some(text) = &args.backfill {
        settings.backfill = Some(read_backfill(text)?);
    }
    if !args.folders.is_empty() {
        settings.folders = Some(args.folders.clone());
    }
    if !args.exclude.is_empty() {
        settings.exclude = Some(args.exclude.clone());
    }
    if let Some(text) = &args.interval {
        settings.interval_seconds = Some(read_interval(text)?);
    }
    if let Some(text) = &args.bytes_per_day {
        settings.bytes_per_day = Some(read_bytes_per_day(text)?);
    }
    settings.check().map_err(invalid_option)?;
    Ok(settings)
}

/// Describes the settings of a tenant: `backfill 30d, exclude Archive, every 10m`.
pub fn describe(settings: &TenantSettings) -> String {
    let TenantSettings { backfill, folders, exclude, interval_seconds, bytes_per_day, other: _ } = settings;
    let parts = [
        backfill.map(|backfill| format!("backfill {backfill}")),
        folders.as_ref().map(|folders| format!("folders {}", names(folders))),
        exclude.as_ref().map(|exclude| format!("exclude {}", names(exclude))),
        interval_seconds.map(|seconds| format!("every {:#}", SignedDuration::from_secs(seconds.cast_signed()))),
        bytes_per_day.map(quota),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "as configured".to_owned() } else { parts.join(", ") }
}

fn names(folders: &[String]) -> String {
    if folders.is_empty() { "none by name".to_owned() } else { folders.join(" and ") }
}

fn quota(per_day: u64) -> String {
    if per_day == 0 { "no limit of bytes".to_owned() } else { format!("{} a day", size(per_day)) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_of_a_tenant_are_one_line() {
        let full = json!({"backfill": "30d", "folders": ["INBOX", "Sent"], "exclude": [], "interval_seconds": 600,
                          "bytes_per_day": 0});

        assert_eq!(describe(&TenantSettings::default()), "as configured");
        assert_eq!(
            describe(&full.into()),
            "backfill 30d, folders INBOX and Sent, exclude none by name, every 10m, no limit of bytes"
        );
    }
}
