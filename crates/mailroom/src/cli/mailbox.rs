//! `mailroom mailbox …`

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub enum Mailbox {
    /// Connect a mailbox
    #[command(
        subcommand,
        after_help = "Example:\n  mailroom mailbox add imap --tenant acme --address me@acme.test --host imap.acme.test --password-file password"
    )]
    Add(Add),
    /// Print a link under which the owner of a mailbox connects it in a browser
    #[command(
        subcommand,
        after_help = "Example:\n  mailroom mailbox connect gmail --tenant acme --address me@acme.test"
    )]
    Connect(Connect),
    /// Print a link under which the administrator of an organization lets this Mailroom into all its mailboxes
    #[command(subcommand, after_help = "Example:\n  mailroom mailbox authorize outlook --directory acme.test")]
    Authorize(Authorize),
    /// List a tenant's mailboxes, or all: their state and why, and how far older mail has come
    #[command(after_help = "Example:\n  mailroom mailbox list --tenant acme")]
    List {
        /// Name or id
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
    },
    /// Show one mailbox: its state and why, when it was looked at, how far older mail has come, and how complete it is
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
    #[command(after_help = "Example:\n  mailroom mailbox resume me@acme.test --tenant acme --password-file password")]
    Resume {
        #[command(flatten)]
        which: Which,
        /// The file with a new password
        #[arg(long, value_name = "FILE", conflicts_with = "token_file")]
        password_file: Option<PathBuf>,
        /// The file with a new token
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        /// The file with a new refresh token, of a mailbox at Gmail or Outlook
        #[arg(long, value_name = "FILE", conflicts_with_all = ["password_file", "token_file"])]
        refresh_token_file: Option<PathBuf>,
        /// Do not try a new password or token first
        #[arg(long)]
        no_check: bool,
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
    /// A mailbox at any server that speaks IMAP
    #[command(
        after_help = "Examples:\n  mailroom mailbox add imap --tenant acme --address me@acme.test --host imap.acme.test --password-file password\n  mailroom mailbox add imap --tenant acme --address me@acme.test --host mail.acme.test --tls starttls --backfill 90d --exclude Archive\n\nWithout --password-file the password is asked for, or read from standard input when that is no terminal."
    )]
    Imap(Box<Imap>),
    /// A mailbox at Google, by what its owner or its domain has allowed
    #[command(
        after_help = "Examples:\n  mailroom mailbox add gmail --tenant acme --address me@acme.test --refresh-token-file token\n  mailroom mailbox add gmail --tenant acme --address me@acme.test --app-only --backfill 90d\n\nTo have its owner connect it in a browser, use `mailroom mailbox connect gmail`."
    )]
    Gmail(Gmail),
    /// A mailbox at Microsoft, by what its owner or its directory has allowed
    #[command(
        after_help = "Examples:\n  mailroom mailbox add outlook --tenant acme --address me@acme.test --refresh-token-file token\n  mailroom mailbox add outlook --tenant acme --address me@acme.test --app-only --directory acme.onmicrosoft.com\n\nTo have its owner connect it in a browser, use `mailroom mailbox connect outlook`. Before --app-only an administrator says yes once: `mailroom mailbox authorize outlook`."
    )]
    Outlook(Outlook),
    /// A mailbox that follows a script, at `mailroom sim`
    #[command(
        after_help = "Example:\n  mailroom mailbox add scripted --tenant acme --address me@acme.test --url http://127.0.0.1:8026 --token-file token"
    )]
    Scripted(Scripted),
}

#[derive(Debug, Args)]
pub struct Imap {
    #[command(flatten)]
    pub common: Common,
    /// Name or address of the server
    #[arg(long, value_name = "HOST")]
    pub host: String,
    /// 993, or 143 unless TLS is implicit
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// How the connection is secured
    #[arg(long, value_enum, default_value_t = Tls::Implicit, value_name = "HOW")]
    pub tls: Tls,
    /// Who logs in, when it is not the address
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// The file with the password
    #[arg(long, value_name = "FILE", conflicts_with = "token_file")]
    pub password_file: Option<PathBuf>,
    /// The file with an OAuth access token, in the place of a password
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The file with the certificate (PEM) of an authority of your own that the server's is signed by
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// How much may be fetched in a day, like 500 MB; 0 B: as much as there is
    #[arg(long, value_name = "SIZE")]
    pub bytes_per_day: Option<String>,
    /// Let password and mail cross a network in the open, with --tls none
    #[arg(long)]
    pub allow_plaintext: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Tls {
    /// From the first byte on
    Implicit,
    /// After the greeting, or not at all
    Starttls,
    /// Not at all, for servers on this machine
    None,
}

#[derive(Debug, Args)]
pub struct Gmail {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub opened: Opened,
}

#[derive(Debug, Args)]
pub struct Outlook {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub opened: Opened,
    /// In which directory it is, by its id or one of its domains, when that is not the domain of the address
    #[arg(long, value_name = "DIRECTORY", requires = "app_only")]
    pub directory: Option<String>,
}

/// By whom a mailbox is opened.
#[derive(Debug, Args)]
pub struct Opened {
    /// The file with the refresh token that the owner's consent gave
    #[arg(long, value_name = "FILE", required_unless_present = "app_only", conflicts_with = "app_only")]
    pub refresh_token_file: Option<PathBuf>,
    /// By this Mailroom itself, which the organization has allowed it
    #[arg(long)]
    pub app_only: bool,
}

#[derive(Debug, Subcommand)]
pub enum Connect {
    /// A mailbox at Google
    #[command(
        after_help = "Example:\n  mailroom mailbox connect gmail --tenant acme --address me@acme.test\n\nThe link is good for ten minutes and needs a running server at server.public_url. A mailbox that is there already goes on with the new consent."
    )]
    Gmail(Wish),
    /// A mailbox at Microsoft, of an organization or a person's own
    #[command(
        after_help = "Example:\n  mailroom mailbox connect outlook --tenant acme --address me@acme.test\n\nThe link is good for ten minutes and needs a running server at server.public_url. A mailbox that is there already goes on with the new consent."
    )]
    Outlook(Wish),
}

#[derive(Debug, Subcommand)]
pub enum Authorize {
    /// A directory at Microsoft
    #[command(
        after_help = "Example:\n  mailroom mailbox authorize outlook --directory acme.test\n\nThe link is good for a week. Once an administrator has said yes, mailboxes are added with --app-only."
    )]
    Outlook {
        /// By its id or one of its domains
        #[arg(long, value_name = "DIRECTORY")]
        directory: String,
    },
}

#[derive(Debug, Args)]
pub struct Wish {
    /// Name or id
    #[arg(long, value_name = "TENANT")]
    pub tenant: String,
    /// Only this one; otherwise whichever the person chooses
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<String>,
    #[command(flatten)]
    pub wanted: Wanted,
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
    #[command(flatten)]
    pub wanted: Wanted,
    /// Do not try the connection first
    #[arg(long)]
    pub no_check: bool,
}

#[derive(Debug, Args)]
pub struct Wanted {
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
}
