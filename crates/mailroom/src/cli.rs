//! The command line.

pub mod directory;
pub mod jobs;
pub mod mailbox;
pub mod provider_options;
pub mod sql;
pub mod tenant;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Archives the mail of all mailboxes of all tenants, exactly once, in a SQL database that its owner can query.
#[derive(Debug, Parser)]
#[command(name = "mailroom", version, arg_required_else_help = true, propagate_version = true)]
pub struct Cli {
    /// Settings file (default: mailroom.toml in the working directory, if it exists)
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Print JSON: one object, or one object per line for lists
    #[arg(long, global = true)]
    pub json: bool,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    #[cfg(feature = "lab")]
    /// Demonstrate the whole system: three tenants at a simulated Google, Microsoft and IMAP server
    #[command(
        after_help = "Example:\n  mailroom demo\n  mailroom demo --once --emails 2000\n\nNothing outside of this machine is called. Ctrl-C ends it."
    )]
    Demo(lab::demo::DemoArgs),
    /// Bring the database schema up to date
    #[command(after_help = "Example:\n  mailroom migrate --check")]
    Migrate {
        /// Change nothing; exit 1 when the schema is not up to date
        #[arg(long)]
        check: bool,
        /// The database was brought back to an earlier moment without `mailroom restore`: move the numbers of events beyond all
        /// that were given out since, and tell every tenant
        #[arg(long, conflicts_with = "check")]
        restored: bool,
    },
    /// Check configuration, database, keys, blobs and clock, and say how to fix problems
    #[command(after_help = "Example:\n  mailroom doctor")]
    Doctor,
    /// Show the settings in force
    #[command(subcommand, after_help = "Example:\n  mailroom config show")]
    Config(ConfigCommand),
    /// Create and manage tenants
    #[command(subcommand, after_help = "Example:\n  mailroom tenant create acme --plan vip")]
    Tenant(tenant::TenantCommand),
    /// Connect and manage mailboxes
    #[command(subcommand, after_help = "Example:\n  mailroom mailbox show me@acme.test --tenant acme")]
    Mailbox(mailbox::MailboxCommand),
    /// Connect the mailboxes of all users of an organisation automatically
    #[command(subcommand, after_help = "Example:\n  mailroom directory discover --tenant acme --dry-run")]
    Directory(directory::DirectoryCommand),
    /// Show the users of an organisation
    #[command(subcommand, after_help = "Example:\n  mailroom user list --tenant acme")]
    User(directory::UserCommand),
    /// Create and manage a tenant's API keys
    #[command(
        subcommand,
        after_help = "Example:\n  mailroom key create --tenant acme --name ci --scopes read --expires 90d"
    )]
    Key(KeyCommand),
    /// Import mbox files, Maildirs, folders of .eml files, Apple and Outlook messages
    #[command(
        after_help = "Example:\n  mailroom import ~/mail.mbox --tenant acme --mailbox me@acme.test\n\nRepeating an import stores nothing new."
    )]
    Import(ImportArgs),
    /// Export stored emails, byte for byte
    #[command(
        after_help = "Example:\n  mailroom export --tenant acme --query 'from:ann after:2024-01-01' --format mbox --out ann.mbox"
    )]
    Export(ExportArgs),
    /// Search emails
    #[command(
        after_help = "Example:\n  mailroom search 'from:ann \"quarterly report\" has:attachment -draft after:2024-01-31' --tenant acme\n\n\
        All words must occur; \"…\" is a phrase, - excludes, word* is a prefix.\n\
        Fields: from: to: subject: filename: label: has:attachment is:deleted after: before:\n\
        An empty query ('') lists everything that is not deleted, newest first."
    )]
    Search(SearchArgs),
    /// Query emails, mailboxes and what else there is with SQL
    #[command(
        args_conflicts_with_subcommands = true,
        arg_required_else_help = true,
        after_help = "Example:\n  mailroom sql 'select from_address, count(*) as emails from mailroom_emails group by from_address order by emails desc limit 10'\n\n\
        docs/sql-schema.md lists the views with their columns. A query can change nothing, and reads nothing but the views."
    )]
    Sql(sql::SqlArgs),
    /// Show, restore or purge emails
    #[command(subcommand, after_help = "Example:\n  mailroom email show 0190b6c1-… --tenant acme --raw > original.eml")]
    Email(EmailCommand),
    /// Check that rows, ledger, text index and blobs agree
    #[command(
        after_help = "Example:\n  mailroom verify --tenant acme --deep\n\nExits 1 on any difference and names it."
    )]
    Verify(VerifyArgs),
    /// Copy the database and all blobs into a folder, while the service is running
    #[command(
        after_help = "Example:\n  mailroom backup --out /mnt/backup/mailroom\n\nAn interrupted backup continues when it is run again. Into the folder of an earlier backup, only new data is copied."
    )]
    Backup {
        /// The folder of the backup; created if it does not exist
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Restore a backup into an empty installation
    #[command(
        after_help = "Example:\n  MAILROOM_DATA_DIR=restored mailroom restore /mnt/backup/mailroom\n\nAn interrupted restore continues when it is run again."
    )]
    Restore {
        /// The folder of the backup
        #[arg(value_name = "DIR")]
        from: PathBuf,
    },
    /// Delete unreferenced blobs, and merge small packs
    #[command(
        after_help = "Example:\n  mailroom gc --grace 7d\n\nCan be interrupted at any time, and can run while the service is running."
    )]
    Gc(GcArgs),
    /// Store attachments that could not be stored while blob storage was unavailable
    #[command(
        after_help = "Example:\n  mailroom retry-blobs --tenant acme\n\nEmails without their original must be imported again; that adds what is missing."
    )]
    RetryBlobs(RetryBlobsArgs),
    /// Make the search tokens of stored emails once more, from their originals
    #[command(
        after_help = "Example:\n  mailroom reindex --tenant acme --since 90d\n\nReplaces tokens of earlier versions and adds missing ones; --all replaces all. Can be interrupted at any time, and can run while the service is running: the job continues under `mailroom serve`, or when the command is run again. Exits 1 if an original is missing or damaged."
    )]
    Reindex(ReindexArgs),
    /// Run the service: web server, worker and scheduler
    #[command(
        after_help = "Example:\n  mailroom serve --roles worker,scheduler\n\nSIGTERM or Ctrl-C stops it within 30 seconds, after running jobs are finished or returned to the queue; a second one stops it at once. SIGHUP reloads log.level."
    )]
    Serve(ServeArgs),
    /// Show and control jobs
    #[command(subcommand, after_help = "Example:\n  mailroom jobs why 0190b6c1-…")]
    Jobs(jobs::JobsCommand),
    /// Show and control recurring jobs
    #[command(subcommand, after_help = "Example:\n  mailroom recurring list")]
    Recurring(jobs::RecurringCommand),
    /// Show, replay and discard dead letters: jobs that failed too often
    #[command(subcommand, after_help = "Example:\n  mailroom dead-letters replay --all --kind noop --rate 10/s")]
    DeadLetters(jobs::DeadLettersCommand),
    /// Show what limits calls to providers, and who waits for it
    #[command(subcommand, after_help = "Example:\n  mailroom limits show --tenant acme")]
    Limits(LimitsCommand),
    /// Verify the audit log
    #[command(subcommand, after_help = "Example:\n  mailroom audit verify")]
    Audit(AuditCommand),
    /// Manage the keys that encrypt stored credentials
    #[command(subcommand, after_help = "Example:\n  mailroom secrets rotate")]
    Secrets(SecretsCommand),
    #[cfg(feature = "lab")]
    /// Run simulated mail providers, with mailboxes that change and faults on demand
    #[command(
        after_help = "Example:\n  mailroom sim --listen 127.0.0.1:8026 --accounts 3 --emails 200\n\nGoogle and Microsoft listen on the same address, an IMAP server on the next port. Prints how to control them. All data is lost when it stops."
    )]
    Sim(lab::simulator::SimArgs),
    #[cfg(feature = "lab")]
    /// Measure this machine
    #[command(subcommand, after_help = "Example:\n  mailroom bench ingest --messages 10000")]
    Bench(lab::bench::BenchCommand),
}

#[derive(Debug, Subcommand)]
pub enum LimitsCommand {
    /// List every limit; with a tenant, also its mailboxes that wait now
    #[command(after_help = "Example:\n  mailroom limits show --tenant acme")]
    Show {
        /// A tenant's name or id
        #[arg(long)]
        tenant: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print every setting with its value and where it came from; secrets are hidden
    #[command(after_help = "Example:\n  mailroom config show --config mailroom.toml")]
    Show,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum PlanArg {
    Standard,
    Vip,
}

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Create a key and print it once
    #[command(after_help = "Example:\n  mailroom key create --tenant acme --name ci --scopes read,write --expires 90d")]
    Create {
        #[command(flatten)]
        tenant: TenantArg,
        /// Its purpose
        #[arg(long)]
        name: String,
        /// Any of read, write, admin
        #[arg(long, value_delimiter = ',', default_value = "read")]
        scopes: Vec<String>,
        /// How long it is valid, such as 90d or 12h (default: until revoked)
        #[arg(long, value_name = "DURATION")]
        expires: Option<String>,
    },
    /// List a tenant's keys, without their secrets
    #[command(after_help = "Example:\n  mailroom key list --tenant acme")]
    List {
        #[command(flatten)]
        tenant: TenantArg,
    },
    /// Revoke a key, effective at once
    #[command(after_help = "Example:\n  mailroom key revoke 0190b6c1-… --tenant acme")]
    Revoke {
        #[command(flatten)]
        tenant: TenantArg,
        /// The key's id, as `key list` shows it
        id: String,
    },
}

#[derive(Debug, Args)]
pub struct TenantArg {
    /// A tenant's name or id
    #[arg(long, value_name = "TENANT")]
    pub tenant: String,
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Files or folders
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// A tenant's name or id; a new name creates the tenant
    #[arg(long, value_name = "TENANT")]
    pub tenant: String,
    /// Create the tenant even if its name differs by no more than two letters from an existing one
    #[arg(long)]
    pub create_tenant: bool,
    /// The mailbox's address or id; a new address creates the mailbox
    #[arg(long, value_name = "ADDRESS")]
    pub mailbox: String,
    /// Format of the files
    #[arg(long, default_value = "auto")]
    pub format: ImportFormatArg,
    /// Import all emails into this folder, instead of those named by the files
    #[arg(long, value_name = "NAME")]
    pub folder: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ImportFormatArg {
    Auto,
    Eml,
    Mbox,
    Maildir,
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    #[command(flatten)]
    pub tenant: TenantArg,
    /// Only this mailbox (address or id)
    #[arg(long, value_name = "ADDRESS")]
    pub mailbox: Option<String>,
    /// Only emails that match this search
    #[arg(long, default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub query: String,
    /// Also emails that are deleted
    #[arg(long)]
    pub include_deleted: bool,
    /// Format of the output
    #[arg(long, default_value = "mbox")]
    pub format: ExportFormatArg,
    /// The file (mbox) or folder (eml) to create
    #[arg(long, value_name = "PATH")]
    pub out: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ExportFormatArg {
    Mbox,
    Eml,
}

#[derive(Debug, Args)]
pub struct SearchArgs {
    /// The search query; '' lists everything
    #[arg(default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub query: String,
    #[command(flatten)]
    pub tenant: TenantArg,
    /// Only this mailbox (address or id)
    #[arg(long, value_name = "ADDRESS")]
    pub mailbox: Option<String>,
    /// Also emails that are deleted
    #[arg(long)]
    pub include_deleted: bool,
    /// Maximum number of emails (default: 20 on a terminal, else all)
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Print whole emails instead of one line each
    #[arg(long)]
    pub full: bool,
    /// Best match first instead of newest first
    #[arg(long)]
    pub ranked: bool,
    /// Continue an earlier search
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum EmailCommand {
    /// Show an email; --raw gives the original bytes
    #[command(after_help = "Example:\n  mailroom email show 0190b6c1-… --tenant acme --raw > original.eml")]
    Show {
        id: String,
        #[command(flatten)]
        tenant: TenantArg,
        /// The original message, byte for byte
        #[arg(long)]
        raw: bool,
    },
    /// Restore deleted emails, so that searches find them again
    #[command(
        after_help = "Example:\n  mailroom search is:deleted --tenant acme\n  mailroom email restore 0190b6c1-… --tenant acme"
    )]
    Restore {
        /// Ids, as `mailroom search is:deleted` shows them
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
        #[command(flatten)]
        tenant: TenantArg,
    },
    /// Purge emails permanently; `mailroom gc` then deletes their bytes
    #[command(
        after_help = "Example:\n  mailroom email purge --tenant acme --query 'before:2015-01-01' --yes\n\nWithout --yes it only prints how many emails would be purged."
    )]
    Purge {
        /// Ids, as `mailroom search` shows them
        #[arg(value_name = "ID", conflicts_with = "query", required_unless_present = "query")]
        ids: Vec<String>,
        #[command(flatten)]
        tenant: TenantArg,
        /// All emails that match this search
        #[arg(long, allow_hyphen_values = true)]
        query: Option<String>,
        /// Only emails of this mailbox (address or id)
        #[arg(long, value_name = "ADDRESS", requires = "query")]
        mailbox: Option<String>,
        /// Also emails that are deleted; `is:deleted` in the query finds only these
        #[arg(long, requires = "query")]
        include_deleted: bool,
        /// Confirm
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub struct GcArgs {
    /// Only this tenant (name or id)
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// How long a blob must have been unreferenced, such as 24h (default: the setting blobs.grace)
    #[arg(long, value_name = "DURATION")]
    pub grace: Option<String>,
}

#[derive(Debug, Args)]
pub struct RetryBlobsArgs {
    /// Only this tenant (name or id)
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
}

#[derive(Debug, Args)]
pub struct ReindexArgs {
    /// Only this tenant (name or id)
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Only emails received since then: a date such as 2024-01-31, or a duration such as 90d
    #[arg(long, value_name = "DATE|DAYS")]
    pub since: Option<String>,
    /// Also emails whose tokens are up to date
    #[arg(long)]
    pub all: bool,
    /// Only add the jobs, which `mailroom serve` runs
    #[arg(long)]
    pub background: bool,
}

#[derive(Debug, Args)]
pub struct VerifyArgs {
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
pub struct ServeArgs {
    /// The roles of this process; other processes may have the others
    #[arg(long, value_enum, value_delimiter = ',', default_value = "web,scheduler,worker", value_name = "ROLES")]
    pub roles: Vec<ServeRole>,
    /// Stop when the parent process ends
    #[arg(long, hide = true)]
    pub end_with_parent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ServeRole {
    /// Serves the HTTP API
    Web,
    /// Schedules recurring jobs and syncs; one process is the leader, the others stand by
    Scheduler,
    /// Runs jobs, and watches mailboxes whose servers announce new mail
    Worker,
}

impl ServeRole {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Web => "web",
            Self::Scheduler => "scheduler",
            Self::Worker => "worker",
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Check that no entry was altered, removed or inserted; names the first broken one
    #[command(
        after_help = "Example:\n  mailroom audit verify --tenant acme\n\nThe hash at the end of each line covers all entries before it. If you keep it elsewhere, entries cannot be rewritten unnoticed."
    )]
    Verify {
        /// Only this tenant (name or id)
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum SecretsCommand {
    /// Rotate the master key and the keys of all tenants, and re-encrypt every secret
    #[command(
        after_help = "Example:\n  mailroom secrets rotate\n\nServers may keep running. An interrupted rotation continues when it is run again. Backups made before need the old key."
    )]
    Rotate(RotateArgs),
}

#[derive(Debug, Args)]
pub struct RotateArgs {
    /// A file with the new key (default: KEYFILE.new if it exists, else a new key is generated)
    #[arg(long, value_name = "FILE")]
    pub new_key_file: Option<PathBuf>,
}
