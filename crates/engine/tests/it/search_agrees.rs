//! One search, three answers that must be the same: SQLite, PostgreSQL, and reading every token.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use content::files::{self, MailFileFormat};
use content::query::naive::{MatchedEmail, is_match};
use content::spool::Spool;
use content::tokens::{EmailText, email_tokens};
use content::{mime, query};
use domain::search::SearchQuery;
use domain::{EmailId, Flags, FolderId, MessageLimits, PlanTier, Sha256, SystemClock};
use engine::Engine;
use engine::archive::ingest::{IncomingMessage, MessageSource};
use engine::archive::search::SearchRequest;
use jiff::Timestamp;
use sim::mail::{Generator, Profile};
use store::sql::search::SearchPage;
use store::testing::fresh_postgres;
use store::{Location, Store, TenantStore};

const MAILS: usize = 2_000;
const QUERIES: usize = 600;

/// Names that differ in case, in their last segment, and by being none.
const FOLDERS: [&str; 6] = ["INBOX", "Sent", "Work/Bills", "Old/bills", "Größe", "a b"];

const NONSENSE: [&str; 16] = [
    "zzzqqq",
    "\"",
    "-",
    "-\"\"",
    "*",
    "a*",
    "京*",
    "from:*",
    "label:nowhere",
    "-label:nowhere",
    "\"of the",
    "!!!",
    "subject:",
    "after:1990",
    "before:1990",
    "🎉",
];

#[expect(clippy::disallowed_methods, reason = "a failure is repeated with its seed")]
#[expect(clippy::print_stdout, reason = "a failure is repeated with its seed")]
fn seed() -> u64 {
    let seed = std::env::var("MAILROOM_TEST_SEED").map_or(1, |text| text.parse().unwrap());
    println!("MAILROOM_TEST_SEED={seed}");
    seed
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        ((mixed ^ (mixed >> 27)) % limit.max(1) as u64) as usize
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }
}

/// A message and where it lies.
struct Mail {
    raw: Vec<u8>,
    folder: String,
    received_at: Option<Timestamp>,
}

/// The corpus where there is one, and generated mail.
fn mails() -> Vec<Mail> {
    let mut mails = Vec::new();
    let corpus = Path::new("../../../shared/corpus");
    if corpus.is_dir() {
        let spool = Spool::new(corpus);
        let found =
            files::open(corpus, MailFileFormat::Auto, &MessageLimits::default(), &spool).unwrap().map(Result::unwrap);
        mails.extend(found.map(|found| (found.raw.read().unwrap(), found.envelope_time)));
    }
    // Some of it always: it has ten languages.
    let count = MAILS.saturating_sub(mails.len()).max(MAILS / 5);
    let generated = Generator::new(3, Profile::ordinary(3, count));
    mails.extend(generated.map(|message| (message.raw, Some(message.received_at))));
    let mut random = Random(7);
    let filed = mails.into_iter().map(|(raw, received_at)| {
        let folder = FOLDERS[random.below(FOLDERS.len())].to_owned();
        Mail { raw, folder, received_at }
    });
    filed.collect()
}

/// What the naive matcher looks at.
struct TokenizedMail {
    tokens: String,
    labels: Vec<String>,
    /// Texts to make queries of.
    parsed: mime::ParsedEmail,
}

fn known(mails: &[Mail]) -> BTreeMap<Sha256, TokenizedMail> {
    let mut known: BTreeMap<Sha256, TokenizedMail> = BTreeMap::new();
    for mail in mails {
        let entry = known.entry(Sha256::of(&mail.raw)).or_insert_with(|| {
            let mut parsed = mime::parse(&mail.raw, &MessageLimits::default());
            let tokens = email_tokens(&EmailText::of(&parsed)).text;
            parsed.attachments.iter_mut().for_each(|attachment| attachment.content = Default::default());
            TokenizedMail { tokens, labels: Vec::new(), parsed }
        });
        entry.labels.push(mail.folder.clone());
    }
    known
}

/// A database filled with the mails.
struct SearchDatabase {
    engine: Engine,
    tenant: TenantStore,
    emails: HashMap<EmailId, (Sha256, Timestamp)>,
}

/// A tenth of the mails.
fn is_deleted(sha256: Sha256) -> bool {
    sha256.0[0] < 26
}

async fn fill(location: &Location, folder: &Path, mails: &[Mail]) -> SearchDatabase {
    let store = Store::open(location, Arc::new(SystemClock)).unwrap();
    store.migrate().await.unwrap();
    let engine = testkit::app::engine(&store, folder);
    let tenant = store.system().create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap();
    let tenant = store.tenant(tenant.id);
    let mailbox = Arc::new(tenant.ensure_files_mailbox("me@acme.test").await.unwrap());
    let names: Vec<String> = FOLDERS.map(str::to_owned).to_vec();
    let folders: HashMap<String, FolderId> = tenant.ensure_folders(mailbox.id, &names).await.unwrap();
    let messages = mails.iter().map(|mail| IncomingMessage {
        raw: mail.raw.clone().into(),
        source: MessageSource::File { folder: folders[&mail.folder], flags: Flags::default() },
        received_at: mail.received_at,
        origin: String::new(),
    });
    testkit::app::ingest(&engine, &mailbox, messages).await;
    let ids = tenant.search(&SearchQuery::default(), &everything()).await.unwrap();
    let mut emails = HashMap::new();
    for ids in ids.chunks(500) {
        for email in tenant.get_emails(ids).await.unwrap() {
            emails.insert(email.id, (email.sha256, email.received_at));
            if is_deleted(email.sha256) {
                let mut unit = tenant.write();
                unit.discard_email(email.id);
                unit.commit().await.unwrap();
            }
        }
    }
    SearchDatabase { engine, tenant, emails }
}

fn everything() -> SearchPage {
    SearchPage { limit: 1_000_000, ..SearchPage::default() }
}

impl SearchDatabase {
    fn receive_times(&self) -> BTreeMap<Sha256, Timestamp> {
        self.emails.values().copied().collect()
    }

    /// Newest first.
    async fn search(&self, query: &SearchQuery) -> Vec<(Sha256, Timestamp)> {
        let ids = self.tenant.search(query, &everything()).await.unwrap();
        let found: Vec<_> = ids.iter().map(|id| self.emails[id]).collect();
        assert!(found.is_sorted_by(|(_, a), (_, b)| a.as_second() >= b.as_second()), "not newest first: {query:?}");
        found
    }

    /// The same by pages, as a person leafs through them.
    async fn search_all_pages(&self, text: &str, includes_deleted: bool, limit: u64) -> Vec<(Sha256, Timestamp)> {
        let mut search = SearchRequest { includes_deleted, limit, ..SearchRequest::default() };
        let mut found = Vec::new();
        loop {
            let page = self.engine.search(&self.tenant, text, &search).await.unwrap();
            found.extend(page.hits.iter().map(|hit| self.emails[&hit.email.id]));
            search.cursor = page.next_cursor;
            if search.cursor.is_none() {
                return found;
            }
            assert_eq!(page.hits.len() as u64, limit, "only the last page is short");
        }
    }
}

/// A search that someone who knows the mail could type.
fn random_query(random: &mut Random, mails: &[&TokenizedMail], times: &[Timestamp]) -> String {
    let count = 1 + random.below(3);
    let mut terms = Vec::new();
    let subject = mails[random.below(mails.len())];
    for _ in 0..count {
        // Mostly of one mail, so that there is something to find.
        let mail = if random.below(4) == 0 { mails[random.below(mails.len())] } else { subject };
        let term = random_term(random, mail, times);
        let sign = if random.below(5) == 0 { "-" } else { "" };
        terms.push(format!("{sign}{term}"));
    }
    terms.join(" ")
}

fn random_term(random: &mut Random, mail: &TokenizedMail, times: &[Timestamp]) -> String {
    let email = &mail.parsed;
    let text = [email.body_text.as_deref(), email.subject.as_deref()][random.below(2)].unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().filter(|word| !word.contains('"')).collect();
    let at = random.below(words.len());
    let word = words.get(at).copied().unwrap_or("nothing");
    let beginning: String = word.chars().take(1 + random.below(4)).collect();
    let people: Vec<_> = email.recipients.iter().map(|recipient| &recipient.address).chain(&email.from).collect();
    let person = random.pick(&people).map_or("nobody", |person| match &person.name {
        Some(name) if person.address.len() % 2 == 0 => name,
        _ => person.address.as_str(),
    });
    let names: Vec<&str> = email.attachments.iter().filter_map(|attachment| attachment.filename.as_deref()).collect();
    let name = random.pick(&names).copied().unwrap_or("pdf");
    let time = times[random.below(times.len())].to_string();
    let date = &time[..[4, 7, 10][random.below(3)]];
    match random.below(17) {
        0..4 => word.to_owned(),
        4 => format!("{beginning}*"),
        5 | 6 => quoted(&words[at.min(words.len())..(at + 2 + random.below(3)).min(words.len())].join(" ")),
        7 => format!("from:{}", quoted(person)),
        8 => format!("to:{}", quoted(person)),
        9 => format!("subject:{word}"),
        10 => format!("filename:{}", quoted(name)),
        11 => "has:attachment".to_owned(),
        12 => format!("label:{}", quoted(["inbox", "BILLS", "work/bills", "größe", "A B", "sent"][random.below(6)])),
        13 => format!("after:{date}"),
        14 => format!("before:{date}"),
        15 => "is:deleted".to_owned(),
        _ => NONSENSE[random.below(NONSENSE.len())].to_owned(),
    }
}

fn matched(sha256: Sha256, mail: &TokenizedMail, received_at: Timestamp) -> MatchedEmail<'_, String> {
    MatchedEmail { tokens: &mail.tokens, labels: &mail.labels, received_at, is_deleted: is_deleted(sha256) }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', " "))
}

fn hashes(found: &[(Sha256, Timestamp)]) -> BTreeSet<Sha256> {
    found.iter().map(|(sha256, _)| *sha256).collect()
}

fn seconds(found: &[(Sha256, Timestamp)]) -> Vec<i64> {
    found.iter().map(|(_, time)| time.as_second()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn databases_agree_with_the_naive_matcher() {
    let folder = tempfile::tempdir().unwrap();
    let mails = mails();
    let file = Location::Sqlite { path: folder.path().join("mailroom.db"), connections: 4 };
    let sqlite = fill(&file, &folder.path().join("sqlite"), &mails).await;
    let postgres = fill(&fresh_postgres().await, &folder.path().join("postgres"), &mails).await;
    let known = known(&mails);
    let times = sqlite.receive_times();
    assert!(times.len() >= MAILS && times.len() == known.len(), "{} mails", times.len());
    assert_eq!(times, postgres.receive_times());

    let mut random = Random(seed());
    let texts: Vec<&TokenizedMail> = known.values().collect();
    let moments: Vec<Timestamp> = times.values().copied().collect();
    let (mut asked, mut hits) = (0, 0);
    while asked < QUERIES {
        let text = random_query(&mut random, &texts, &moments);
        let Ok(mut query) = query::parse(&text) else { continue };
        asked += 1;
        let includes_deleted = random.below(4) == 0;
        if includes_deleted {
            query = query.including_deleted();
        }

        let by_sqlite = sqlite.search(&query).await;
        let by_postgres = postgres.search(&query).await;

        // A mail without the letters of a word need not be read word by word, which is slow in a debug build.
        let words: Vec<_> = query.all_of.iter().flat_map(|phrase| &phrase.tokens).collect();
        let expected: BTreeSet<Sha256> = known
            .iter()
            .filter(|(_, mail)| words.iter().all(|word| mail.tokens.contains(word.as_str())))
            .filter(|(sha256, mail)| is_match(&query, &matched(**sha256, mail, times[sha256])))
            .map(|(sha256, _)| *sha256)
            .collect();
        assert_eq!(hashes(&by_sqlite), expected, "SQLite, {text:?}: {query:?}");
        assert_eq!(hashes(&by_postgres), expected, "PostgreSQL, {text:?}: {query:?}");
        assert_eq!((by_sqlite.len(), by_postgres.len()), (expected.len(), expected.len()), "{text:?}");
        assert_eq!(seconds(&by_sqlite), seconds(&by_postgres), "{text:?}");
        hits += usize::from(!expected.is_empty());
        if asked % 20 == 0 && expected.len() < 300 {
            let limit = 1 + random.below(40) as u64;
            assert_eq!(sqlite.search_all_pages(&text, includes_deleted, limit).await, by_sqlite, "{text:?} by {limit}");
            assert_eq!(
                postgres.search_all_pages(&text, includes_deleted, limit).await,
                by_postgres,
                "{text:?} by {limit}"
            );
        }
    }
    assert!(hits * 2 > asked, "only {hits} of {asked} searches found anything");
}
