//! `mailroom demo`

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub struct Demo {
    /// How many emails are there from the start; half of them in the one mailbox that takes a while
    #[arg(long, default_value_t = 3000, value_parser = emails, value_name = "N")]
    pub emails: usize,
    /// Where the server listens; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Take in what there is, mend what is wrong, compare all of it with the providers, and exit
    #[arg(long, conflicts_with_all = ["minutes", "rate", "faults_per_second"])]
    pub once: bool,
    /// The same after so many minutes of traffic, with how much memory the server had meanwhile
    #[arg(long, value_parser = minutes, value_name = "N")]
    pub minutes: Option<f64>,
    /// How fast everything goes; at 1, something changes once or twice a second
    #[arg(long, default_value_t = 1.0, value_parser = rate, value_name = "N")]
    pub rate: f64,
    /// Things that go wrong at the providers each second and pass by themselves
    #[arg(long, default_value_t = 0.0, value_parser = faults, value_name = "N")]
    pub faults_per_second: f64,
    /// The same seed makes the same mail
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Keep the data in this folder instead of a temporary one, which is removed
    #[arg(long, alias = "keep", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

/// More than that is what `mailroom bench` is for.
fn emails(text: &str) -> Result<usize, String> {
    const MOST: usize = 1_000_000;
    text.parse().ok().filter(|emails| *emails <= MOST).ok_or_else(|| format!("use a number from 0 to {MOST}"))
}

/// A week is longer than anybody waits.
fn minutes(text: &str) -> Result<f64, String> {
    number(text, 10_080.0)
}

/// Faster than any machine follows.
fn rate(text: &str) -> Result<f64, String> {
    number(text, 1_000.0)
}

fn faults(text: &str) -> Result<f64, String> {
    number(text, 1_000.0)
}

fn number(text: &str, most: f64) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=most).contains(number));
    number.ok_or_else(|| format!("use a number from 0 to {most}"))
}
