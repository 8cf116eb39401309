//! What is measured over HTTP, at providers, and of directories.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub struct BenchDiscover {
    /// People in the organisation, some of them suspended, guests or without a mailbox
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub people: usize,
    /// How far away the provider is
    #[arg(long, default_value_t = 20, value_name = "MS")]
    pub latency_ms: u64,
    /// Measure on this PostgreSQL server too, in a database of our own that is dropped again
    #[arg(long, value_name = "URL")]
    pub postgres: Option<String>,
}

#[derive(Debug, Args)]
pub struct BenchPoll {
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub mailboxes: usize,
    /// Tenants that they are spread over
    #[arg(long, default_value_t = 200, value_name = "N")]
    pub tenants: usize,
    /// What each provider allows
    #[arg(long, default_value_t = 150, value_name = "N", conflicts_with = "unlimited")]
    pub calls_per_second: u64,
    /// As many calls as can be made
    #[arg(long)]
    pub unlimited: bool,
    /// All mailboxes at Gmail, instead of half of them at Outlook
    #[arg(long)]
    pub one_provider: bool,
    /// One tenant has nine of ten mailboxes; how much longer the others wait for it
    #[arg(long)]
    pub one_large_tenant: bool,
    /// How far away the providers are
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub latency_ms: u64,
    /// Mailboxes that are looked at at the same time
    #[arg(long, default_value_t = 500, value_name = "N")]
    pub in_flight: usize,
    /// How often each is looked at
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub rounds: usize,
    /// Measure on this PostgreSQL server too, in a database of our own that is dropped again
    #[arg(long, value_name = "URL")]
    pub postgres: Option<String>,
    /// Connect the mailboxes at this simulator and do nothing else; the benchmark starts itself for that
    #[arg(long, hide = true, requires = "folder", value_name = "URL")]
    pub prepare: Option<String>,
    #[arg(long, hide = true, value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct BenchSeed {
    /// Emails of all tenants together
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub emails: usize,
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub tenants: usize,
    /// Where to write an API key of each tenant, a line each
    #[arg(long, value_name = "FILE")]
    pub keys: PathBuf,
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
}

#[derive(Debug, Args)]
pub struct BenchApi {
    /// Where `mailroom serve` listens; given more than once, one after the other is measured
    #[arg(long, required = true, value_name = "URL")]
    pub url: Vec<String>,
    /// A file with an API key of each tenant, a line each; for each URL in turn
    #[arg(long, required = true, value_name = "FILE")]
    pub keys: Vec<PathBuf>,
    /// What the server is called in the table; for each URL in turn
    #[arg(long, value_name = "NAME")]
    pub name: Vec<String>,
    /// The server's process, whose memory and processor time are told; for each URL in turn
    #[arg(long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// What to ask for, one after the other
    #[arg(long, value_delimiter = ',', default_value = "health,list,deep,search", value_name = "WHAT,…")]
    pub what: Vec<What>,
    /// Requests that are due each second, all tenants together; whether the server keeps up or not
    #[arg(long, default_value_t = 500.0, value_name = "N")]
    pub rate: f64,
    /// The same for searches, which nobody asks for as often as for lists
    #[arg(long, default_value_t = 50.0, value_name = "N")]
    pub search_rate: f64,
    #[arg(long, default_value_t = 20.0, value_name = "N")]
    pub seconds: f64,
    /// Connections; who finds all of them busy waits, and that counts
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub connections: usize,
    /// Followers of events, for `--what sse`
    #[arg(long, default_value_t = 5000, value_name = "N")]
    pub clients: usize,
    /// Once more with one tenant that asks for a hundred times its share beside the others
    #[arg(long)]
    pub noisy: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Whether the server lives: what a request costs at least
    Health,
    /// The newest 50 emails
    List,
    /// 50 emails anywhere in the list
    Deep,
    /// Common and rare words, phrases, senders, and words that nobody wrote
    Search,
    /// Mostly lists, some searches, some whole emails
    Mixed,
    /// Followers of events to whom nothing is told
    Sse,
}
