//! `mailroom sim`: mail providers that do not exist, for trials and tests.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use domain::{Clock, SystemClock};
use serde_json::{Value, json};
use sim::google::{self, CLIENT_ID, CLIENT_SECRET, Limits};
use sim::people::{NewOrganisation, Organised};
use sim::{Server, imap, microsoft, scripted};
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
    let imap_listener = bind_imap(args).await?;
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
    microsoft.set_quota(args.quota.then(microsoft::Limits::default));
    let imap = Arc::new(imap::World::new(args.seed, LETTERS, Arc::new(|| SystemClock.now())));
    imap.create_many(args.accounts, args.emails);
    imap.set_latency_ms(args.latency_ms);
    organise(args, &*google, &*microsoft);
    let server = Server::start(listener, scripted, &google, &microsoft, (imap_listener, &imap))?;
    announce(&server, args, out)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tell("Stopped; its mailboxes are gone with it.");
    Ok(ExitCode::SUCCESS)
}

/// By default beside the other one: on a free port if that is, else on the next.
async fn bind_imap(args: &cli::Sim) -> Result<TcpListener, Failure> {
    let beside = SocketAddr::new(args.listen.ip(), args.listen.port().checked_add(1).unwrap_or(0));
    let beside = if args.listen.port() == 0 { args.listen } else { beside };
    let address = args.imap_listen.unwrap_or(beside);
    TcpListener::bind(address).await.map_err(|e| {
        Failure::problem(format!("cannot listen on {address} ({e}); choose another address with --imap-listen"))
    })
}

/// The accounts get units and groups; organisations of their own have people of every kind, the same at both.
fn organise(args: &cli::Sim, google: &impl Organised, microsoft: &impl Organised) {
    google.furnish("sim.example", args.accounts);
    microsoft.furnish("contoso.example", args.accounts);
    for number in 1..=args.organisations {
        let new = NewOrganisation {
            domain: format!("org{number}.example"),
            more_domains: Vec::new(),
            people: args.people,
            messages: args.emails,
        };
        google.organise(&new);
        microsoft.organise(&new);
    }
}

/// Where the simulated Google is, by the names that `[providers.google]` has for it.
fn google_settings(url: &str) -> [(&'static str, String); 7] {
    [
        ("auth_url", format!("{url}/o/oauth2/v2/auth")),
        ("token_url", format!("{url}/token")),
        ("jwks_url", format!("{url}/oauth2/v3/certs")),
        ("api_url", url.to_owned()),
        ("directory_url", url.to_owned()),
        ("client_id", CLIENT_ID.to_owned()),
        ("client_secret", CLIENT_SECRET.to_owned()),
    ]
}

/// Where the simulated Microsoft is, by the names that `[providers.microsoft]` has for it.
fn microsoft_settings(url: &str) -> [(&'static str, String); 4] {
    [
        ("authority_url", url.to_owned()),
        ("graph_url", url.to_owned()),
        ("client_id", microsoft::CLIENT_ID.to_owned()),
        ("client_secret", microsoft::CLIENT_SECRET.to_owned()),
    ]
}

fn table(settings: impl IntoIterator<Item = (&'static str, String)>) -> Value {
    settings.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect::<serde_json::Map<_, _>>().into()
}

fn announce(server: &Server, args: &cli::Sim, out: Output) -> Result<(), Failure> {
    let url = server.url();
    let control = format!("{url}/control");
    let (google, microsoft) = (google_settings(&url), microsoft_settings(&url));
    if out.json {
        return out.object(&json!({
            "listening": server.address().to_string(), "url": url, "control": control, "google": table(google),
            "microsoft": table(microsoft), "imap": server.imap().to_string(), "accounts": args.accounts,
            "organisations": args.organisations, "people": args.people, "emails": args.emails, "seed": args.seed,
        }));
    }
    out.line(&format!(
        "The scripted provider listens on {url}, with {}.",
        accounts(args.accounts, "box1@scripted.example (token token-1)")
    ))?;
    out.line(&format!("Google is simulated there as well, with {}.", accounts(args.accounts, "user1@sim.example")))?;
    let at_microsoft = accounts(args.accounts, "user1@contoso.example");
    out.line(&format!("So is Microsoft, with {at_microsoft}."))?;
    if args.organisations > 0 {
        let (organisations, people) = (count(args.organisations as u64), count(args.people as u64));
        out.line(&format!("Both have {organisations} organisations of {people} people each, org1.example and so on."))?;
    }
    let at_imap = accounts(args.accounts, &format!("user1@imap.example (password {})", imap::PASSWORD));
    out.line(&format!("An IMAP server without TLS listens on {}, with {at_imap}.", server.imap()))?;
    if !server.address().ip().is_loopback() {
        tell("Whoever reaches this address can steer it; that is fine for trials only.");
    }
    out.line("")?;
    out.line("For mailroom.toml:")?;
    out.line("  [providers.google]")?;
    for (name, value) in google {
        out.line(&format!("  {name} = \"{value}\""))?;
    }
    out.line("  [providers.microsoft]")?;
    for (name, value) in microsoft {
        out.line(&format!("  {name} = \"{value}\""))?;
    }
    out.line("")?;
    out.line("Steer them from another terminal (docs/providers/scripted.md, gmail-simulator.md, outlook-simulator.md and imap-simulator.md have everything):")?;
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

fn examples(control: &str) -> [String; 13] {
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
        format!("curl -X POST {control}/microsoft/accounts/user1@contoso.example/grant"),
        format!("curl {json} {control}/microsoft/accounts/user1@contoso.example/apply -d '{{\"op\":\"deliver\"}}'"),
        format!("curl {json} {control}/google/organisations -d '{{\"domain\":\"acme.test\",\"people\":50}}'"),
        format!("curl {control}/google/organisations/acme.test/truth"),
        format!("curl {json} {control}/imap/accounts/user1@imap.example/apply -d '{{\"op\":\"deliver\"}}'"),
    ]
}
