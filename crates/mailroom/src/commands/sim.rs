//! `mailroom sim`: mail providers that do not exist, for trials and tests.

use std::process::ExitCode;
use std::sync::Arc;

use domain::{Clock, SystemClock};
use serde_json::json;
use sim::scripted::{Server, World};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli;
use crate::failure::Failure;
use crate::output::{Output, count, tell};

/// Different letters that all mail is made of: enough that a mailbox looks like one, few enough to be made at once.
const LETTERS: usize = 500;

pub async fn run(args: &cli::Sim, out: Output) -> Result<ExitCode, Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let listener = TcpListener::bind(args.listen).await.map_err(|e| {
        Failure::problem(format!("cannot listen on {} ({e}); choose another address with --listen", args.listen))
    })?;
    let world = Arc::new(World::new(args.seed, LETTERS, Arc::new(|| SystemClock.now())));
    world.create_many(args.accounts, args.emails);
    world.set_latency_ms(args.latency_ms);
    let server = Server::start(listener, world)?;
    announce(&server, args, out)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tell("Stopped; its mailboxes are gone with it.");
    Ok(ExitCode::SUCCESS)
}

fn announce(server: &Server, args: &cli::Sim, out: Output) -> Result<(), Failure> {
    let url = server.url();
    let control = format!("{url}/control");
    if out.json {
        return out.object(&json!({
            "listening": server.address().to_string(), "url": url, "control": control,
            "accounts": args.accounts, "emails": args.emails, "seed": args.seed,
        }));
    }
    let accounts = match args.accounts {
        0 => "no accounts yet".to_owned(),
        1 => "the account box1@scripted.example (token token-1)".to_owned(),
        n => format!("{} accounts, box1@scripted.example (token token-1) and so on", count(n as u64)),
    };
    out.line(&format!("The scripted provider listens on {url}, with {accounts}."))?;
    if !server.address().ip().is_loopback() {
        tell("Whoever reaches this address can steer it; that is fine for trials only.");
    }
    out.line("")?;
    out.line("Steer it from another terminal (docs/providers/scripted.md has everything):")?;
    let json = "-H 'content-type: application/json'";
    for example in [
        format!("curl {control}/accounts"),
        format!("curl {json} {control}/steps -d '{{\"count\":100}}'"),
        format!("curl -X PUT {json} {control}/rate -d '{{\"per_second\":20}}'"),
        format!("curl {json} {control}/faults -d '{{\"kind\":\"unavailable\",\"probability\":0.1}}'"),
        format!("curl {control}/accounts/box1@scripted.example/truth"),
    ] {
        out.line(&format!("  {example}"))?;
    }
    Ok(())
}
