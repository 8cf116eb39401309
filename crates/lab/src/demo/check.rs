//! Compares what is stored with what the providers have, and with itself.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use domain::MailboxState;
use serde_json::Value;
use store::sql::jobs::JobRow;
use terminal::{Failure, one_line};

use super::folder::DemoFolder;
use super::system::DemoSystem;
use super::truth;

/// The comparison of one mailbox.
#[derive(Debug, Clone)]
pub struct MailboxComparison {
    pub tenant: &'static str,
    pub address: String,
    pub provider: &'static str,
    /// Number of placements of messages at the provider, and of those that are stored, once each.
    pub there: u64,
    pub here: u64,
    /// Number of emails that a search finds.
    pub emails: u64,
}

/// What differs, and what is not done.
#[derive(Debug, Clone, Default)]
pub struct ComparisonReport {
    pub mailboxes: Vec<MailboxComparison>,
    pub differences: Vec<String>,
    pub stuck_jobs: Vec<String>,
    pub dead_letters: Vec<String>,
    /// Whether `mailroom verify --deep` found no difference.
    pub is_verified: bool,
}

impl ComparisonReport {
    pub fn is_good(&self) -> bool {
        self.reasons().is_empty()
    }

    /// Returns the sums over all mailboxes: placements there, placements here, emails.
    pub fn totals(&self) -> [u64; 3] {
        self.mailboxes.iter().fold([0; 3], |[there, here, emails], mailbox| {
            [there + mailbox.there, here + mailbox.here, emails + mailbox.emails]
        })
    }

    /// Returns why it is not good.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = self.differences.clone();
        reasons.extend(self.stuck_jobs.iter().map(|job| format!("a job does not end: {job}")));
        reasons.extend(self.dead_letters.iter().map(|letter| format!("a dead letter: {letter}")));
        if !self.is_verified {
            reasons.push("`mailroom verify` says that something differs".to_owned());
        }
        reasons
    }
}

pub async fn check(system: &DemoSystem, folder: &DemoFolder) -> Result<ComparisonReport, Failure> {
    let mut comparison = ComparisonReport::default();
    let expected = truth::expected_mailboxes(&system.providers);
    for (tenant, id) in system.tenants() {
        let store = system.engine.store.tenant(id);
        let mailboxes = store.list_mailboxes().await?;
        let stored: BTreeSet<String> = mailboxes.iter().map(|mailbox| mailbox.address.clone()).collect();
        let expected = expected.get(tenant).cloned().unwrap_or_default();
        let missing = expected.difference(&stored).map(|address| format!("{address} has no mailbox"));
        comparison.differences.extend(missing);
        comparison.differences.extend(stored.difference(&expected).map(|address| format!("nobody wants {address}")));
        for mailbox in &mailboxes {
            if mailbox.state != MailboxState::Active || !mailbox.is_active {
                let state = mailbox.state.as_str();
                comparison.differences.push(format!("{} is {state}, not active", mailbox.address));
            }
            let truth = truth::expected_mail(&system.providers, mailbox.provider, &mailbox.address);
            let placements = store::bench::list_stored_placements(&store, mailbox.id).await?;
            let mut here: Vec<String> =
                placements.iter().map(|placement| truth::stored_line(mailbox.provider, placement)).collect();
            here.sort_unstable();
            let (same, differences) = compare_lines(&truth.placements, &here);
            comparison.differences.extend(differences.into_iter().map(|line| format!("{}: {line}", mailbox.address)));
            let emails = store::bench::count_live_emails(&store, mailbox.id).await?;
            if emails != truth.emails {
                let address = &mailbox.address;
                comparison.differences.push(format!("{address}: {emails} emails, and {} there", truth.emails));
            }
            let provider = mailbox.provider.as_str();
            let (address, there) = (mailbox.address.clone(), truth.placements.len() as u64);
            comparison.mailboxes.push(MailboxComparison { tenant, address, provider, there, here: same, emails });
        }
    }
    comparison
        .differences
        .extend(system.providers.violations().into_iter().map(|one| format!("against the specs: {one}")));
    let letters = system.dead_letters().await?;
    comparison.dead_letters = letters.iter().map(dead_letter_line).collect();
    let (is_verified, differences) = verify(folder).await?;
    comparison.is_verified = is_verified;
    comparison.differences.extend(differences);
    Ok(comparison)
}

fn dead_letter_line(job: &JobRow) -> String {
    format!("{} {}: {}", job.kind, job.id, one_line(job.reason.as_deref().unwrap_or_default(), 200))
}

/// Compares two sorted lists: returns how many lines are in both, and each that is not, as often as it is not.
fn compare_lines(there: &[String], here: &[String]) -> (u64, Vec<String>) {
    let (mut a, mut b, mut same, mut differences) = (0, 0, 0, Vec::new());
    loop {
        let order = match (there.get(a), here.get(b)) {
            (None, None) => return (same, differences),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(x), Some(y)) => x.cmp(y),
        };
        match order {
            Ordering::Equal => (a, b, same) = (a + 1, b + 1, same + 1),
            Ordering::Less => {
                differences.push(format!("missing: {}", there[a]));
                a += 1;
            }
            Ordering::Greater => {
                differences.push(format!("surplus: {}", here[b]));
                b += 1;
            }
        }
    }
}

/// Runs `mailroom verify`; returns whether it found no difference, and its differences.
async fn verify(folder: &DemoFolder) -> Result<(bool, Vec<String>), Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--config").arg(folder.settings()).args(["verify", "--deep", "--json"]);
    command.env_clear().stdin(Stdio::null());
    let done = tokio::task::spawn_blocking(move || command.output()).await.map_err(anyhow::Error::from)??;
    let (text, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    let reports = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let differences = reports.filter(|report| report["ok"] != true).map(|report| format!("verify: {report}"));
    // The reason, if it failed otherwise.
    let last_line = errors.lines().last().filter(|_| !done.status.success()).map(|line| format!("verify: {line}"));
    Ok((done.status.success(), differences.chain(last_line).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.chars().map(String::from).collect()
    }

    #[test]
    fn missing_surplus_and_repeated_lines_are_differences() {
        assert_eq!(compare_lines(&lines("abc"), &lines("abc")), (3, vec![]));
        assert_eq!(compare_lines(&lines("abc"), &lines("ac")), (2, vec!["missing: b".to_owned()]));
        assert_eq!(compare_lines(&lines("ab"), &lines("abb")), (2, vec!["surplus: b".to_owned()]));
        assert_eq!(compare_lines(&[], &lines("a")), (0, vec!["surplus: a".to_owned()]));
        assert_eq!(compare_lines(&lines("ad"), &lines("bc")).1.len(), 4);
    }

    #[test]
    fn comparison_without_verification_is_not_good() {
        let good = ComparisonReport { is_verified: true, ..ComparisonReport::default() };
        assert!(good.is_good());
        assert!(!ComparisonReport::default().is_good());
        assert!(!ComparisonReport { dead_letters: vec!["x".to_owned()], ..good.clone() }.is_good());
        assert!(!ComparisonReport { stuck_jobs: vec!["x".to_owned()], ..good.clone() }.is_good());
        assert!(!ComparisonReport { differences: vec!["x".to_owned()], ..good }.is_good());
    }
}
