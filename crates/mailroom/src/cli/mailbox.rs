//! `mailroom mailbox …`

use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches, Subcommand, ValueEnum};
use domain::ProviderDeclaration;

use super::provider_options::{
    FieldArguments, ProviderArgs, ProviderSubcommand, ReplacementSecret, add_field_options, read_field_options,
};

#[derive(Debug, Subcommand)]
pub enum MailboxCommand {
    /// Connect a mailbox
    #[command(
        subcommand,
        after_help = "Example:\n  mailroom mailbox add imap --tenant acme --address me@acme.test --host imap.acme.test --password-file password"
    )]
    Add(ProviderSubcommand<AddMailboxArgs>),
    /// Print a link by which the owner of a mailbox connects it in a browser
    #[command(
        subcommand,
        after_help = "Example:\n  mailroom mailbox connect gmail --tenant acme --address me@acme.test"
    )]
    Connect(ProviderSubcommand<ConsentLinkArgs>),
    /// Print a link by which an administrator authorises this server for all mailboxes of an organisation
    #[command(subcommand, after_help = "Example:\n  mailroom mailbox authorize outlook --directory acme.test")]
    Authorize(ProviderSubcommand<AuthorizeArgs>),
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
    /// Set settings of a mailbox's own, or remove them so that it has its tenant's
    #[command(
        after_help = "Examples:\n  mailroom mailbox set me@acme.test --tenant acme --exclude Archive --interval 10m\n  mailroom mailbox set me@acme.test --tenant acme --unset interval,exclude\n\nOptions that are not given stay as they are. A removed setting is inherited again: from its tenant, else from the configuration."
    )]
    Set(SetMailboxArgs),
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
    /// Remove now what is missing at the provider, although it is much of the mailbox
    #[command(
        after_help = "Example:\n  mailroom mailbox apply-removals me@acme.test --tenant acme\n\nWhen much of a mailbox is missing at its provider, its emails are kept for a day and until two comparisons have agreed; `mailbox show` says so."
    )]
    ApplyRemovals(MailboxArg),
    /// Pause a mailbox: its provider is not called; nothing is deleted
    #[command(after_help = "Example:\n  mailroom mailbox pause me@acme.test --tenant acme")]
    Pause(MailboxArg),
    /// Resume a mailbox that is paused or needs new credentials
    #[command(after_help = "Example:\n  mailroom mailbox resume me@acme.test --tenant acme --password-file password")]
    Resume {
        #[command(flatten)]
        mailbox: MailboxArg,
        #[command(flatten)]
        secret: ReplacementSecret,
        /// Forget where its listings stand, and compare the whole mailbox with the provider; nothing is lost
        #[arg(long)]
        reset_cursors: bool,
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

#[derive(Debug, Args)]
pub struct SetMailboxArgs {
    #[command(flatten)]
    pub mailbox: MailboxArg,
    /// Only these folders, by name
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub folders: Vec<String>,
    /// Not these folders, by name
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub exclude: Vec<String>,
    /// Time between syncs, such as 5m
    #[arg(long, value_name = "DURATION")]
    pub interval: Option<String>,
    /// Maximum amount to fetch per day, such as 500 MB; 0 B for no limit
    #[arg(long, value_name = "SIZE")]
    pub bytes_per_day: Option<String>,
    /// Remove these settings, so that they are inherited
    #[arg(long, value_delimiter = ',', value_name = "SETTINGS")]
    pub unset: Vec<MailboxSettingArg>,
}

impl SetMailboxArgs {
    /// Returns whether no setting is named.
    pub fn is_empty(&self) -> bool {
        let Self { mailbox: _, folders, exclude, interval, bytes_per_day, unset } = self;
        let is_set = interval.is_some() || bytes_per_day.is_some();
        !is_set && folders.is_empty() && exclude.is_empty() && unset.is_empty()
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum MailboxSettingArg {
    Folders,
    Exclude,
    Interval,
    BytesPerDay,
}

impl MailboxSettingArg {
    /// Returns the name of the field of [`domain::MailboxSettings`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Folders => "folders",
            Self::Exclude => "exclude",
            Self::Interval => "interval_seconds",
            Self::BytesPerDay => "bytes_per_day",
        }
    }
}

/// `mailbox add <provider>`: options that all have, and those of its connection.
#[derive(Debug)]
pub struct AddMailboxArgs {
    pub new: NewMailboxArgs,
    pub fields: FieldArguments,
    pub bytes_per_day: Option<String>,
}

impl ProviderArgs for AddMailboxArgs {
    fn describe(command: Command, declaration: &'static ProviderDeclaration) -> Option<Command> {
        let connection = &declaration.connection;
        let command = NewMailboxArgs::augment_args(command).about(connection.about).after_help(connection.add_help);
        let command = add_field_options(command, connection.fields);
        let quota = Arg::new(BYTES_PER_DAY)
            .long("bytes-per-day")
            .value_name("SIZE")
            .help("Maximum amount to fetch per day, such as 500 MB; 0 B for no limit");
        Some(if connection.has_byte_quota { command.arg(quota) } else { command })
    }

    fn read(matches: &ArgMatches, declaration: &'static ProviderDeclaration) -> Result<Self, Error> {
        Ok(Self {
            new: NewMailboxArgs::from_arg_matches(matches)?,
            fields: read_field_options(matches, declaration.connection.fields),
            bytes_per_day: matches.try_get_one::<String>(BYTES_PER_DAY).ok().flatten().cloned(),
        })
    }
}

const BYTES_PER_DAY: &str = "bytes_per_day";

impl ProviderArgs for ConsentLinkArgs {
    fn describe(command: Command, declaration: &'static ProviderDeclaration) -> Option<Command> {
        let consent = declaration.consent.as_ref()?;
        let help = format!(
            "Example:\n  mailroom mailbox connect {} --tenant acme --address me@acme.test\n\nThe link is valid for ten minutes and requires a running server at server.public_url. An existing mailbox gets the new consent.",
            declaration.provider.as_str()
        );
        Some(Self::augment_args(command).about(consent.about).after_help(help))
    }

    fn read(matches: &ArgMatches, _: &'static ProviderDeclaration) -> Result<Self, Error> {
        Self::from_arg_matches(matches)
    }
}

/// `mailbox authorize <provider>`
#[derive(Debug, Args)]
pub struct AuthorizeArgs {
    /// Its id or one of its domains
    #[arg(long, value_name = "DIRECTORY")]
    pub directory: String,
}

impl ProviderArgs for AuthorizeArgs {
    fn describe(command: Command, declaration: &'static ProviderDeclaration) -> Option<Command> {
        let consent = declaration.consent.as_ref().filter(|consent| consent.has_admin_consent)?;
        let help = format!(
            "Example:\n  mailroom mailbox authorize {} --directory acme.test\n\nThe link is valid for a week. After the consent, mailboxes are added with --app-only.",
            declaration.provider.as_str()
        );
        let about = format!("A directory at {}", consent.name);
        Some(Self::augment_args(command).about(about).after_help(help))
    }

    fn read(matches: &ArgMatches, _: &'static ProviderDeclaration) -> Result<Self, Error> {
        Self::from_arg_matches(matches)
    }
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
