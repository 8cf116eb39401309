//! The requests of the load benchmark, made from the mail that the server shows before anything is measured.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use terminal::Failure;

use super::LoadKind;
use super::client::ApiServer;

/// Tenants whose lists are read to their ends: enough that no page is requested again while it is still cached.
const MAX_SAMPLED_TENANTS: usize = 20;

/// Different searches of each kind; each is sent for every tenant.
const QUERIES_PER_KIND: usize = 40;

/// Requests by kind; those of one kind take turns.
#[derive(Debug, Default)]
pub struct RequestPlan {
    pub kinds: Vec<(&'static str, Vec<Vec<u8>>)>,
    /// The kind of each request of a round.
    turns: Vec<usize>,
}

impl RequestPlan {
    /// Creates a plan in which each kind occurs so many times in a round.
    fn new(kinds: Vec<(&'static str, usize, Vec<Vec<u8>>)>) -> Result<Self, Failure> {
        let mut plan = Self::default();
        for (name, times, requests) in kinds {
            if requests.is_empty() {
                return Err(Failure::problem(format!("there is too little mail to ask for {name:?}")));
            }
            plan.turns.extend(std::iter::repeat_n(plan.kinds.len(), times));
            plan.kinds.push((name, requests));
        }
        Ok(plan)
    }

    /// Returns the kind and the bytes of a request by its number.
    pub fn request(&self, number: usize) -> (usize, &[u8]) {
        let kind = self.turns[number % self.turns.len()];
        let requests = &self.kinds[kind].1;
        (kind, &requests[number / self.turns.len() % requests.len()])
    }
}

/// A server, the keys of its tenants, and a sample of their mail.
#[derive(Debug)]
pub struct LoadTarget {
    pub server: ApiServer,
    pub keys: Vec<String>,
    pub sample: MailSample,
}

/// Mail that the server showed.
#[derive(Debug, Default)]
pub struct MailSample {
    /// Cursors of pages all over the lists, with the tenant's index.
    cursors: Vec<(usize, String)>,
    /// Emails of the first tenant.
    emails: Vec<Value>,
}

impl LoadTarget {
    pub async fn sample(server: ApiServer, keys: Vec<String>) -> Result<Self, Failure> {
        let mut sample = MailSample::default();
        for (tenant, key) in keys.iter().enumerate().take(MAX_SAMPLED_TENANTS) {
            let mut path = "/v1/emails?limit=100".to_owned();
            loop {
                let page = server.get_json(&path, key).await?;
                if tenant == 0 {
                    sample.emails.extend(page["items"].as_array().into_iter().flatten().cloned());
                }
                let Some(cursor) = page["next_cursor"].as_str() else { break };
                path = format!("/v1/emails?limit=100&cursor={cursor}");
                sample.cursors.push((tenant, cursor.to_owned()));
            }
        }
        Ok(Self { server, keys, sample })
    }

    pub fn plan(&self, kind: LoadKind) -> Result<RequestPlan, Failure> {
        RequestPlan::new(match kind {
            LoadKind::Health => vec![("health", 1, vec![self.server.get("/healthz", "")])],
            LoadKind::List => vec![("list", 1, self.lists(&self.keys))],
            LoadKind::Deep => vec![("deep", 1, self.deep())],
            LoadKind::Search => self.searches().into_iter().map(|(name, requests)| (name, 1, requests)).collect(),
            LoadKind::Mixed => {
                let searches = self.searches().into_iter().flat_map(|(_, requests)| requests).collect();
                vec![
                    ("mixed: list", 6, self.lists(&self.keys)),
                    ("mixed: deep", 2, self.deep()),
                    ("mixed: search", 1, searches),
                    ("mixed: whole email", 1, self.whole()),
                ]
            }
            LoadKind::Sse => Vec::new(),
        })
    }

    /// Returns the plan of one tenant that only lists its newest emails.
    pub fn noisy_plan(&self) -> Result<RequestPlan, Failure> {
        RequestPlan::new(vec![("list, the noisy tenant", 1, self.lists(&self.keys[..1]))])
    }

    fn lists(&self, keys: &[String]) -> Vec<Vec<u8>> {
        keys.iter().map(|key| self.server.get("/v1/emails?limit=50", key)).collect()
    }

    fn deep(&self) -> Vec<Vec<u8>> {
        let cursors = self.sample.cursors.iter();
        let path = |cursor: &str| format!("/v1/emails?limit=50&cursor={cursor}");
        cursors.map(|(tenant, cursor)| self.server.get(&path(cursor), &self.keys[*tenant])).collect()
    }

    fn whole(&self) -> Vec<Vec<u8>> {
        let ids = self.sample.emails.iter().filter_map(|email| email["id"].as_str());
        ids.map(|id| self.server.get(&format!("/v1/emails/{id}"), &self.keys[0])).collect()
    }

    fn searches(&self) -> Vec<(&'static str, Vec<Vec<u8>>)> {
        let kinds = self.sample.queries().into_iter();
        kinds.map(|(name, queries)| (name, queries.iter().flat_map(|query| self.search(query)).collect())).collect()
    }

    /// Returns the requests of one search, for every tenant.
    fn search(&self, query: &str) -> Vec<Vec<u8>> {
        let path = format!("/v1/emails?limit=50&q={}", percent_encode(query));
        self.keys.iter().map(|key| self.server.get(&path, key)).collect()
    }
}

impl MailSample {
    /// Makes queries as people type them, each kind from emails all over the mailbox.
    fn queries(&self) -> Vec<(&'static str, Vec<String>)> {
        let texts: Vec<Vec<&str>> = self.emails.iter().map(|email| words(&email["snippet"])).collect();
        let mut emails_by_word: BTreeMap<&str, usize> = BTreeMap::new();
        for text in &texts {
            for word in text.iter().copied().collect::<BTreeSet<_>>() {
                *emails_by_word.entry(word).or_default() += 1;
            }
        }
        let mut by_count: Vec<(usize, &str)> =
            emails_by_word.into_iter().map(|(word, emails)| (emails, word)).collect();
        by_count.sort_unstable();
        let common = by_count.iter().rev().map(|(_, word)| (*word).to_owned()).take(QUERIES_PER_KIND).collect();
        let rare: Vec<&str> = by_count.iter().take_while(|(emails, _)| *emails == 1).map(|(_, word)| *word).collect();
        let senders: BTreeSet<&str> =
            self.emails.iter().filter_map(|email| email["from"]["address"].as_str()).collect();
        let senders: Vec<&str> = senders.into_iter().collect();
        vec![
            ("search: common word", common),
            ("search: rare word", spread(&rare).map(|word| (*word).to_owned()).collect()),
            ("search: two words", spread(&texts).filter_map(|text| pair(text)).collect()),
            ("search: phrase", spread(&texts).filter_map(|text| phrase(text)).collect()),
            ("search: sender", spread(&senders).map(|address| format!("from:{address}")).collect()),
            ("search: no hit", (0..QUERIES_PER_KIND).map(|n| format!("qzxwv{n}")).collect()),
        ]
    }
}

/// Returns two words of a text.
fn pair(text: &[&str]) -> Option<String> {
    Some(format!("{} {}", text.first()?, text.get(text.len() / 2)?))
}

/// Returns a phrase: the first two words of a text.
fn phrase(text: &[&str]) -> Option<String> {
    Some(format!("\"{} {}\"", text.first()?, text.get(1)?))
}

/// Selects as many items as a kind has queries, at equal distances.
fn spread<T>(all: &[T]) -> impl Iterator<Item = &T> {
    all.iter().step_by((all.len() / QUERIES_PER_KIND).max(1)).take(QUERIES_PER_KIND)
}

/// Returns the words of a snippet, in their order.
fn words(snippet: &Value) -> Vec<&str> {
    let text = snippet.as_str().unwrap_or_default();
    text.split_whitespace().filter(|word| word.len() > 2 && word.chars().all(char::is_alphabetic)).collect()
}

fn percent_encode(query: &str) -> String {
    let mut text = String::new();
    for byte in query.bytes() {
        if byte.is_ascii_alphanumeric() {
            text.push(char::from(byte));
        } else {
            text += &format!("%{byte:02X}");
        }
    }
    text
}
