//! `mailroom sim`: mail providers that do not exist, for trials and tests.

use std::process::ExitCode;
use std::sync::Arc;

use domain::{Clock, SystemClock};
use serde_json::{Value, json};
use sim::google::{self, CLIENT_ID, CLIENT_SECRET, Limits};
use sim::{Server, microsoft, scripted};
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
    let scripted = Arc::new(scripted::World::new(args.seed, LETTERS, Arc::new(|| SystemClock.now())));
    scripted.create_many(args.accounts, args.emails);
    scripted.set_latency_ms(args.latency_ms);
    let google = Arc::new(google::World::new(args.seed, LETTERS, Arc::new(|| SystemClock.now())));
    google.create_many(args.accounts, args.emails);
    google.set_latency_ms(args.latency_ms);
    google.set_quota(args.quota.then(Limits::default));
    let microsoft = Arc::new(microsoft::World::new(args.seed, LETTERS, Arc::new(|| SystemClock.now())));
    microsoft.create_many(args.accounts, args.emails);
    microsoft.set_latency_ms(args.latency_ms);
    let server = Server::start(listener, scripted, &google, &microsoft)?;
    announce(&server, args, out)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tell("Stopped; its mailboxes are gone with it.");
    Ok(ExitCode::SUCCESS)
}

/// Where the simulated Google is, by the names that `[providers.google]` has for it.
fn google_settings(url: &str) -> [(&'static str, String); 6] {
    [
        ("auth_url", format!("{url}/o/oauth2/v2/auth")),
        ("token_url", format!("{url}/token")),
        ("jwks_url", format!("{url}/oauth2/v3/certs")),
        ("api_url", url.to_owned()),
        ("client_id", CLIENT_ID.to_owned()),
        ("client_secret", CLIENT_SECRET.to_owned()),
    ]
}

fn announce(server: &Server, args: &cli::Sim, out: Output) -> Result<(), Failure> {
    let url = server.url();
    let control = format!("{url}/control");
    let settings = google_settings(&url);
    if out.json {
        let google: serde_json::Map<String, Value> =
            settings.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        return out.object(&json!({
            "listening": server.address().to_string(), "url": url, "control": control, "google": google,
            "accounts": args.accounts, "emails": args.emails, "seed": args.seed,
        }));
    }
    out.line(&format!(
        "The scripted provider listens on {url}, with {}.",
        accounts(args.accounts, "box1@scripted.example (token token-1)")
    ))?;
    out.line(&format!("Google is simulated there as well, with {}.", accounts(args.accounts, "user1@sim.example")))?;
    if !server.address().ip().is_loopback() {
        tell("Whoever reaches this address can steer it; that is fine for trials only.");
    }
    out.line("")?;
    out.line("For mailroom.toml:")?;
    out.line("  [providers.google]")?;
    for (name, value) in settings {
        out.line(&format!("  {name} = \"{value}\""))?;
    }
    out.line("")?;
    out.line("Steer them from another terminal (docs/providers/scripted.md and gmail-simulator.md have everything):")?;
    for example in examples(&control) {
        out.line(&format!("  {example}"))?;
    }
    Ok(())
}

fn accounts(number: usize, first: &str) -> String {
    match number {
        0 => "no accounts yet".to_owned(),
        1 => format!("the account {first}"),
        n => format!("{} accounts, {first} and so on", count(n as u64)),
    }
}

fn examples(control: &str) -> [String; 8] {
    let json = "-H 'content-type: application/json'";
    [
        format!("curl {control}/accounts"),
        format!("curl {json} {control}/steps -d '{{\"count\":100}}'"),
        format!("curl -X PUT {json} {control}/rate -d '{{\"per_second\":20}}'"),
        format!("curl {json} {control}/faults -d '{{\"kind\":\"unavailable\",\"probability\":0.1}}'"),
        format!("curl {control}/accounts/box1@scripted.example/truth"),
        format!("curl -X POST {control}/google/accounts/user1@sim.example/grant   # a refresh token"),
        format!("curl {json} {control}/google/accounts/user1@sim.example/apply -d '{{\"op\":\"deliver\"}}'"),
        format!("curl {control}/google/violations"),
    ]
}
