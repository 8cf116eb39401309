//! `mailroom mailbox …`

mod add;
mod authorize;
mod connect;
mod secret;
mod show;
mod sync;

use std::io::IsTerminal;
use std::process::ExitCode;

use domain::Provider;
use engine::Engine;
use engine::accounts::mailboxes::is_conflict;
use serde_json::json;
use store::sql::mailboxes::Mailbox;
use terminal::{Failure, Output, count, note};

use crate::app;
use crate::cli::mailbox::{AddMailbox, AuthorizeCommand, ConnectMailbox, MailboxArg, MailboxCommand as Command};
use crate::config::Config;
use add::MailboxCandidate;
use secret::{CredentialKind, NewSecret, SecretFiles};

pub use show::state;

pub async fn run(config: &Config, command: Command, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    match command {
        Command::Add(AddMailbox::Imap(args)) => add::imap(config, &engine, *args, out).await?,
        Command::Add(AddMailbox::Gmail(args)) => add::gmail(config, &engine, args, out).await?,
        Command::Add(AddMailbox::Outlook(args)) => add::outlook(config, &engine, args, out).await?,
        Command::Connect(ConnectMailbox::Gmail(args)) => connect::gmail(config, &engine, args, out).await?,
        Command::Connect(ConnectMailbox::Outlook(args)) => connect::outlook(config, &engine, args, out).await?,
        Command::Authorize(AuthorizeCommand::Outlook { directory }) => {
            authorize::outlook(config, &engine, &directory, out).await?;
        }
        Command::List { tenant } => show::list(&engine, tenant.as_deref(), out).await?,
        Command::Show(mailbox) => show::show(config, &engine, &mailbox, out).await?,
        Command::Sync { mailbox, wait } => sync::run(config, &engine, &mailbox, wait, out).await?,
        Command::Pause(mailbox) => {
            let (mailbox, changed) = retry_on_conflict(&engine, &mailbox, "mailbox.pause", async |engine, mailbox| {
                engine.pause_mailbox(mailbox).await
            })
            .await?;
            print_state(&mailbox, "paused", changed, out)?;
        }
        Command::Resume { mailbox, password_file, token_file, refresh_token_file, no_check } => {
            let files = SecretFiles { password: password_file, token: token_file, refresh_token: refresh_token_file };
            resume(config, &engine, &mailbox, files, no_check, out).await?;
        }
        Command::Remove { mailbox, erase, yes } => remove(&engine, &mailbox, erase, yes, out).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn audited(engine: &Engine, mailbox: &Mailbox, action: &'static str) -> Result<Engine, Failure> {
    let after = json!({"address": mailbox.address});
    app::audited(engine, mailbox.tenant_id, action, &mailbox.id.to_string(), after).await
}

/// Repeats a change of a mailbox that conflicts with a concurrent one, such as that of a server syncing it.
async fn retry_on_conflict<T>(
    engine: &Engine,
    arg: &MailboxArg,
    action: &'static str,
    act: impl AsyncFn(&Engine, &Mailbox) -> anyhow::Result<T>,
) -> Result<(Mailbox, T), Failure> {
    for _ in 0..MAX_CHANGE_ATTEMPTS {
        let mailbox = find(engine, arg).await?;
        let audited = audited(engine, &mailbox, action).await?;
        match act(&audited, &mailbox).await {
            Err(e) if is_conflict(&e) => {}
            done => return Ok((mailbox, done?)),
        }
    }
    Err(Failure::problem("this mailbox is being changed by another process; try again"))
}

/// Attempts of a change that conflicts with concurrent changes of the mailbox.
const MAX_CHANGE_ATTEMPTS: usize = 5;

async fn find(engine: &Engine, arg: &MailboxArg) -> Result<Mailbox, Failure> {
    let store = app::tenant_store(engine, &arg.tenant).await?;
    let found = app::find_mailbox(&store, Some(&arg.mailbox)).await?;
    found.ok_or_else(|| Failure::problem("there is no such mailbox"))
}

async fn resume(
    config: &Config,
    engine: &Engine,
    arg: &MailboxArg,
    files: SecretFiles,
    no_check: bool,
    out: Output,
) -> Result<(), Failure> {
    let mailbox = find(engine, arg).await?;
    let secret = files.read()?;
    let mut newer = None;
    if let Some(secret) = &secret {
        check_kind(&mailbox, secret)?;
        if !no_check {
            let candidate = MailboxCandidate::of(&mailbox);
            let checked = add::check(config, engine, &candidate, Some(&secret.value)).await;
            newer = checked.map_err(|sentence| Failure::problem(format!("{sentence}; nothing was changed")))?;
        }
    }
    let secret = newer.or(secret.map(|secret| secret.value));
    let (mailbox, changed) = retry_on_conflict(engine, arg, "mailbox.resume", async |engine, mailbox| {
        engine.resume_mailbox(mailbox, secret.clone()).await
    })
    .await?;
    print_state(&mailbox, "active", changed, out)
}

/// Fails if the secret is of another kind than the mailbox uses: a server would refuse it without saying why.
fn check_kind(mailbox: &Mailbox, secret: &NewSecret) -> Result<(), Failure> {
    let kind = match mailbox.provider {
        Provider::Imap if mailbox.settings.connection["auth"] == "token" => CredentialKind::Token,
        Provider::Imap => CredentialKind::Password,
        Provider::Gmail | Provider::Outlook => CredentialKind::RefreshToken,
        Provider::Files => return Ok(()),
    };
    if kind == secret.kind {
        return Ok(());
    }
    let (kind, option) = match kind {
        CredentialKind::Token => ("a token", "--token-file"),
        CredentialKind::Password => ("a password", "--password-file"),
        CredentialKind::RefreshToken => ("a refresh token", "--refresh-token-file"),
    };
    Err(Failure::usage(format!("{} is connected with {kind}; give a new one with {option}", mailbox.address)))
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
    let action = if erase { "mailbox.erase" } else { "mailbox.disconnect" };
    retry_on_conflict(engine, arg, action, async |engine, mailbox| engine.disconnect(mailbox, None).await).await?;
    let erased = if erase { engine.erase_mailbox(&find(engine, arg).await?).await? } else { 0 };
    if out.json {
        return out.object(&json!({"id": mailbox.id, "state": "disconnected", "erased": erased}));
    }
    let erased = if erase { format!(" {} emails were erased.", count(erased)) } else { String::new() };
    out.line(&format!("Disconnected {}.{erased}", mailbox.address))
}

fn print_state(mailbox: &Mailbox, state: &str, changed: bool, out: Output) -> Result<(), Failure> {
    if !changed {
        return Err(Failure::problem(format!(
            "{} is {}; nothing was changed",
            mailbox.address,
            mailbox.state.as_str()
        )));
    }
    print_outcome(mailbox, state, &format!("is {state} now"), out)
}

fn print_outcome(mailbox: &Mailbox, word: &str, sentence: &str, out: Output) -> Result<(), Failure> {
    if out.json {
        return out.object(&json!({"id": mailbox.id, "outcome": word}));
    }
    out.line(&format!("{} {sentence}.", mailbox.address))
}
