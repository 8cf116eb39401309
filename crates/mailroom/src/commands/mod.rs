//! The commands, one file each.

mod audit;
mod backup;
mod config;
mod dead_letters;
mod directory;
mod doctor;
mod email;
mod export;
mod gc;
mod import;
mod job_output;
mod job_stats;
mod jobs;
mod key;
mod limits;
mod mailbox;
mod migrate;
mod purge;
mod recurring;
mod reindex;
mod retry_blobs;
mod search;
mod secrets;
mod serve;
mod sql;
mod sql_readers;
mod sync_options;
mod tenant;
mod tenant_settings;
mod usage;
mod user;
mod verify;

use std::process::ExitCode;

use terminal::{Failure, Output};

use crate::cli::{Cli, Command};
use crate::config::Config;

pub async fn run(cli: Cli, config: Config) -> Result<ExitCode, Failure> {
    let out = Output { json: cli.json };
    match cli.command {
        #[cfg(feature = "lab")]
        Command::Demo(args) => lab::demo::run(&args, &config, out).await,
        Command::Migrate { check, restored } => migrate::run(&config, check, restored, out).await,
        Command::Doctor => doctor::run(&config, out).await,
        Command::Config(crate::cli::ConfigCommand::Show) => config::show(&config, out),
        Command::Tenant(command) => tenant::run(&config, command, out).await,
        Command::Mailbox(command) => mailbox::run(&config, command, out).await,
        Command::Directory(command) => directory::run(&config, command, out).await,
        Command::User(command) => user::run(&config, command, out).await,
        Command::Key(command) => key::run(&config, command, out).await,
        Command::Import(args) => import::run(&config, args, out).await,
        Command::Export(args) => export::run(&config, &args, out).await,
        Command::Search(args) => search::run(&config, &args, out).await,
        Command::Sql(args) => sql::run(&config, args, out).await,
        Command::Email(command) => email::run(&config, command, out).await,
        Command::Verify(args) => verify::run(&config, &args, out).await,
        Command::Backup { out: folder } => backup::backup(&config, &folder, out).await,
        Command::Restore { from } => backup::restore_from(&config, &from, out).await,
        Command::Gc(args) => gc::run(&config, &args, out).await,
        Command::RetryBlobs(args) => retry_blobs::run(&config, &args, out).await,
        Command::Reindex(args) => reindex::run(&config, &args, out).await,
        Command::Serve(args) => serve::run(&config, &args, out).await,
        Command::Jobs(command) => jobs::run(&config, command, out).await,
        Command::Recurring(command) => recurring::run(&config, command, out).await,
        Command::DeadLetters(command) => dead_letters::run(&config, command, out).await,
        Command::Limits(crate::cli::LimitsCommand::Show { tenant }) => {
            limits::show(&config, tenant.as_deref(), out).await
        }
        Command::Audit(crate::cli::AuditCommand::Verify { tenant }) => {
            audit::verify(&config, tenant.as_deref(), out).await
        }
        Command::Secrets(crate::cli::SecretsCommand::Rotate(args)) => secrets::rotate(&config, &args, out).await,
        #[cfg(feature = "lab")]
        Command::Sim(args) => lab::simulator::run(&args, out).await,
        #[cfg(feature = "lab")]
        Command::Bench(command) => {
            crate::app::raise_file_limit();
            lab::bench::run(&command, &config, out).await
        }
    }
}
