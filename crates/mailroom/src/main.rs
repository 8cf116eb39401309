//! The binary: reads the configuration, chooses implementations, runs one command, and tells the outcome.

mod app;
mod cli;
mod commands;
mod config;
mod failure;
mod logging;
mod output;
mod progress;

use std::process::ExitCode;

use clap::Parser;

use cli::Cli;
use failure::Failure;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(failure) => {
            output::tell(&format!("error: {failure}"));
            failure.exit_code()
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let config = config::Config::from_environment(cli.config.as_deref())?;
    let is_service = matches!(cli.command, cli::Command::Serve(_));
    logging::start(&config, is_service, cli.config.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::problem(format!("cannot start: {e}")))?;
    let outcome = runtime.block_on(commands::run(cli, config));
    // Work that nobody waits for any more must not keep the process alive.
    runtime.shutdown_background();
    outcome
}
