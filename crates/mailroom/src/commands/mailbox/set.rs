//! `mailroom mailbox set`: the settings of a mailbox's own.

use domain::MailboxSettings;
use engine::Engine;
use engine::operations::{Invocation, mailboxes};
use providers::registry::DECLARATIONS;
use terminal::{Failure, Output};

use super::find;
use crate::app;
use crate::cli::mailbox::SetMailboxArgs;
use crate::commands::sync_options::{invalid_option, read_bytes_per_day, read_interval};

pub(super) async fn run(engine: &Engine, args: &SetMailboxArgs, out: Output) -> Result<(), Failure> {
    let before = find(engine, &args.mailbox).await?;
    if args.is_empty() {
        return Err(Failure::usage("name a setting to change, such as --interval 10m, or --unset one"));
    }
    let settings = changed(before.settings.clone(), args)?;
    if !before.provider.capabilities().is_remote {
        return Err(Failure::problem(format!("{} is for imported files and has no such settings", before.address)));
    }
    let declaration = DECLARATIONS.find(before.provider);
    if args.bytes_per_day.is_some() && !declaration.is_some_and(|found| found.connection.has_byte_quota) {
        let provider = before.provider.as_str();
        return Err(Failure::usage(format!("--bytes-per-day is not supported by {provider} mailboxes")));
    }
    // A script that is run again finds it as it left it.
    let after = if settings == before.settings {
        before
    } else {
        let origin = app::origin();
        let call = Invocation::begin(engine, &origin).await?;
        mailboxes::change(&call, &before, settings, None).await.map_err(app::refused)?
    };
    if out.json {
        return out.object(&after);
    }
    out.line(&format!("{} has its settings now; what is not its own is its tenant's.", after.address))
}

/// Applies the options to the settings of a mailbox.
fn changed(mut settings: MailboxSettings, args: &SetMailboxArgs) -> Result<MailboxSettings, Failure> {
    for field in &args.unset {
        settings.unset(field.name());
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
