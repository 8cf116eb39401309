//! `mailroom mailbox …`

mod add;
mod authorize;
mod connect;
mod connection;
pub(super) mod secret;
mod set;
mod show;
mod sync;

use std::io::IsTerminal;
use std::process::ExitCode;

use domain::{ConnectionField, MailboxEvent, MailboxState, Secret};
use engine::Engine;
use engine::operations::Invocation;
use engine::operations::mailboxes::{self, MailErasure, ResumeRequest};
use providers::registry::DECLARATIONS;
use serde_json::json;
use store::sql::mailboxes::Mailbox;
use terminal::{Failure, Output, count, note};

use crate::app;
use crate::cli::mailbox::{MailboxArg, MailboxCommand as Command};
use crate::cli::provider_options::{ProviderSubcommand, ReplacementSecret};
use crate::config::Config;
use add::MailboxCandidate;
use secret::read_secret;

pub use show::state;

pub async fn run(config: &Config, command: Command, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    match command {
        Command::Add(ProviderSubcommand { provider, args }) => {
            add::run(config, &engine, provider, args, out).await?;
        }
        Command::Connect(ProviderSubcommand { provider, args }) => {
            connect::run(config, &engine, provider, args, out).await?;
        }
        Command::Authorize(ProviderSubcommand { provider, args }) => {
            authorize::run(config, &engine, provider, &args.directory, out).await?;
        }
        Command::Set(args) => set::run(&engine, &args, out).await?,
        Command::List { tenant } => show::list(&engine, tenant.as_deref(), out).await?,
        Command::Show(mailbox) => show::show(config, &engine, &mailbox, out).await?,
        Command::Sync { mailbox, wait } => sync::run(config, &engine, &mailbox, wait, out).await?,
        Command::ApplyRemovals(mailbox) => apply_removals(&engine, &mailbox, out).await?,
        Command::Pause(mailbox) => {
            pause(&engine, &mailbox, out).await?;
        }
        Command::Resume { mailbox, secret, reset_cursors, no_check } => {
            let secret = new_secret(config, &engine, &mailbox, secret, no_check).await?;
            resume(&engine, &mailbox, ResumeRequest { secret: secret.as_ref(), resets_cursors: reset_cursors }, out)
                .await?;
        }
        Command::Remove { mailbox, erase, yes } => remove(&engine, &mailbox, erase, yes, out).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn find(engine: &Engine, arg: &MailboxArg) -> Result<Mailbox, Failure> {
    let store = app::tenant_store(engine, &arg.tenant).await?;
    let found = app::find_mailbox(&store, Some(&arg.mailbox)).await?;
    found.ok_or_else(|| Failure::problem("there is no such mailbox"))
}

async fn apply_removals(engine: &Engine, arg: &MailboxArg, out: Output) -> Result<(), Failure> {
    let mailbox = find(engine, arg).await?;
    let origin = app::origin();
    let call = Invocation::begin(engine, &origin).await?;
    mailboxes::apply_removals(&call, mailbox.tenant_id, mailbox.id).await.map_err(app::refused)?;
    print_outcome(&mailbox, "asked", "loses what is missing at its provider as soon as a worker is free", out)
}

async fn pause(engine: &Engine, arg: &MailboxArg, out: Output) -> Result<(), Failure> {
    let before = find(engine, arg).await?;
    if before.state.after(MailboxEvent::Paused).is_none() {
        return Err(unchanged(&before));
    }
    let origin = app::origin();
    let call = Invocation::begin(engine, &origin).await?;
    let paused = mailboxes::pause(&call, before.tenant_id, before.id).await.map_err(app::refused)?;
    print_outcome(&paused, "paused", "is paused now", out)
}

fn unchanged(mailbox: &Mailbox) -> Failure {
    Failure::problem(format!("{} is {}; nothing was changed", mailbox.address, mailbox.state.as_str()))
}

/// Reads the new secret of a mailbox, if one is given, and checks it.
async fn new_secret(
    config: &Config,
    engine: &Engine,
    arg: &MailboxArg,
    replacement: ReplacementSecret,
    no_check: bool,
) -> Result<Option<Secret<String>>, Failure> {
    let mailbox = find(engine, arg).await?;
    let ReplacementSecret(replacement) = replacement;
    let mut secret = replacement.as_ref().map(|(_, file)| read_secret(file)).transpose()?;
    if let Some((field, _)) = &replacement {
        check_kind(&mailbox, field)?;
        if !no_check {
            let candidate = MailboxCandidate::of(&mailbox);
            let checked = add::check(config, engine, &candidate, secret.as_ref()).await;
            let newer = checked.map_err(|sentence| Failure::problem(format!("{sentence}; nothing was changed")))?;
            secret = newer.or(secret);
        }
    }
    Ok(secret)
}

async fn resume(engine: &Engine, arg: &MailboxArg, request: ResumeRequest<'_>, out: Output) -> Result<(), Failure> {
    let mailbox = find(engine, arg).await?;
    if mailbox.state == MailboxState::Disconnected {
        return Err(unchanged(&mailbox));
    }
    let origin = app::origin();
    let call = Invocation::begin(engine, &origin).await?;
    let resumed = mailboxes::resume(&call, mailbox.tenant_id, mailbox.id, request).await;
    print_outcome(&resumed.map_err(app::refused)?, "active", "is active now", out)
}

/// Fails if the secret is of another kind than the mailbox uses: a server would refuse it without saying why.
fn check_kind(mailbox: &Mailbox, given: &ConnectionField) -> Result<(), Failure> {
    let Some(field) = secret_field(mailbox) else { return Ok(()) };
    if field.name == given.name {
        return Ok(());
    }
    let (noun, option) = (field.option.noun, field.option.name);
    Err(Failure::usage(format!("{} is connected with {noun}; give a new one with --{option}", mailbox.address)))
}

/// Returns the field of the secret that opens a mailbox; imported files have none.
fn secret_field(mailbox: &Mailbox) -> Option<&'static ConnectionField> {
    let connection = &DECLARATIONS.find(mailbox.provider)?.connection;
    connection.field((connection.secret_field)(&mailbox.settings.connection))
}

async fn remove(engine: &Engine, arg: &MailboxArg, erase: bool, yes: bool, out: Output) -> Result<(), Failure> {
    let mailbox = find(engine, arg).await?;
    let outcome = if erase { "and all its mail is erased" } else { "and its mail is kept" };
    if !yes {
        if !std::io::stdin().is_terminal() {
            return Err(Failure::usage(format!("{} is disconnected {outcome}; confirm with --yes", mailbox.address)));
        }
        note(&format!("{} is disconnected {outcome}. Type its address to confirm:", mailbox.address));
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        if answer.trim() != mailbox.address {
            return Err(Failure::problem("nothing was changed"));
        }
    }
    let origin = app::origin();
    let call = Invocation::begin(engine, &origin).await?;
    let erasure = if erase { MailErasure::ByCaller } else { MailErasure::None };
    let deleted = mailboxes::delete(&call, mailbox.tenant_id, mailbox.id, erasure).await.map_err(app::refused)?;
    let mut erased = 0;
    if erase {
        erased = engine.erase_mailbox(&deleted).await?;
        engine.store.system().scrub(&|| {}).await?;
    }
    if out.json {
        return out.object(&json!({"id": mailbox.id, "state": "disconnected", "erased": erased}));
    }
    let erased = if erase { format!(" {} emails were erased.", count(erased)) } else { String::new() };
    out.line(&format!("Disconnected {}.{erased}", mailbox.address))
}

fn print_outcome(mailbox: &Mailbox, word: &str, sentence: &str, out: Output) -> Result<(), Failure> {
    if out.json {
        return out.object(&json!({"id": mailbox.id, "outcome": word}));
    }
    out.line(&format!("{} {sentence}.", mailbox.address))
}
