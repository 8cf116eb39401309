//! The arguments of `mailroom demo`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// Largest demo; `mailroom bench` is for more.
const MAX_EMAILS: usize = 1_000_000;

/// Longest traffic: a week.
const MAX_MINUTES: f64 = 10_080.0;

/// Highest rate: faster than any machine follows.
const MAX_RATE: f64 = 1_000.0;

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// How many emails are there from the start; half of them in the one mailbox that takes a while
    #[arg(long, default_value_t = 3000, value_parser = parse_emails, value_name = "N")]
    pub emails: usize,
    /// Where the server listens; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Sync everything, repair differences, compare all of it with the providers, and exit
    #[arg(long, conflicts_with_all = ["minutes", "rate", "faults_per_second"])]
    pub once: bool,
    /// The same after so many minutes of traffic, with the server's memory over time
    #[arg(long, value_parser = parse_minutes, value_name = "N")]
    pub minutes: Option<f64>,
    /// Speed of the simulated traffic; at 1, there is a change once or twice a second
    #[arg(long, default_value_t = 1.0, value_parser = parse_rate, value_name = "N")]
    pub rate: f64,
    /// Transient faults of the providers per second
    #[arg(long, default_value_t = 0.0, value_parser = parse_faults, value_name = "N")]
    pub faults_per_second: f64,
    /// The same seed makes the same mail
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Keep the data in this folder instead of a temporary one, which is removed
    #[arg(long, alias = "keep", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

fn parse_emails(text: &str) -> Result<usize, String> {
    let emails = text.parse().ok().filter(|emails| *emails <= MAX_EMAILS);
    emails.ok_or_else(|| format!("use a number from 0 to {MAX_EMAILS}"))
}

fn parse_minutes(text: &str) -> Result<f64, String> {
    parse_number(text, MAX_MINUTES)
}

fn parse_rate(text: &str) -> Result<f64, String> {
    parse_number(text, MAX_RATE)
}

fn parse_faults(text: &str) -> Result<f64, String> {
    parse_number(text, MAX_RATE)
}

fn parse_number(text: &str, max: f64) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=max).contains(number));
    number.ok_or_else(|| format!("use a number from 0 to {max}"))
}
