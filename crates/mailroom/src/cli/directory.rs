//! `mailroom directory …` and `mailroom user …`

use clap::{Args, Subcommand, ValueEnum};

use super::InTenant;

#[derive(Debug, Subcommand)]
pub enum Directory {
    /// Say which directory a tenant has, and who of it gets a mailbox
    #[command(
        after_help = "Examples:\n  mailroom directory set gmail --tenant acme --administrator admin@acme.test --exclude-unit /Interns\n  mailroom directory set outlook --tenant acme --directory acme.test --include-group staff@acme.test --paused\n\nWho is suspended, a guest or without a mailbox is left out unless it is said. Of a directory that is known, what is not given stays as it was. What would happen, `mailroom directory discover --dry-run` tells."
    )]
    Set(Box<Set>),
    /// Show a tenant's directories, and what came of the last look at each
    #[command(after_help = "Example:\n  mailroom directory show --tenant acme")]
    Show {
        #[command(flatten)]
        tenant: InTenant,
    },
    /// Look who there is now, and bring the mailboxes in step
    #[command(
        after_help = "Examples:\n  mailroom directory discover --tenant acme --dry-run\n  mailroom directory discover gmail --tenant acme --force\n\nExits 1 when nothing was changed because far fewer people were found than before; --force does it all the same."
    )]
    Discover {
        /// Left out: all that the tenant has
        provider: Option<At>,
        #[command(flatten)]
        tenant: InTenant,
        /// Only list what would happen
        #[arg(long)]
        dry_run: bool,
        /// However many people are not there any more
        #[arg(long, conflicts_with = "dry_run")]
        force: bool,
    },
    /// Forget a directory and its people; their mailboxes stay as they are
    #[command(after_help = "Example:\n  mailroom directory remove gmail --tenant acme")]
    Remove {
        provider: At,
        #[command(flatten)]
        tenant: InTenant,
    },
}

/// Who has directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum At {
    Gmail,
    Outlook,
}

#[derive(Debug, Args)]
pub struct Set {
    pub provider: At,
    #[command(flatten)]
    pub tenant: InTenant,
    /// At Google: the address of an administrator for whom the directory is read
    #[arg(long, value_name = "ADDRESS")]
    pub administrator: Option<String>,
    /// At Microsoft: the directory's id or one of its domains
    #[arg(long, value_name = "DIRECTORY")]
    pub directory: Option<String>,
    #[command(flatten)]
    pub rules: Rules,
    /// Of new mailboxes, how much of what is there already: all, none, or a duration like 30d (default: sync.backfill)
    #[arg(long, value_name = "HOW_MUCH")]
    pub backfill: Option<String>,
    /// How often it is looked at (default: 6h)
    #[arg(long, value_name = "DURATION")]
    pub interval: Option<String>,
    /// Look at it only when somebody asks for it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub paused: Option<bool>,
}

/// Who is wanted; each may be given several times, and those of its kind from before are forgotten then.
#[derive(Debug, Args)]
pub struct Rules {
    /// Forget all rules from before
    #[arg(long)]
    pub no_rules: bool,
    /// Only who is in this group, by its address or id (or in another that is included)
    #[arg(long, value_name = "GROUP")]
    pub include_group: Vec<String>,
    /// Only who is in this organisational unit or department
    #[arg(long, value_name = "UNIT")]
    pub include_unit: Vec<String>,
    /// Only whose address is of this domain
    #[arg(long, value_name = "DOMAIN")]
    pub include_domain: Vec<String>,
    /// Only who has this address
    #[arg(long, value_name = "ADDRESS")]
    pub include_address: Vec<String>,
    /// Nobody who is in this group
    #[arg(long, value_name = "GROUP")]
    pub exclude_group: Vec<String>,
    /// Nobody who is in this unit
    #[arg(long, value_name = "UNIT")]
    pub exclude_unit: Vec<String>,
    /// Nobody of this domain
    #[arg(long, value_name = "DOMAIN")]
    pub exclude_domain: Vec<String>,
    /// Not this one
    #[arg(long, value_name = "ADDRESS")]
    pub exclude_address: Vec<String>,
    /// Also who is suspended
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub suspended: Option<bool>,
    /// Also guests
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub guests: Option<bool>,
    /// Also who has no licence for a mailbox
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub unlicensed: Option<bool>,
}

#[derive(Debug, Subcommand)]
pub enum User {
    /// List people that a tenant's directories have told of, and whether their mailboxes are looked at
    #[command(after_help = "Example:\n  mailroom user list --tenant acme --inactive")]
    List {
        #[command(flatten)]
        tenant: InTenant,
        /// Only of this directory
        #[arg(long)]
        provider: Option<At>,
        /// Only those whose mailbox is looked at
        #[arg(long)]
        active: bool,
        /// Only those whose mailbox is not
        #[arg(long, conflicts_with = "active")]
        inactive: bool,
        /// Only whose address or alias this is
        #[arg(long, value_name = "ADDRESS")]
        address: Option<String>,
    },
}
