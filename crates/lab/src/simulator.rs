//! `mailroom sim`: simulated mail providers for trials and tests.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use domain::{Clock, SystemClock};
use serde_json::{Value, json};
use sim::google::{CLIENT_ID, CLIENT_SECRET, GmailLimits, Now};
use sim::people::{DirectoryProvider, NewOrganisation};
use sim::{SimServer, SimWorlds, imap, jmap, microsoft};
use terminal::{Failure, Output, count, note};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Number of distinct messages that all mailboxes are filled with.
const DISTINCT_MESSAGES: usize = 500;

#[derive(Debug, Args)]
pub struct SimArgs {
    /// Address to listen on; port 0 selects a free one
    #[arg(long, default_value = "127.0.0.1:8026", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Address of the IMAP server; by default the port after that of `--listen`
    #[arg(long, value_name = "ADDRESS")]
    pub imap_listen: Option<SocketAddr>,
    /// Seed of the mailboxes; the same seed gives the same mailboxes
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Number of mailboxes per provider at the start
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub accounts: usize,
    /// Number of emails per mailbox
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub emails: usize,
    /// Number of additional organisations at Google and Microsoft: org1.example and so on
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub organisations: usize,
    /// Number of users per organisation, of every kind
    #[arg(long, default_value_t = 50, value_name = "N", requires = "organisations")]
    pub people: usize,
    /// Minimum duration of each response
    #[arg(long, visible_alias = "latency", default_value_t = 0, value_name = "MS")]
    pub latency_ms: u64,
    /// Apply the documented limits of Google and Microsoft
    #[arg(long)]
    pub quota: bool,
}

pub async fn run(args: &SimArgs, out: Output) -> Result<ExitCode, Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let listener = TcpListener::bind(args.listen).await.map_err(|e| {
        Failure::problem(format!("cannot listen on {} ({e}); choose another address with --listen", args.listen))
    })?;
    let imap_listener = bind_imap(args).await?;
    let worlds = create_worlds(args);
    let server = SimServer::start(listener, imap_listener, &worlds)?;
    announce(&server, args, out)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    note("Stopped; its mailboxes are lost.");
    Ok(ExitCode::SUCCESS)
}

/// Creates the providers with their accounts.
fn create_worlds(args: &SimArgs) -> SimWorlds {
    let now: Now = Arc::new(|| SystemClock.now());
    let worlds = SimWorlds::new(args.seed, DISTINCT_MESSAGES, &now);
    let SimWorlds { google, microsoft, imap, jmap } = &worlds;
    google.create_many(args.accounts, args.emails);
    google.set_latency_ms(args.latency_ms);
    google.set_quota(args.quota.then(GmailLimits::default));
    microsoft.create_many(args.accounts, args.emails);
    microsoft.set_latency_ms(args.latency_ms);
    microsoft.set_quota(args.quota.then(microsoft::OutlookLimits::default));
    imap.create_many(args.accounts, args.emails);
    imap.set_latency_ms(args.latency_ms);
    jmap.create_many(args.accounts, args.emails);
    jmap.set_latency_ms(args.latency_ms);
    organise(args, &**google, &**microsoft);
    worlds
}

/// Binds the IMAP port: by default the port after `--listen`, or a free one if that is free.
async fn bind_imap(args: &SimArgs) -> Result<TcpListener, Failure> {
    let beside = SocketAddr::new(args.listen.ip(), args.listen.port().checked_add(1).unwrap_or(0));
    let beside = if args.listen.port() == 0 { args.listen } else { beside };
    let address = args.imap_listen.unwrap_or(beside);
    TcpListener::bind(address).await.map_err(|e| {
        Failure::problem(format!("cannot listen on {address} ({e}); choose another address with --imap-listen"))
    })
}

/// Gives the accounts units and groups, and creates organisations with users of every kind, the same at both providers.
fn organise(args: &SimArgs, google: &impl DirectoryProvider, microsoft: &impl DirectoryProvider) {
    google.add_directory_data("sim.example", args.accounts);
    microsoft.add_directory_data("contoso.example", args.accounts);
    for number in 1..=args.organisations {
        let new = NewOrganisation {
            domain: format!("org{number}.example"),
            more_domains: Vec::new(),
            people: args.people,
            messages: args.emails,
        };
        google.create_organisation(&new);
        microsoft.create_organisation(&new);
    }
}

/// Returns the settings of `[providers.google]` for the simulated Google.
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

/// Returns the settings of `[providers.microsoft]` for the simulated Microsoft.
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

fn announce(server: &SimServer, args: &SimArgs, out: Output) -> Result<(), Failure> {
    let url = server.url();
    let control = format!("{url}/control");
    let (google, microsoft) = (google_settings(&url), microsoft_settings(&url));
    if out.json {
        return out.object(&json!({
            "listening": server.address().to_string(), "url": url, "control": control, "google": table(google),
            "microsoft": table(microsoft), "imap": server.imap().to_string(), "jmap": url, "accounts": args.accounts,
            "organisations": args.organisations, "people": args.people, "emails": args.emails, "seed": args.seed,
        }));
    }
    let at_google = accounts(args.accounts, "user1@sim.example");
    out.line(&format!("Google is simulated on {url}, with {at_google}."))?;
    let at_microsoft = accounts(args.accounts, "user1@contoso.example");
    out.line(&format!("So is Microsoft, with {at_microsoft}."))?;
    if args.organisations > 0 {
        let (organisations, people) = (count(args.organisations as u64), count(args.people as u64));
        out.line(&format!("Both have {organisations} organisations of {people} people each, org1.example and so on."))?;
    }
    let at_jmap = accounts(args.accounts, &format!("user1@jmap.example (password {})", jmap::JMAP_PASSWORD));
    out.line(&format!("There is a JMAP server, too, with {at_jmap}."))?;
    let at_imap = accounts(args.accounts, &format!("user1@imap.example (password {})", imap::PASSWORD));
    out.line(&format!("An IMAP server without TLS listens on {}, with {at_imap}.", server.imap()))?;
    if !server.address().ip().is_loopback() {
        note("Everybody who reaches this address can control it; use it for trials only.");
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
    out.line("Control them from another terminal (docs/providers/gmail-simulator.md, outlook-simulator.md, imap-simulator.md and jmap-simulator.md have everything):")?;
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

fn examples(control: &str) -> [String; 14] {
    let json = "-H 'content-type: application/json'";
    [
        format!("curl {control}/imap/accounts"),
        format!("curl {json} {control}/imap/steps -d '{{\"count\":100}}'"),
        format!("curl -X PUT {json} {control}/imap/rate -d '{{\"per_second\":20}}'"),
        format!("curl {json} {control}/google/faults -d '{{\"kind\":\"internal\",\"probability\":0.1}}'"),
        format!("curl {control}/imap/accounts/user1@imap.example/truth"),
        format!("curl -X POST {control}/google/accounts/user1@sim.example/grant   # a refresh token"),
        format!("curl {json} {control}/google/accounts/user1@sim.example/apply -d '{{\"op\":\"deliver\"}}'"),
        format!("curl {control}/google/violations"),
        format!("curl -X POST {control}/microsoft/accounts/user1@contoso.example/grant"),
        format!("curl {json} {control}/microsoft/accounts/user1@contoso.example/apply -d '{{\"op\":\"deliver\"}}'"),
        format!("curl {json} {control}/google/organisations -d '{{\"domain\":\"acme.test\",\"people\":50}}'"),
        format!("curl {control}/google/organisations/acme.test/truth"),
        format!("curl {json} {control}/imap/accounts/user1@imap.example/apply -d '{{\"op\":\"deliver\"}}'"),
        format!("curl {json} {control}/jmap/accounts/user1@jmap.example/apply -d '{{\"op\":\"deliver\"}}'"),
    ]
}
