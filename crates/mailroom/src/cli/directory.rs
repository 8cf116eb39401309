//! `mailroom directory …` and `mailroom user …`

use clap::{Args, Subcommand, ValueEnum};

use super::TenantArg;

#[derive(Debug, Subcommand)]
pub enum DirectoryCommand {
    /// Set a tenant's directory, and which of its users get a mailbox
    #[command(
        after_help = "Examples:\n  mailroom directory set gmail --tenant acme --administrator admin@acme.test --exclude-unit /Interns\n  mailroom directory set outlook --tenant acme --directory acme.test --include-group staff@acme.test --paused\n\nSuspended users, guests and users without a mailbox licence are left out by default. For an existing directory, options that are not given stay as they are. `mailroom directory discover --dry-run` shows what would change."
    )]
    Set(Box<SetDirectoryArgs>),
    /// Show a tenant's directories and the outcome of their last runs
    #[command(after_help = "Example:\n  mailroom directory show --tenant acme")]
    Show {
        #[command(flatten)]
        tenant: TenantArg,
    },
    /// Read the directories now, and update the mailboxes
    #[command(
        after_help = "Examples:\n  mailroom directory discover --tenant acme --dry-run\n  mailroom directory discover gmail --tenant acme --force\n\nExits 1 if nothing was changed because far fewer users were found than before; --force applies the changes nevertheless."
    )]
    Discover {
        /// The directory (default: all of the tenant)
        provider: Option<DirectoryProvider>,
        #[command(flatten)]
        tenant: TenantArg,
        /// Only show what would change
        #[arg(long)]
        dry_run: bool,
        /// Apply the changes however many users have left
        #[arg(long, conflicts_with = "dry_run")]
        force: bool,
    },
    /// Remove a directory and its users; their mailboxes stay as they are
    #[command(after_help = "Example:\n  mailroom directory remove gmail --tenant acme")]
    Remove {
        provider: DirectoryProvider,
        #[command(flatten)]
        tenant: TenantArg,
    },
}

/// Providers with directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DirectoryProvider {
    Gmail,
    Outlook,
}

#[derive(Debug, Args)]
pub struct SetDirectoryArgs {
    pub provider: DirectoryProvider,
    #[command(flatten)]
    pub tenant: TenantArg,
    /// Google: address of an administrator on whose behalf the directory is read
    #[arg(long, value_name = "ADDRESS")]
    pub administrator: Option<String>,
    /// Microsoft: id or domain of the directory
    #[arg(long, value_name = "DIRECTORY")]
    pub directory: Option<String>,
    #[command(flatten)]
    pub rules: RuleArgs,
    /// How much existing mail to fetch of new mailboxes: all, none, or a duration such as 30d (default: sync.backfill)
    #[arg(long, value_name = "HOW_MUCH")]
    pub backfill: Option<String>,
    /// Time between runs (default: 6h)
    #[arg(long, value_name = "DURATION")]
    pub interval: Option<String>,
    /// Read it on request only
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub paused: Option<bool>,
}

/// Which users get a mailbox; each option may be given several times, and replaces its previous values.
#[derive(Debug, Args)]
pub struct RuleArgs {
    /// Remove all previous rules
    #[arg(long)]
    pub no_rules: bool,
    /// Include members of this group, by address or id
    #[arg(long, value_name = "GROUP")]
    pub include_group: Vec<String>,
    /// Include users in this organisational unit or department
    #[arg(long, value_name = "UNIT")]
    pub include_unit: Vec<String>,
    /// Include users with an address in this domain
    #[arg(long, value_name = "DOMAIN")]
    pub include_domain: Vec<String>,
    /// Include the user with this address
    #[arg(long, value_name = "ADDRESS")]
    pub include_address: Vec<String>,
    /// Exclude members of this group
    #[arg(long, value_name = "GROUP")]
    pub exclude_group: Vec<String>,
    /// Exclude users in this unit
    #[arg(long, value_name = "UNIT")]
    pub exclude_unit: Vec<String>,
    /// Exclude users in this domain
    #[arg(long, value_name = "DOMAIN")]
    pub exclude_domain: Vec<String>,
    /// Exclude the user with this address
    #[arg(long, value_name = "ADDRESS")]
    pub exclude_address: Vec<String>,
    /// Include suspended users
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub suspended: Option<bool>,
    /// Include guests
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub guests: Option<bool>,
    /// Include users without a mailbox licence
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub unlicensed: Option<bool>,
}

#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// List the users of a tenant's directories, and whether their mailboxes are synced
    #[command(after_help = "Example:\n  mailroom user list --tenant acme --inactive")]
    List {
        #[command(flatten)]
        tenant: TenantArg,
        /// Only users of this directory
        #[arg(long)]
        provider: Option<DirectoryProvider>,
        /// Only users whose mailbox is synced
        #[arg(long)]
        active: bool,
        /// Only users whose mailbox is not synced
        #[arg(long, conflicts_with = "active")]
        inactive: bool,
        /// Only the user with this address or alias
        #[arg(long, value_name = "ADDRESS")]
        address: Option<String>,
    },
}
