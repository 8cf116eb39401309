//! What is asked for, made from what the server itself shows before anything is measured.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::client::Server;
use crate::cli::bench::What;
use crate::failure::Failure;

/// Tenants whose lists are walked to their ends: enough that no page is asked for again while it is still at hand.
const WALKED: usize = 20;

/// Different searches of each kind; every tenant is asked for each.
const QUERIES: usize = 40;

/// Requests by what they are for; those of one kind take turns.
#[derive(Debug, Default)]
pub struct Plan {
    pub kinds: Vec<(&'static str, Vec<Vec<u8>>)>,
    /// Which kind comes when.
    turns: Vec<usize>,
}

impl Plan {
    /// Each kind so many times in a round.
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

    /// The kind and the bytes of the request that comes as this number.
    pub fn request(&self, number: usize) -> (usize, &[u8]) {
        let kind = self.turns[number % self.turns.len()];
        let requests = &self.kinds[kind].1;
        (kind, &requests[number / self.turns.len() % requests.len()])
    }
}

/// Who asks whom.
#[derive(Debug)]
pub struct Target {
    pub server: Server,
    pub keys: Vec<String>,
    pub sample: Sample,
}

/// What the server showed of its mail.
#[derive(Debug, Default)]
pub struct Sample {
    /// Where pages begin all over the lists: whose, and after which email.
    cursors: Vec<(usize, String)>,
    /// Of the first tenant.
    mails: Vec<Value>,
}

impl Target {
    pub async fn look(server: Server, keys: Vec<String>) -> Result<Self, Failure> {
        let mut sample = Sample::default();
        for (tenant, key) in keys.iter().enumerate().take(WALKED) {
            let mut path = "/v1/emails?limit=100".to_owned();
            loop {
                let page = server.get_json(&path, key).await?;
                if tenant == 0 {
                    sample.mails.extend(page["items"].as_array().into_iter().flatten().cloned());
                }
                let Some(cursor) = page["next_cursor"].as_str() else { break };
                path = format!("/v1/emails?limit=100&cursor={cursor}");
                sample.cursors.push((tenant, cursor.to_owned()));
            }
        }
        Ok(Self { server, keys, sample })
    }

    pub fn plan(&self, what: What) -> Result<Plan, Failure> {
        Plan::new(match what {
            What::Health => vec![("health", 1, vec![self.server.get("/healthz", "")])],
            What::List => vec![("list", 1, self.lists(&self.keys))],
            What::Deep => vec![("deep", 1, self.deep())],
            What::Search => self.searches().into_iter().map(|(name, requests)| (name, 1, requests)).collect(),
            What::Mixed => {
                let searches = self.searches().into_iter().flat_map(|(_, requests)| requests).collect();
                vec![
                    ("mixed: list", 6, self.lists(&self.keys)),
                    ("mixed: deep", 2, self.deep()),
                    ("mixed: search", 1, searches),
                    ("mixed: whole email", 1, self.whole()),
                ]
            }
            What::Sse => Vec::new(),
        })
    }

    /// One tenant that asks for nothing but its newest.
    pub fn noisy(&self) -> Result<Plan, Failure> {
        Plan::new(vec![("list, the noisy tenant", 1, self.lists(&self.keys[..1]))])
    }

    fn lists(&self, keys: &[String]) -> Vec<Vec<u8>> {
        keys.iter().map(|key| self.server.get("/v1/emails?limit=50", key)).collect()
    }

    fn deep(&self) -> Vec<Vec<u8>> {
        let request = |(tenant, cursor): &(usize, String)| {
            self.server.get(&format!("/v1/emails?limit=50&cursor={cursor}"), &self.keys[*tenant])
        };
        self.sample.cursors.iter().map(request).collect()
    }

    fn whole(&self) -> Vec<Vec<u8>> {
        let ids = self.sample.mails.iter().filter_map(|mail| mail["id"].as_str());
        ids.map(|id| self.server.get(&format!("/v1/emails/{id}"), &self.keys[0])).collect()
    }

    fn searches(&self) -> Vec<(&'static str, Vec<Vec<u8>>)> {
        let kinds = self.sample.queries();
        let requests = |queries: Vec<String>| {
            let mut requests = Vec::new();
            for query in queries {
                let path = format!("/v1/emails?limit=50&q={}", encoded(&query));
                requests.extend(self.keys.iter().map(|key| self.server.get(&path, key)));
            }
            requests
        };
        kinds.into_iter().map(|(name, queries)| (name, requests(queries))).collect()
    }
}

impl Sample {
    /// As people type them, each kind from emails all over the mailbox.
    fn queries(&self) -> Vec<(&'static str, Vec<String>)> {
        let texts: Vec<Vec<&str>> = self.mails.iter().map(|mail| words(&mail["snippet"])).collect();
        let mut emails: BTreeMap<&str, usize> = BTreeMap::new();
        for text in &texts {
            for word in text.iter().copied().collect::<BTreeSet<_>>() {
                *emails.entry(word).or_default() += 1;
            }
        }
        let mut by_count: Vec<(usize, &str)> = emails.into_iter().map(|(word, emails)| (emails, word)).collect();
        by_count.sort_unstable();
        let common = by_count.iter().rev().map(|(_, word)| (*word).to_owned()).take(QUERIES).collect();
        let rare: Vec<&str> = by_count.iter().take_while(|(emails, _)| *emails == 1).map(|(_, word)| *word).collect();
        let pair = |text: &&Vec<&str>| Some(format!("{} {}", text.first()?, text.get(text.len() / 2)?));
        let phrase = |text: &&Vec<&str>| Some(format!("\"{} {}\"", text.first()?, text.get(1)?));
        let senders: BTreeSet<&str> = self.mails.iter().filter_map(|mail| mail["from"]["address"].as_str()).collect();
        let senders: Vec<&str> = senders.into_iter().collect();
        vec![
            ("search: common word", common),
            ("search: rare word", spread(&rare).map(|word| (*word).to_owned()).collect()),
            ("search: two words", spread(&texts).filter_map(|text| pair(&text)).collect()),
            ("search: phrase", spread(&texts).filter_map(|text| phrase(&text)).collect()),
            ("search: sender", spread(&senders).map(|address| format!("from:{address}")).collect()),
            ("search: no hit", (0..QUERIES).map(|n| format!("qzxwv{n}")).collect()),
        ]
    }
}

/// So many as we want, at equal distances.
fn spread<T>(all: &[T]) -> impl Iterator<Item = &T> {
    all.iter().step_by((all.len() / QUERIES).max(1)).take(QUERIES)
}

/// That stand side by side in the text, as far as it goes.
fn words(snippet: &Value) -> Vec<&str> {
    let text = snippet.as_str().unwrap_or_default();
    let is_word = |word: &&str| word.len() > 2 && word.chars().all(char::is_alphabetic);
    text.split_whitespace().filter(is_word).collect()
}

fn encoded(query: &str) -> String {
    let byte = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    query.bytes().map(byte).collect()
}
