//! The log: for people on a terminal, JSON for machines. Its level can be changed while the service runs.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::OnceLock;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use crate::config::{Config, LogLevel};

struct Changeable {
    filter: reload::Handle<EnvFilter, Registry>,
    config_file: Option<PathBuf>,
}

static CHANGEABLE: OnceLock<Changeable> = OnceLock::new();

/// Commands talk to people; a service talks to machines unless somebody watches.
pub fn start(config: &Config, is_service: bool, config_file: Option<PathBuf>) {
    let (filter, handle) = reload::Layer::new(filter(config.log.level));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let lines = match is_service && !std::io::stderr().is_terminal() {
        true => lines.json().flatten_event(true).boxed(),
        false => lines.boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
    // Nobody starts it twice.
    let _ = CHANGEABLE.set(Changeable { filter: handle, config_file });
}

fn filter(level: LogLevel) -> EnvFilter {
    EnvFilter::new(level.as_str())
}

/// Reads the settings again and takes the log's level from them.
pub fn reload_level() {
    let Some(Changeable { filter: handle, config_file }) = CHANGEABLE.get() else { return };
    match Config::from_environment(config_file.as_deref()) {
        Ok(config) => match handle.reload(filter(config.log.level)) {
            Ok(()) => tracing::info!(
                level = config.log.level.as_str(),
                "the settings were read again: the log has this level now"
            ),
            Err(e) => tracing::error!("cannot change the log's level: {e}"),
        },
        Err(e) => tracing::error!("the settings are not taken: {e}"),
    }
}
