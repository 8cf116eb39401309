//! `mailroom mailbox …`

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub enum MailboxCommand {
    /// Connect a mailbox
    #[command(
        subcommand,
        after_help = "Example:\n  mailroom mailbox add imap --tenant acme --address me@acme.test --host imap.acme.test --password-file password"
    )]
    Add(AddMailbox),
    /// Print a link by which the owner of a mailbox connects it in a browser
    #[command(
        subcommand,
        after_help = "Example:\n  mailroom mailbox connect gmail --tenant acme --address me@acme.test"
    )]
    Connect(ConnectMailbox),
    /// Print a link by which an administrator authorises this server for all mailboxes of an organisation
    #[command(subcommand, after_help = "Example:\n  mailroom mailbox authorize outlook --directory acme.test")]
    Authorize(AuthorizeCommand),
    /// List the mailboxes of a tenant, or all, with their state and the progress of backfills
    #[command(after_help = "Example:\n  mailroom mailbox list --tenant acme")]
    List {
        /// Name or id
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
    },
    /// Show one mailbox: its state, last sync, progress of the backfill, and completeness
    #[command(after_help = "Example:\n  mailroom mailbox show me@acme.test --tenant acme")]
    Show(MailboxArg),
    /// Sync a mailbox now
    #[command(
        after_help = "Example:\n  mailroom mailbox sync me@acme.test --tenant acme --wait\n\nWith --wait it returns when the mailbox is up to date; without a running server it syncs the mailbox itself."
    )]
    Sync {
        #[command(flatten)]
        mailbox: MailboxArg,
        /// Wait until the mailbox is up to date
        #[arg(long)]
        wait: bool,
    },
    /// Pause a mailbox: its provider is not called; nothing is deleted
    #[command(after_help = "Example:\n  mailroom mailbox pause me@acme.test --tenant acme")]
    Pause(MailboxArg),
    /// Resume a mailbox that is paused or needs new credentials
    #[command(after_help = "Example:\n  mailroom mailbox resume me@acme.test --tenant acme --password-file password")]
    Resume {
        #[command(flatten)]
        mailbox: MailboxArg,
        /// File with a new password
        #[arg(long, value_name = "FILE", conflicts_with = "token_file")]
        password_file: Option<PathBuf>,
        /// File with a new token
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        /// File with a new refresh token, for Gmail and Outlook
        #[arg(long, value_name = "FILE", conflicts_with_all = ["password_file", "token_file"])]
        refresh_token_file: Option<PathBuf>,
        /// Do not check a new password or token first
        #[arg(long)]
        no_check: bool,
    },
    /// Disconnect a mailbox and delete its credentials; its mail is kept unless --erase is given
    #[command(after_help = "Example:\n  mailroom mailbox remove me@acme.test --tenant acme")]
    Remove {
        #[command(flatten)]
        mailbox: MailboxArg,
        /// Erase its emails as well
        #[arg(long)]
        erase: bool,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub struct MailboxArg {
    /// Address or id
    #[arg(value_name = "ADDRESS")]
    pub mailbox: String,
    /// Name or id
    #[arg(long, value_name = "TENANT")]
    pub tenant: String,
}

#[derive(Debug, Subcommand)]
pub enum AddMailbox {
    /// A mailbox at any IMAP server
    #[command(
        after_help = "Examples:\n  mailroom mailbox add imap --tenant acme --address me@acme.test --host imap.acme.test --password-file password\n  mailroom mailbox add imap --tenant acme --address me@acme.test --host mail.acme.test --tls starttls --backfill 90d --exclude Archive\n\nWithout --password-file the password is asked for, or read from standard input if that is not a terminal."
    )]
    Imap(Box<ImapArgs>),
    /// A mailbox at Google, with the consent of its owner or its domain
    #[command(
        after_help = "Examples:\n  mailroom mailbox add gmail --tenant acme --address me@acme.test --refresh-token-file token\n  mailroom mailbox add gmail --tenant acme --address me@acme.test --app-only --backfill 90d\n\nTo have its owner connect it in a browser, use `mailroom mailbox connect gmail`."
    )]
    Gmail(GmailArgs),
    /// A mailbox at Microsoft, with the consent of its owner or its directory
    #[command(
        after_help = "Examples:\n  mailroom mailbox add outlook --tenant acme --address me@acme.test --refresh-token-file token\n  mailroom mailbox add outlook --tenant acme --address me@acme.test --app-only --directory acme.onmicrosoft.com\n\nTo have its owner connect it in a browser, use `mailroom mailbox connect outlook`. --app-only requires the consent of an administrator once: `mailroom mailbox authorize outlook`."
    )]
    Outlook(OutlookArgs),
}

#[derive(Debug, Args)]
pub struct ImapArgs {
    #[command(flatten)]
    pub new: NewMailboxArgs,
    /// Host name or address of the server
    #[arg(long, value_name = "HOST")]
    pub host: String,
    /// Port (default: 993 with implicit TLS, else 143)
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// How the connection is secured
    #[arg(long, value_enum, default_value_t = TlsMode::Implicit, value_name = "HOW")]
    pub tls: TlsMode,
    /// Login name (default: the address)
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// File with the password
    #[arg(long, value_name = "FILE", conflicts_with = "token_file")]
    pub password_file: Option<PathBuf>,
    /// File with an OAuth access token, instead of a password
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// File with the certificate (PEM) of an additional certificate authority to trust
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Maximum amount to fetch per day, such as 500 MB; 0 B for no limit
    #[arg(long, value_name = "SIZE")]
    pub bytes_per_day: Option<String>,
    /// Allow --tls none for a server on another machine: password and mail are sent unencrypted
    #[arg(long)]
    pub allow_plaintext: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TlsMode {
    /// TLS from the first byte
    Implicit,
    /// STARTTLS after the greeting; required
    Starttls,
    /// No encryption, for servers on this machine
    None,
}

#[derive(Debug, Args)]
pub struct GmailArgs {
    #[command(flatten)]
    pub new: NewMailboxArgs,
    #[command(flatten)]
    pub access: AccessArgs,
}

#[derive(Debug, Args)]
pub struct OutlookArgs {
    #[command(flatten)]
    pub new: NewMailboxArgs,
    #[command(flatten)]
    pub access: AccessArgs,
    /// Id or domain of its directory (default: the domain of the address)
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "refresh_token_file")]
    pub directory: Option<String>,
}

/// How a mailbox is opened.
#[derive(Debug, Args)]
pub struct AccessArgs {
    /// File with the refresh token from the owner's consent
    #[arg(long, value_name = "FILE", required_unless_present = "app_only", conflicts_with = "app_only")]
    pub refresh_token_file: Option<PathBuf>,
    /// Access by this server's own app, which the organisation has authorised
    #[arg(long)]
    pub app_only: bool,
}

#[derive(Debug, Subcommand)]
pub enum ConnectMailbox {
    /// A mailbox at Google
    #[command(
        after_help = "Example:\n  mailroom mailbox connect gmail --tenant acme --address me@acme.test\n\nThe link is valid for ten minutes and requires a running server at server.public_url. An existing mailbox gets the new consent."
    )]
    Gmail(ConsentLinkArgs),
    /// A mailbox at Microsoft, of an organisation or a personal one
    #[command(
        after_help = "Example:\n  mailroom mailbox connect outlook --tenant acme --address me@acme.test\n\nThe link is valid for ten minutes and requires a running server at server.public_url. An existing mailbox gets the new consent."
    )]
    Outlook(ConsentLinkArgs),
}

#[derive(Debug, Subcommand)]
pub enum AuthorizeCommand {
    /// A directory at Microsoft
    #[command(
        after_help = "Example:\n  mailroom mailbox authorize outlook --directory acme.test\n\nThe link is valid for a week. After the consent, mailboxes are added with --app-only."
    )]
    Outlook {
        /// Its id or one of its domains
        #[arg(long, value_name = "DIRECTORY")]
        directory: String,
    },
}

#[derive(Debug, Args)]
pub struct ConsentLinkArgs {
    /// Name or id
    #[arg(long, value_name = "TENANT")]
    pub tenant: String,
    /// Only this mailbox (default: the person chooses)
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<String>,
    #[command(flatten)]
    pub sync: SyncArgs,
}

#[derive(Debug, Args)]
pub struct NewMailboxArgs {
    /// Name or id
    #[arg(long, value_name = "TENANT")]
    pub tenant: String,
    /// Email address of the mailbox
    #[arg(long, value_name = "ADDRESS")]
    pub address: String,
    #[command(flatten)]
    pub sync: SyncArgs,
    /// Do not check the connection first
    #[arg(long)]
    pub no_check: bool,
}

#[derive(Debug, Args)]
pub struct SyncArgs {
    /// How much existing mail to fetch: all, none, or a duration such as 30d (default: sync.backfill)
    #[arg(long, value_name = "ALL|NONE|DURATION")]
    pub backfill: Option<String>,
    /// Only these folders, by name
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub folders: Vec<String>,
    /// Not these folders, by name
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub exclude: Vec<String>,
    /// Time between syncs, such as 5m (default: sync.interval)
    #[arg(long, value_name = "DURATION")]
    pub interval: Option<String>,
}
