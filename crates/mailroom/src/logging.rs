//! The log: text on a terminal, else JSON lines. Its level can be changed while the service runs.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::OnceLock;

use domain::redact_for_log;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use crate::config::{Config, LogLevel};

/// What is needed to change the level at runtime.
struct LogControl {
    filter: reload::Handle<EnvFilter, Registry>,
    config_file: Option<PathBuf>,
}

static LOG_CONTROL: OnceLock<LogControl> = OnceLock::new();

/// Starts the log on standard error: JSON for a service whose standard error is not a terminal, else text.
pub fn start(config: &Config, is_service: bool, config_file: Option<PathBuf>) {
    let (filter, handle) = reload::Layer::new(filter(config.log.level(is_service)));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let is_json = is_service && !std::io::stderr().is_terminal();
    let lines = if is_json { lines.json().flatten_event(true).boxed() } else { lines.boxed() };
    tracing_subscriber::registry().with(filter).with(lines).init();
    // It is started once per process.
    let _ = LOG_CONTROL.set(LogControl { filter: handle, config_file });
}

fn filter(level: LogLevel) -> EnvFilter {
    EnvFilter::new(level.as_str())
}

/// Reads the settings again and applies the log level of the service.
pub fn reload_level() {
    let Some(LogControl { filter: handle, config_file }) = LOG_CONTROL.get() else { return };
    match Config::from_environment(config_file.as_deref()) {
        Ok(config) => {
            let level = config.log.level(true);
            match handle.reload(filter(level)) {
                Ok(()) => tracing::info!(log.level = level.as_str(), "reloaded log level"),
                Err(e) => tracing::error!(error = redact_for_log(&e), "changing the log level failed"),
            }
        }
        Err(e) => tracing::error!(error = redact_for_log(&e), "reloading the settings failed"),
    }
}
