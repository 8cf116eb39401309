//! The command line, as CONTRACT promises it.

pub mod bench;
pub mod demo;
pub mod directory;
pub mod jobs;
pub mod mailbox;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Takes in every mailbox of every tenant, exactly once, into a SQL database that its owner can query.
#[derive(Debug, Parser)]
#[command(name = "mailroom", version, arg_required_else_help = true, propagate_version = true)]
pub struct Cli {
    /// Settings file (default: mailroom.toml in the working directory, if it is there)
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Print JSON: one object, or one object a line for lists
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show everything at work: three tenants at a Google, a Microsoft and an IMAP server that do not exist
    #[command(
        after_help = "Example:\n  mailroom demo\n  mailroom demo --once --emails 2000\n\nNothing outside of this machine is called. Ctrl-C ends it."
    )]
    Demo(demo::Demo),
    /// Bring the database schema up to date
    #[command(after_help = "Example:\n  mailroom migrate --check")]
    Migrate {
        /// Change nothing; exit 1 when the schema is not up to date
        #[arg(long)]
        check: bool,
    },
    /// Check configuration, database, keys, blobs and clock, and say how to mend what is wrong
    #[command(after_help = "Example:\n  mailroom doctor")]
    Doctor,
    /// Show the settings in force
    #[command(subcommand, after_help = "Example:\n  mailroom config show")]
    Config(Config),
    /// Make and manage tenants
    #[command(subcommand, after_help = "Example:\n  mailroom tenant create acme --plan vip")]
    Tenant(Tenant),
    /// Connect mailboxes and look after them
    #[command(subcommand, after_help = "Example:\n  mailroom mailbox show me@acme.test --tenant acme")]
    Mailbox(mailbox::Mailbox),
    /// Let people of an organisation get their mailboxes by themselves
    #[command(subcommand, after_help = "Example:\n  mailroom directory discover --tenant acme --dry-run")]
    Directory(directory::Directory),
    /// Look at people of an organisation
    #[command(subcommand, after_help = "Example:\n  mailroom user list --tenant acme")]
    User(directory::User),
    /// Make and manage a tenant's API keys
    #[command(
        subcommand,
        after_help = "Example:\n  mailroom key create --tenant acme --name ci --scopes read --expires 90d"
    )]
    Key(Key),
    /// Import mbox files, Maildirs, folders of .eml files, Apple and Outlook messages
    #[command(
        after_help = "Example:\n  mailroom import ~/mail.mbox --tenant acme --mailbox me@acme.test\n\nRepeating an import stores nothing new."
    )]
    Import(Import),
    /// Write stored emails out again, byte for byte
    #[command(
        after_help = "Example:\n  mailroom export --tenant acme --query 'from:ann after:2024-01-01' --format mbox --out ann.mbox"
    )]
    Export(Export),
    /// Find emails
    #[command(
        after_help = "Example:\n  mailroom search 'from:ann \"quarterly report\" has:attachment -draft after:2024-01-31' --tenant acme\n\n\
        Words must all occur; \"…\" is a phrase, - excludes, word* is a beginning.\n\
        Fields: from: to: subject: filename: label: has:attachment after: before:\n\
        An empty query ('') lists everything, newest first."
    )]
    Search(Search),
    /// Look at one email
    #[command(subcommand, after_help = "Example:\n  mailroom email show 0190b6c1-… --tenant acme --raw > original.eml")]
    Email(Email),
    /// Check that rows, ledger, text index and blobs agree
    #[command(
        after_help = "Example:\n  mailroom verify --tenant acme --deep\n\nExits 1 on any difference and names it."
    )]
    Verify(Verify),
    /// Copy the database and all blobs into a folder, beside whatever else is going on
    #[command(
        after_help = "Example:\n  mailroom backup --out /mnt/backup/mailroom\n\nInterrupted, it goes on when it is run again. Into the folder of an earlier backup it copies only what is new."
    )]
    Backup {
        /// The folder of the backup; made if it is not there
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Bring a backup back into an empty place
    #[command(
        after_help = "Example:\n  MAILROOM_DATA_DIR=restored mailroom restore /mnt/backup/mailroom\n\nInterrupted, it goes on when it is run again."
    )]
    Restore {
        /// The folder that `mailroom backup` made
        #[arg(value_name = "DIR")]
        from: PathBuf,
    },
    /// Delete bytes that nothing names any more, and merge small packs
    #[command(
        after_help = "Example:\n  mailroom gc --grace 7d\n\nMay be interrupted anywhere, and runs beside everything else."
    )]
    Gc(Gc),
    /// Store attachments that blob storage could not take when their email came in
    #[command(
        after_help = "Example:\n  mailroom retry-blobs --tenant acme\n\nEmails without their original need to be imported again; that fills in what is missing."
    )]
    RetryBlobs(RetryBlobs),
    /// Run the service: work on jobs, keep schedules, answer health checks
    #[command(
        after_help = "Example:\n  mailroom serve --roles worker,scheduler\n\nSIGTERM or Ctrl-C finishes or gives back what it does, within 30 seconds; a second one ends it at once."
    )]
    Serve(Serve),
    /// Look at the work that waits, runs and ran, and steer it
    #[command(subcommand, after_help = "Example:\n  mailroom jobs why 0190b6c1-…")]
    Jobs(jobs::Jobs),
    /// Look at what comes back by the calendar, and steer it
    #[command(subcommand, after_help = "Example:\n  mailroom recurring list")]
    Recurring(jobs::Recurring),
    /// Look at jobs that went wrong too often, and run them again
    #[command(subcommand, after_help = "Example:\n  mailroom dead-letters replay --all --kind noop --rate 10/s")]
    DeadLetters(jobs::DeadLetters),
    /// Look after the record of who changed what
    #[command(subcommand, after_help = "Example:\n  mailroom audit verify")]
    Audit(Audit),
    /// Keep what opens mailboxes safe
    #[command(subcommand, after_help = "Example:\n  mailroom secrets rotate")]
    Secrets(Secrets),
    /// Run mail providers that do not exist, with mailboxes that change and faults on demand
    #[command(
        after_help = "Example:\n  mailroom sim --listen 127.0.0.1:8026 --accounts 3 --emails 200\n\nA scripted provider, Google and Microsoft are on the same address, an IMAP server on the port after it. Prints how to steer them. Nothing is kept when it stops."
    )]
    Sim(Sim),
    /// Measure this machine
    #[command(subcommand, after_help = "Example:\n  mailroom bench ingest --messages 10000")]
    Bench(Bench),
}

#[derive(Debug, Subcommand)]
pub enum Config {
    /// Print every setting with its value and where it came from; secrets are hidden
    #[command(after_help = "Example:\n  mailroom config show --config mailroom.toml")]
    Show,
}

#[derive(Debug, Subcommand)]
pub enum Tenant {
    /// Make a tenant
    #[command(after_help = "Example:\n  mailroom tenant create acme --plan vip")]
    Create {
        /// What people call it; up to 100 characters
        name: String,
        #[arg(long, default_value = "standard", value_name = "PLAN")]
        plan: Plan,
    },
    /// List all tenants
    #[command(after_help = "Example:\n  mailroom tenant list --json")]
    List,
    /// Show one tenant with its mailboxes and counts
    #[command(after_help = "Example:\n  mailroom tenant show acme")]
    Show { tenant: String },
    /// Show what a tenant uses of its providers, what is left, and when what waits will be here
    #[command(after_help = "Example:\n  mailroom tenant usage acme")]
    Usage { tenant: String },
    /// Let a tenant's work go on
    #[command(after_help = "Example:\n  mailroom tenant activate acme")]
    Activate { tenant: String },
    /// Stop a tenant's work; nothing is deleted
    #[command(after_help = "Example:\n  mailroom tenant deactivate acme")]
    Deactivate { tenant: String },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Plan {
    Standard,
    Vip,
}

#[derive(Debug, Subcommand)]
pub enum Key {
    /// Make a key and print it once
    #[command(after_help = "Example:\n  mailroom key create --tenant acme --name ci --scopes read,write --expires 90d")]
    Create {
        #[command(flatten)]
        tenant: InTenant,
        /// What it is for
        #[arg(long)]
        name: String,
        /// Any of read, write, admin
        #[arg(long, value_delimiter = ',', default_value = "read")]
        scopes: Vec<String>,
        /// For how long it is valid, such as 90d or 12h (default: until revoked)
        #[arg(long, value_name = "DURATION")]
        expires: Option<String>,
    },
    /// List a tenant's keys, without their secrets
    #[command(after_help = "Example:\n  mailroom key list --tenant acme")]
    List {
        #[command(flatten)]
        tenant: InTenant,
    },
    /// Make a key useless at once
    #[command(after_help = "Example:\n  mailroom key revoke 0190b6c1-… --tenant acme")]
    Revoke {
        #[command(flatten)]
        tenant: InTenant,
        /// The key's id, as `key list` shows it
        id: String,
    },
}

#[derive(Debug, Args)]
pub struct InTenant {
    /// A tenant's name or id
    #[arg(long, value_name = "TENANT")]
    pub tenant: String,
}

#[derive(Debug, Args)]
pub struct Import {
    /// Files or folders
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// A tenant's name or id; a new name makes the tenant
    #[arg(long, value_name = "TENANT")]
    pub tenant: String,
    /// The mailbox's address or id; a new address makes the mailbox
    #[arg(long, value_name = "ADDRESS")]
    pub mailbox: String,
    #[arg(long, default_value = "auto")]
    pub format: ImportFormat,
    /// Put everything into this folder instead of those that the files name
    #[arg(long, value_name = "NAME")]
    pub folder: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ImportFormat {
    Auto,
    Eml,
    Mbox,
    Maildir,
}

#[derive(Debug, Args)]
pub struct Export {
    #[command(flatten)]
    pub tenant: InTenant,
    /// Only this mailbox (address or id)
    #[arg(long, value_name = "ADDRESS")]
    pub mailbox: Option<String>,
    /// Only what this search finds
    #[arg(long, default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub query: String,
    #[arg(long, default_value = "mbox")]
    pub format: ExportFormat,
    /// The file (mbox) or folder (eml) to make
    #[arg(long, value_name = "PATH")]
    pub out: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ExportFormat {
    Mbox,
    Eml,
}

#[derive(Debug, Args)]
pub struct Search {
    /// What to find; '' lists everything
    #[arg(default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub query: String,
    #[command(flatten)]
    pub tenant: InTenant,
    /// Only this mailbox (address or id)
    #[arg(long, value_name = "ADDRESS")]
    pub mailbox: Option<String>,
    /// How many to show (default: 20 on a terminal, else all)
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Whole emails instead of one line each
    #[arg(long)]
    pub full: bool,
    /// Best match first instead of newest first
    #[arg(long)]
    pub ranked: bool,
    /// Go on where an earlier search stopped
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Email {
    /// Show an email; --raw gives the original bytes
    #[command(after_help = "Example:\n  mailroom email show 0190b6c1-… --tenant acme --raw > original.eml")]
    Show {
        id: String,
        #[command(flatten)]
        tenant: InTenant,
        /// The original message, byte for byte
        #[arg(long)]
        raw: bool,
    },
    /// Remove emails for good; `mailroom gc` then gives their bytes back
    #[command(
        after_help = "Example:\n  mailroom email purge --tenant acme --query 'before:2015-01-01' --yes\n\nWithout --yes it only says how many it would remove."
    )]
    Purge {
        /// Ids, as `mailroom search` shows them
        #[arg(value_name = "ID", conflicts_with = "query", required_unless_present = "query")]
        ids: Vec<String>,
        #[command(flatten)]
        tenant: InTenant,
        /// Everything that this search finds
        #[arg(long, allow_hyphen_values = true)]
        query: Option<String>,
        /// Only of this mailbox (address or id)
        #[arg(long, value_name = "ADDRESS", requires = "query")]
        mailbox: Option<String>,
        /// Really do it
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub struct Gc {
    /// Only this tenant (name or id)
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// How long something must have been unnamed, such as 24h (default: the setting blobs.grace)
    #[arg(long, value_name = "DURATION")]
    pub grace: Option<String>,
}

#[derive(Debug, Args)]
pub struct RetryBlobs {
    /// Only this tenant (name or id)
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
}

#[derive(Debug, Args)]
pub struct Verify {
    /// Only this tenant (name or id)
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Only this mailbox (address or id)
    #[arg(long, value_name = "ADDRESS", requires = "tenant")]
    pub mailbox: Option<String>,
    /// Read every blob back and check its hash
    #[arg(long)]
    pub deep: bool,
}

#[derive(Debug, Args)]
pub struct Serve {
    /// What this process does; others may do the rest
    #[arg(long, value_enum, value_delimiter = ',', default_value = "web,scheduler,worker", value_name = "ROLES")]
    pub roles: Vec<Role>,
    /// Stop with the process that started this one, however that ends
    #[arg(long, hide = true)]
    pub end_with_parent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Answers requests
    Web,
    /// Fires what happens again and again; one of all processes does, the others stand by
    Scheduler,
    /// Works on jobs, and listens to mailboxes whose servers tell what is new
    Worker,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Web => "web",
            Self::Scheduler => "scheduler",
            Self::Worker => "worker",
        }
    }
}

#[derive(Debug, Args)]
pub struct Sim {
    /// Where it listens; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:8026", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Where mail programs find the IMAP server; by default the port after that of `--listen`
    #[arg(long, value_name = "ADDRESS")]
    pub imap_listen: Option<SocketAddr>,
    /// The same seed makes the same mailboxes
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// How many mailboxes each provider has from the start
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub accounts: usize,
    /// How many emails are in each of them
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub emails: usize,
    /// How many organisations Google and Microsoft have beside them, org1.example and so on
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub organisations: usize,
    /// How many people are in each of those, of every kind
    #[arg(long, default_value_t = 50, value_name = "N", requires = "organisations")]
    pub people: usize,
    /// How long every answer takes at least
    #[arg(long, visible_alias = "latency", default_value_t = 0, value_name = "MS")]
    pub latency_ms: u64,
    /// The documented limits of Google and Microsoft hold
    #[arg(long)]
    pub quota: bool,
}

#[derive(Debug, Subcommand)]
pub enum Audit {
    /// Check that no entry was altered, removed or put in; names the first that is broken
    #[command(
        after_help = "Example:\n  mailroom audit verify --tenant acme\n\nThe hash at the end of each line covers all entries before it. Note it elsewhere, and nobody can rewrite them unseen."
    )]
    Verify {
        /// Only this tenant's, by name or id
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum Secrets {
    /// Go over to a new master key and new keys for all tenants, and encrypt every secret anew
    #[command(
        after_help = "Example:\n  mailroom secrets rotate\n\nServers go on meanwhile. Interrupted, it goes on when it is run again. Backups that were made before need the old key."
    )]
    Rotate(Rotate),
}

#[derive(Debug, Args)]
pub struct Rotate {
    /// A file with the new key (default: KEYFILE.new if it is there, else one is made)
    #[arg(long, value_name = "FILE")]
    pub new_key_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Import a generated mailbox and search it
    #[command(after_help = "Example:\n  mailroom bench ingest --postgres postgres://postgres@127.0.0.1/postgres")]
    Ingest(BenchIngest),
    /// Enqueue, claim, run and complete jobs that do nothing
    #[command(after_help = "Example:\n  mailroom bench jobs --postgres postgres://postgres@127.0.0.1/postgres")]
    Jobs(BenchJobs),
    /// Look at many mailboxes in which nothing is new
    #[command(
        after_help = "Examples:\n  mailroom bench poll\n  mailroom bench poll --unlimited\n  mailroom bench poll --one-large-tenant"
    )]
    Poll(bench::BenchPoll),
    /// Give everybody of a simulated organisation a mailbox, at Google and at Microsoft
    #[command(after_help = "Example:\n  mailroom bench discover --people 10000 --latency-ms 20")]
    Discover(bench::BenchDiscover),
    /// Fill an empty database with mail of many tenants, to measure the API over it
    #[command(after_help = "Example:\n  mailroom bench seed --emails 1000000 --tenants 100 --keys keys.txt")]
    Seed(bench::BenchSeed),
    /// Ask a server for a list, a page far back, a search; so many times a second, whether it keeps up or not
    #[command(after_help = "Example:\n  mailroom bench api --url http://127.0.0.1:8025 --keys keys.txt --rate 500")]
    Api(bench::BenchApi),
}

#[derive(Debug, Args)]
pub struct BenchJobs {
    /// Jobs in the backlog; 97 of 100 belong to one tenant, the rest to a hundred others
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub jobs: usize,
    /// How many jobs come each second in the sustained mix
    #[arg(long, default_value_t = 2000, value_name = "N")]
    pub rate: u64,
    /// How long the sustained mix goes on
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub seconds: u64,
    /// Measure beside so many finished jobs too, by turns with a database that has none
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub finished: u64,
    /// Measure on this PostgreSQL server too, in databases of our own that are dropped again
    #[arg(long, value_name = "URL")]
    pub postgres: Option<String>,
}

/// A provider that `mailroom sim` simulates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Simulated {
    Gmail,
    Outlook,
}

#[derive(Debug, Args)]
pub struct BenchIngest {
    /// Messages in the mailbox; 10,000 are 177 MB
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub messages: usize,
    /// How many emails to search
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub search_emails: usize,
    /// How often each import is run; the table shows best and worst
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub rounds: usize,
    /// Measure on this PostgreSQL server too, in databases of our own that are dropped again
    #[arg(long, value_name = "URL")]
    pub postgres: Option<String>,
    /// Measure instead a mailbox at this IMAP server of your own (imap://user:password@host:port), filled if it is empty
    #[arg(long, value_name = "URL")]
    pub imap: Option<String>,
    /// Measure instead mailboxes at this simulated provider, which is started for it
    #[arg(long, value_name = "PROVIDER", conflicts_with = "imap")]
    pub sim: Option<Simulated>,
    /// How many mailboxes the messages are in, with --sim
    #[arg(long, default_value_t = 1, value_name = "N", requires = "sim")]
    pub mailboxes: usize,
    /// How far away the simulated provider is
    #[arg(long, default_value_t = 0, value_name = "MS", requires = "sim")]
    pub latency_ms: u64,
    /// The simulated provider has its documented quotas
    #[arg(long, requires = "sim")]
    pub quota: bool,
    /// A program that prints `{"seconds":x}` for an mbox and a folder to work in, to measure beside us
    #[arg(long, value_name = "PROGRAM")]
    pub floor: Option<PathBuf>,
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
}
