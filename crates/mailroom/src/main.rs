//! The binary: reads the configuration, chooses implementations, runs one command, and reports the outcome.

mod app;
mod cli;
mod commands;
mod config;
#[cfg(feature = "lab")]
mod installation;
mod logging;

use std::process::ExitCode;

use clap::Parser;
use terminal::Failure;

use cli::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(failure) => {
            terminal::note(&format!("error: {failure}"));
            failure.exit_code()
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let config = config::Config::from_environment(cli.config.as_deref())?;
    let is_service = matches!(cli.command, cli::Command::Serve(_));
    logging::start(&config, is_service, cli.config.clone());
    warn_of_service_variables(&config);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::problem(format!("cannot start the runtime: {e}")))?;
    let outcome = runtime.block_on(commands::run(cli, config));
    // Background work must not keep the process alive.
    runtime.shutdown_background();
    outcome
}

/// Warns once of all variables that were passed over.
fn warn_of_service_variables(config: &config::Config) {
    if !config.service_variables.is_empty() {
        tracing::warn!(
            variables = config.service_variables.join(" "),
            "ignored variables that Kubernetes made for a Service called mailroom; \
             set enableServiceLinks: false in the pod, or give the Service another name"
        );
    }
}
