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
use engine::mailboxes::is_changed;
use serde_json::json;
use store::sql::mailboxes::Mailbox;

use crate::app;
use crate::cli::mailbox::{Add, Authorize, Connect, Mailbox as Command, Which};
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{Output, count, tell};
use add::Candidate;
use secret::{NewSecret, SecretFiles, Sort};

pub use show::state;

pub async fn run(config: &Config, command: Command, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    match command {
        Command::Add(Add::Imap(args)) => add::imap(config, &engine, *args, out).await?,
        Command::Add(Add::Gmail(args)) => add::gmail(config, &engine, args, out).await?,
        Command::Add(Add::Outlook(args)) => add::outlook(config, &engine, args, out).await?,
        Command::Connect(Connect::Gmail(args)) => connect::gmail(config, &engine, args, out).await?,
        Command::Connect(Connect::Outlook(args)) => connect::outlook(config, &engine, args, out).await?,
        Command::Authorize(Authorize::Outlook { directory }) => {
            authorize::outlook(config, &engine, &directory, out).await?;
        }
        Command::Add(Add::Scripted(args)) => add::scripted(config, &engine, args, out).await?,
        Command::List { tenant } => show::list(&engine, tenant.as_deref(), out).await?,
        Command::Show(which) => show::show(config, &engine, &which, out).await?,
        Command::Sync { which, wait } => sync::run(config, &engine, &which, wait, out).await?,
        Command::Pause(which) => {
            let pause = async |engine: &Engine, mailbox: &Mailbox| engine.pause_mailbox(mailbox).await;
            let (mailbox, changed) = steadily(&engine, &which, "mailbox.pause", pause).await?;
            changed_to(&mailbox, "paused", changed, out)?;
        }
        Command::Resume { which, password_file, token_file, refresh_token_file, no_check } => {
            let files = SecretFiles { password: password_file, token: token_file, refresh_token: refresh_token_file };
            resume(config, &engine, &which, files, no_check, out).await?;
        }
        Command::Remove { which, erase, yes } => remove(&engine, &which, erase, yes, out).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn recorded(engine: &Engine, mailbox: &Mailbox, action: &'static str) -> Result<Engine, Failure> {
    let after = json!({"address": mailbox.address});
    app::recorded(engine, mailbox.tenant_id, action, &mailbox.id.to_string(), after).await
}

/// Once more when somebody else changes the mailbox at the same moment, as a server does that works on it.
async fn steadily<T>(
    engine: &Engine,
    which: &Which,
    action: &'static str,
    act: impl AsyncFn(&Engine, &Mailbox) -> anyhow::Result<T>,
) -> Result<(Mailbox, T), Failure> {
    for _ in 0..TRIES {
        let mailbox = find(engine, which).await?;
        let recorded = recorded(engine, &mailbox, action).await?;
        match act(&recorded, &mailbox).await {
            Err(e) if is_changed(&e) => {}
            done => return Ok((mailbox, done?)),
        }
    }
    Err(Failure::problem("somebody else is changing this mailbox; try again"))
}

const TRIES: usize = 5;

async fn find(engine: &Engine, which: &Which) -> Result<Mailbox, Failure> {
    let store = app::tenant_store(engine, &which.tenant).await?;
    let found = app::mailbox(&store, Some(&which.mailbox)).await?;
    found.ok_or_else(|| Failure::problem("there is no such mailbox"))
}

async fn resume(
    config: &Config,
    engine: &Engine,
    which: &Which,
    files: SecretFiles,
    no_check: bool,
    out: Output,
) -> Result<(), Failure> {
    let mailbox = find(engine, which).await?;
    let secret = files.read()?;
    let mut newer = None;
    if let Some(secret) = &secret {
        check_sort(&mailbox, secret)?;
        if !no_check {
            let candidate = Candidate::of(&mailbox);
            let refused = |sentence| Failure::problem(format!("{sentence}; nothing was changed"));
            let checked = add::check(config, engine, &candidate, Some(&secret.value)).await.map_err(refused)?;
            newer = checked;
        }
    }
    let secret = newer.or(secret.map(|secret| secret.value));
    let resume = async |engine: &Engine, mailbox: &Mailbox| engine.resume_mailbox(mailbox, secret.clone()).await;
    let (mailbox, changed) = steadily(engine, which, "mailbox.resume", resume).await?;
    changed_to(&mailbox, "active", changed, out)
}

/// A token in the place of a password is refused by every server, and nobody would see why.
fn check_sort(mailbox: &Mailbox, secret: &NewSecret) -> Result<(), Failure> {
    let sort = match mailbox.provider {
        Provider::Imap if mailbox.settings["connection"]["auth"] == "token" => Sort::Token,
        Provider::Imap => Sort::Password,
        Provider::Gmail | Provider::Outlook => Sort::RefreshToken,
        Provider::Files | Provider::Scripted => return Ok(()),
    };
    if sort == secret.sort {
        return Ok(());
    }
    let (it, option) = match sort {
        Sort::Token => ("a token", "--token-file"),
        Sort::Password => ("a password", "--password-file"),
        Sort::RefreshToken => ("a refresh token", "--refresh-token-file"),
    };
    Err(Failure::usage(format!("{} was connected with {it}; give a new one with {option}", mailbox.address)))
}

async fn remove(engine: &Engine, which: &Which, erase: bool, yes: bool, out: Output) -> Result<(), Failure> {
    let mailbox = find(engine, which).await?;
    let what = if erase { "and all its mail is erased" } else { "and its mail is kept" };
    if !yes {
        if !std::io::stdin().is_terminal() {
            return Err(Failure::usage(format!("{} is disconnected {what}; say --yes", mailbox.address)));
        }
        tell(&format!("{} is disconnected {what}. Type its address to go on:", mailbox.address));
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        if answer.trim() != mailbox.address {
            return Err(Failure::problem("nothing was changed"));
        }
    }
    let action = if erase { "mailbox.erase" } else { "mailbox.disconnect" };
    let disconnect = async |engine: &Engine, mailbox: &Mailbox| engine.disconnect(mailbox, None).await;
    steadily(engine, which, action, disconnect).await?;
    let erased = if erase { engine.erase_mailbox(&find(engine, which).await?).await? } else { 0 };
    if out.json {
        return out.object(&json!({"id": mailbox.id, "state": "disconnected", "erased": erased}));
    }
    let erased = if erase { format!(" {} emails were erased.", count(erased)) } else { String::new() };
    out.line(&format!("Disconnected {}.{erased}", mailbox.address))
}

fn changed_to(mailbox: &Mailbox, state: &str, changed: bool, out: Output) -> Result<(), Failure> {
    if !changed {
        return Err(Failure::problem(format!(
            "{} is {}; nothing was changed",
            mailbox.address,
            mailbox.state.as_str()
        )));
    }
    done(mailbox, state, &format!("is {state} now"), out)
}

fn done(mailbox: &Mailbox, word: &str, sentence: &str, out: Output) -> Result<(), Failure> {
    if out.json {
        return out.object(&json!({"id": mailbox.id, "outcome": word}));
    }
    out.line(&format!("{} {sentence}.", mailbox.address))
}
