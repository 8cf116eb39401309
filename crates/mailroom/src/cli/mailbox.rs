//! `mailroom mailbox …`

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum Mailbox {
    /// Connect a mailbox
    #[command(
        subcommand,
        after_help = "Example:\n  mailroom mailbox add scripted --tenant acme --address me@acme.test --url http://127.0.0.1:8026 --token-file token"
    )]
    Add(Add),
    /// List a tenant's mailboxes, or all
    #[command(after_help = "Example:\n  mailroom mailbox list --tenant acme")]
    List {
        /// Name or id
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
    },
    /// Show one mailbox: its state and why, when it was looked at, and how complete it is
    #[command(after_help = "Example:\n  mailroom mailbox show me@acme.test --tenant acme")]
    Show(Which),
    /// Look at a mailbox now
    #[command(
        after_help = "Example:\n  mailroom mailbox sync me@acme.test --tenant acme --wait\n\nWith --wait it returns when the mailbox is up to date; without a running server it does the work itself."
    )]
    Sync {
        #[command(flatten)]
        which: Which,
        /// Return when the mailbox is up to date
        #[arg(long)]
        wait: bool,
    },
    /// Stop calling a mailbox's provider; nothing is deleted
    #[command(after_help = "Example:\n  mailroom mailbox pause me@acme.test --tenant acme")]
    Pause(Which),
    /// Go on with a mailbox that is paused or waits for new credentials
    #[command(after_help = "Example:\n  mailroom mailbox resume me@acme.test --tenant acme")]
    Resume {
        #[command(flatten)]
        which: Which,
        /// The file with a new secret
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
    },
    /// Disconnect a mailbox for good and forget its secret; its mail stays unless --erase is given
    #[command(after_help = "Example:\n  mailroom mailbox remove me@acme.test --tenant acme")]
    Remove {
        #[command(flatten)]
        which: Which,
        /// Remove its emails as well
        #[arg(long)]
        erase: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub struct Which {
    /// Address or id
    #[arg(value_name = "ADDRESS")]
    pub mailbox: String,
    /// Name or id
    #[arg(long, value_name = "TENANT")]
    pub tenant: String,
}

#[derive(Debug, Subcommand)]
pub enum Add {
    /// A mailbox that follows a script, at `mailroom sim`
    #[command(
        after_help = "Example:\n  mailroom mailbox add scripted --tenant acme --address me@acme.test --url http://127.0.0.1:8026 --token-file token"
    )]
    Scripted(Scripted),
}

#[derive(Debug, Args)]
pub struct Scripted {
    #[command(flatten)]
    pub common: Common,
    /// Where the simulation listens
    #[arg(long, value_name = "URL")]
    pub url: String,
    /// The file with the account's token
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Common {
    /// Name or id
    #[arg(long, value_name = "TENANT")]
    pub tenant: String,
    #[arg(long, value_name = "ADDRESS")]
    pub address: String,
    /// How much of what is there already: all, none, or a duration like 30d
    #[arg(long, value_name = "ALL|NONE|DURATION")]
    pub backfill: Option<String>,
    /// Only these folders, by name
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub folders: Vec<String>,
    /// Not these folders
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub exclude: Vec<String>,
    /// How often to look
    #[arg(long, value_name = "DURATION")]
    pub interval: Option<String>,
    /// Do not try the connection first
    #[arg(long)]
    pub no_check: bool,
}
