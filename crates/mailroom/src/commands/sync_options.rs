//! Options of commands that become settings of mailboxes, tenants and directories.

use domain::units::{parse_duration, parse_size};
use domain::{Backfill, InvalidSetting};
use terminal::Failure;

/// Reads `--backfill`.
pub fn read_backfill(text: &str) -> Result<Backfill, Failure> {
    text.parse()
        .map_err(|_| Failure::usage(format!("--backfill must be all, none or a duration such as 30d, not {text:?}")))
}

/// Reads `--interval` of mailboxes, in seconds.
pub fn read_interval(text: &str) -> Result<u64, Failure> {
    let every = parse_duration(text)
        .map_err(|_| Failure::usage(format!("--interval must be a duration such as 5m, not {text:?}")))?;
    Ok(every.as_secs())
}

/// Reads `--bytes-per-day`.
pub fn read_bytes_per_day(text: &str) -> Result<u64, Failure> {
    parse_size(text).map_err(|_| {
        Failure::usage(format!(
            "--bytes-per-day must be a size such as \"500 MB\", or \"0 B\" for no limit, not {text:?}"
        ))
    })
}

/// Returns the failure of a setting that is out of its limits, by the name of its option.
pub fn invalid_option(InvalidSetting { field, expected }: InvalidSetting) -> Failure {
    let option = match field {
        "interval_seconds" => "interval",
        "bytes_per_day" => "bytes-per-day",
        field => field,
    };
    Failure::usage(format!("--{option} must be {expected}"))
}
