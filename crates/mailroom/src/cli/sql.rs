//! `mailroom sql …`

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct SqlArgs {
    #[command(subcommand)]
    pub command: Option<SqlCommand>,
    /// The query; - reads it from standard input
    #[arg(value_name = "QUERY", allow_hyphen_values = true)]
    pub query: Option<String>,
    /// Only the rows of this tenant (name or id)
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub limit: usize,
    /// How long it may take, such as 30s or 10m
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub timeout: String,
    /// Print CSV, with a line of column names
    #[arg(long)]
    pub csv: bool,
}

#[derive(Debug, Subcommand)]
pub enum SqlCommand {
    /// Make a PostgreSQL login that reads the views, for psql and other programs
    #[command(
        after_help = "Example:\n  mailroom sql grant acme_reports --tenant acme\n\nPrints its password, once. Without --tenant it reads the rows of all tenants."
    )]
    Grant {
        /// The login: lower-case letters, digits and underscores
        #[arg(value_name = "LOGIN")]
        login: String,
        /// Only the rows of this tenant (name or id)
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// A file with its password, such as /dev/stdin (default: one is generated)
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
    },
    /// End what a login reads, effective with its next statement, and drop it
    #[command(after_help = "Example:\n  mailroom sql revoke acme_reports")]
    Revoke {
        /// The login, as `sql list` shows it
        #[arg(value_name = "LOGIN")]
        login: String,
    },
    /// List the logins that read
    #[command(after_help = "Example:\n  mailroom sql list")]
    List,
}
