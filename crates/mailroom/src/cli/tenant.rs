//! `mailroom tenant …`

use clap::{Args, Subcommand, ValueEnum};

use super::PlanArg;

#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// Create a tenant
    #[command(after_help = "Example:\n  mailroom tenant create acme --plan vip")]
    Create {
        /// Its name; up to 100 characters
        name: String,
        /// Its request rate and share of the workers
        #[arg(long, default_value = "standard", value_name = "PLAN")]
        plan: PlanArg,
    },
    /// List all tenants
    #[command(after_help = "Example:\n  mailroom tenant list --json")]
    List,
    /// Show one tenant with its mailboxes and counts
    #[command(after_help = "Example:\n  mailroom tenant show acme")]
    Show { tenant: String },
    /// Set defaults for the mailboxes of a tenant
    #[command(
        after_help = "Examples:\n  mailroom tenant set acme --backfill 30d --exclude Archive --interval 10m\n  mailroom tenant set acme --unset interval,exclude\n\nOptions that are not given stay as they are. A setting of the mailbox itself wins."
    )]
    Set(SetTenantArgs),
    /// Show a tenant's usage of its providers, what is left, and the progress of backfills
    #[command(after_help = "Example:\n  mailroom tenant usage acme")]
    Usage { tenant: String },
    /// Activate a tenant
    #[command(after_help = "Example:\n  mailroom tenant activate acme")]
    Activate { tenant: String },
    /// Deactivate a tenant: its keys are refused and its jobs do not run; nothing is deleted
    #[command(after_help = "Example:\n  mailroom tenant deactivate acme")]
    Deactivate { tenant: String },
    /// Delete a tenant: its access ends at once, and all it has is erased after `tenants.erase_after`
    #[command(
        after_help = "Example:\n  mailroom tenant delete acme\n\nUntil then, `mailroom tenant undelete` restores it."
    )]
    Delete {
        tenant: String,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Restore a deleted tenant that is not erased yet, and activate it
    #[command(after_help = "Example:\n  mailroom tenant undelete acme")]
    Undelete { tenant: String },
}

#[derive(Debug, Args)]
pub struct SetTenantArgs {
    /// A tenant's name or id
    pub tenant: String,
    /// How much existing mail to fetch of new mailboxes: all, none, or a duration such as 30d
    #[arg(long, value_name = "ALL|NONE|DURATION")]
    pub backfill: Option<String>,
    /// Only these folders, by name
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub folders: Vec<String>,
    /// Not these folders, by name
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub exclude: Vec<String>,
    /// Time between syncs, such as 5m
    #[arg(long, value_name = "DURATION")]
    pub interval: Option<String>,
    /// How much to fetch of each mailbox per day, such as 500MB; "0 B": no limit
    #[arg(long, value_name = "SIZE")]
    pub bytes_per_day: Option<String>,
    /// Remove these settings, so that the configuration applies
    #[arg(long, value_delimiter = ',', value_name = "SETTINGS")]
    pub unset: Vec<TenantSettingArg>,
}

impl SetTenantArgs {
    /// Returns whether no setting is named.
    pub fn is_empty(&self) -> bool {
        let Self { tenant: _, backfill, folders, exclude, interval, bytes_per_day, unset } = self;
        let is_set = backfill.is_some() || interval.is_some() || bytes_per_day.is_some();
        !is_set && folders.is_empty() && exclude.is_empty() && unset.is_empty()
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum TenantSettingArg {
    Backfill,
    Folders,
    Exclude,
    Interval,
    BytesPerDay,
}

impl TenantSettingArg {
    /// Returns the name of the field of [`domain::TenantSettings`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Backfill => "backfill",
            Self::Folders => "folders",
            Self::Exclude => "exclude",
            Self::Interval => "interval_seconds",
            Self::BytesPerDay => "bytes_per_day",
        }
    }
}
