//! What is stored, compared with what the providers really have, and with itself.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use domain::MailboxState;
use serde_json::Value;

use super::place::Place;
use super::scene::Scene;
use super::truth;
use crate::failure::Failure;
use crate::output::one_line;

/// One mailbox, compared.
#[derive(Debug, Clone)]
pub struct MailboxCheck {
    pub tenant: &'static str,
    pub address: String,
    pub provider: &'static str,
    /// Places of messages there, and those of them that are here, once each.
    pub there: u64,
    pub here: u64,
    /// Found by a search.
    pub emails: u64,
}

#[derive(Debug, Clone, Default)]
pub struct Checked {
    pub mailboxes: Vec<MailboxCheck>,
    pub differences: Vec<String>,
    pub stuck_jobs: Vec<String>,
    pub dead_letters: Vec<String>,
    /// How `mailroom verify --deep` ended, and what it said against something.
    pub verified: bool,
}

impl Checked {
    pub fn is_good(&self) -> bool {
        self.reasons().is_empty()
    }

    /// Why it is not.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = self.differences.clone();
        reasons.extend(self.stuck_jobs.iter().map(|job| format!("a job does not end: {job}")));
        reasons.extend(self.dead_letters.iter().map(|letter| format!("a dead letter: {letter}")));
        if !self.verified {
            reasons.push("`mailroom verify` says that something differs".to_owned());
        }
        reasons
    }
}

pub async fn check(scene: &Scene, place: &Place) -> Result<Checked, Failure> {
    let mut checked = Checked::default();
    let expected = truth::expected(&scene.providers);
    for (tenant, id) in scene.tenants() {
        let store = scene.engine.store.tenant(id);
        let mailboxes = store.list_mailboxes().await?;
        let found: BTreeSet<String> = mailboxes.iter().map(|mailbox| mailbox.address.clone()).collect();
        let wanted = expected.get(tenant).cloned().unwrap_or_default();
        let missing = wanted.difference(&found).map(|address| format!("{address} has no mailbox"));
        checked.differences.extend(missing);
        checked.differences.extend(found.difference(&wanted).map(|address| format!("nobody wants {address}")));
        for mailbox in &mailboxes {
            if mailbox.state != MailboxState::Active || !mailbox.is_active {
                let state = mailbox.state.as_str();
                checked.differences.push(format!("{} is {state}, not active", mailbox.address));
            }
            let truth = truth::of(&scene.providers, mailbox.provider, &mailbox.address);
            let places = store.list_stored_places(mailbox.id).await?;
            let mut here: Vec<String> = places.iter().map(|place| truth::stored(mailbox.provider, place)).collect();
            here.sort_unstable();
            let (same, differences) = between(&truth.places, &here);
            checked.differences.extend(differences.into_iter().map(|line| format!("{}: {line}", mailbox.address)));
            let emails = store.count_live_emails(mailbox.id).await?;
            if emails != truth.emails {
                let address = &mailbox.address;
                checked.differences.push(format!("{address}: {emails} emails, and {} there", truth.emails));
            }
            let provider = mailbox.provider.as_str();
            let (address, there) = (mailbox.address.clone(), truth.places.len() as u64);
            checked.mailboxes.push(MailboxCheck { tenant, address, provider, there, here: same, emails });
        }
    }
    checked.differences.extend(scene.providers.violations().into_iter().map(|one| format!("against the specs: {one}")));
    let letters = scene.dead_letters().await?;
    let letter = |job: &store::sql::jobs::JobRow| {
        format!("{} {}: {}", job.kind, job.id, one_line(job.reason.as_deref().unwrap_or_default(), 200))
    };
    checked.dead_letters = letters.iter().map(letter).collect();
    let (verified, said) = verify(place).await?;
    checked.verified = verified;
    checked.differences.extend(said);
    Ok(checked)
}

/// Two sorted lists: how many lines are in both, and each that is not, as often as it is not.
fn between(there: &[String], here: &[String]) -> (u64, Vec<String>) {
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

/// As a user runs it.
async fn verify(place: &Place) -> Result<(bool, Vec<String>), Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--config").arg(place.settings()).args(["verify", "--deep", "--json"]);
    command.env_clear().stdin(Stdio::null());
    let done = tokio::task::spawn_blocking(move || command.output()).await.map_err(anyhow::Error::from)??;
    let (text, told) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    let reports = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let against = reports.filter(|report| report["ok"] != true).map(|report| format!("verify: {report}"));
    // Why, if it was for something else.
    let last_words = told.lines().last().filter(|_| !done.status.success()).map(|line| format!("verify: {line}"));
    Ok((done.status.success(), against.chain(last_words).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.chars().map(String::from).collect()
    }

    #[test]
    fn a_line_that_is_missing_surplus_or_there_twice_is_a_difference() {
        assert_eq!(between(&lines("abc"), &lines("abc")), (3, vec![]));
        assert_eq!(between(&lines("abc"), &lines("ac")), (2, vec!["missing: b".to_owned()]));
        assert_eq!(between(&lines("ab"), &lines("abb")), (2, vec!["surplus: b".to_owned()]));
        assert_eq!(between(&[], &lines("a")), (0, vec!["surplus: a".to_owned()]));
        assert_eq!(between(&lines("ad"), &lines("bc")).1.len(), 4);
    }

    #[test]
    fn what_was_not_verified_is_not_good() {
        let good = Checked { verified: true, ..Checked::default() };
        assert!(good.is_good());
        assert!(!Checked::default().is_good());
        assert!(!Checked { dead_letters: vec!["x".to_owned()], ..good.clone() }.is_good());
        assert!(!Checked { stuck_jobs: vec!["x".to_owned()], ..good.clone() }.is_good());
        assert!(!Checked { differences: vec!["x".to_owned()], ..good }.is_good());
    }
}
