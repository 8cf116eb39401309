//! P1 and P4 for mail that is synced: whatever is killed, stopped, restarted or away, and whatever the provider does wrong,
//! in the end everything is there that the provider has, once, and the events tell how it came there.

mod cluster;
mod compare;
mod gmail;
mod imap;
mod outlook;
mod simulated;
mod source;
mod story;

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::crash::{Random, random, setting};
use crate::jobs_killed::number;
use crate::place::Place;
use crate::servers::Postgres;
use cluster::{Cluster, FEWEST};
use source::{FAILING, Source, address};

const TENANTS: usize = 5;
const MAILBOXES_EACH: usize = 4;
const MAILBOXES: usize = TENANTS * MAILBOXES_EACH;

/// How long it storms; with `make chaos` much longer.
const SECONDS: u64 = 10;

/// Over all mailboxes, so that each changes about twice between two looks at it.
const CHANGES_PER_SECOND: f64 = 40.0;

/// One mailbox of each tenant takes in drafts too, whose texts change.
const WITH_DRAFTS: &str = "INBOX,Sent,Archive,Drafts";

fn has_drafts(number: usize) -> bool {
    number.is_multiple_of(MAILBOXES_EACH)
}

fn tenant_name(number: usize) -> String {
    format!("tenant {}", (number - 1) / MAILBOXES_EACH)
}

/// A Mailroom in a storm.
struct Storm<'a> {
    cluster: Cluster<'a>,
    source: Source,
    cursors_expired: u32,
}

impl<'a> Storm<'a> {
    fn new(place: &'a Place, server: Option<&'a Postgres>) -> Self {
        let source = Source::start(setting("MAILROOM_TEST_SEED", 1), MAILBOXES);
        let storm = Self { cluster: Cluster::new(place, TENANTS, server), source, cursors_expired: 0 };
        (1..=MAILBOXES).for_each(|number| storm.connect(number));
        // Small pages, so that there are many of them.
        place.sql(match place.is_sqlite() {
            true => "update mailboxes set settings = json_set(settings, '$.connection.page_size', 5)",
            false => "update mailboxes set settings = jsonb_set(settings, '{connection,page_size}', '5')",
        });
        storm
    }

    fn connect(&self, number: usize) {
        let place = self.cluster.place;
        let token = place.write(&format!("token-{number}"), format!("token-{number}"));
        let (tenant, address, url) = (tenant_name(number), address(number), self.source.url());
        let mut args = vec!["mailbox", "add", "scripted", "--tenant", &tenant, "--address", &address, "--url", &url];
        args.extend(["--token-file", &token, "--backfill", "all", "--interval", "1s"]);
        if has_drafts(number) {
            args.extend(["--folders", WITH_DRAFTS]);
        }
        place.ok(&args);
    }

    fn rage(&mut self, random: &mut Random, duration: Duration) {
        let begun = Instant::now();
        let mut made = 0;
        while begun.elapsed() < duration || made < FEWEST {
            sleep(Duration::from_millis(200 + random.below(1200)));
            if random.below(2) == 0 {
                let number = 1 + usize::try_from(random.below(MAILBOXES as u64)).unwrap();
                self.source.expire_cursors(number, random.below(3) == 0);
                self.cursors_expired += 1;
            }
            self.cluster.make_trouble(random);
            made += 1;
            if random.below(3) == 0 {
                self.help("needs_reauth");
            }
        }
    }

    /// Those whose credentials were refused, and the one of which a message was given up, wait for somebody.
    fn help(&self, state: &str) {
        let place = self.cluster.place;
        for waiting in place.select(&format!("select address from mailboxes where state = '{state}'")) {
            let number = (1..=MAILBOXES).find(|number| address(*number) == waiting).unwrap();
            place.ok(&["mailbox", "resume", &waiting, "--tenant", &tenant_name(number)]);
        }
    }

    /// Nothing goes wrong any more; everybody who waits for somebody is helped once.
    fn heal(&self) -> String {
        let met = self.source.heal();
        self.help("needs_reauth");
        // Its message can be had now, for who asks once more.
        let (tenant, address) = (tenant_name(FAILING), address(FAILING));
        for action in ["pause", "resume"] {
            self.cluster.place.ok(&["mailbox", action, &address, "--tenant", &tenant]);
        }
        format!("{met:?}")
    }
}

fn storm(place: &Place, servers: usize, server: Option<&Postgres>) {
    let (mut storm, mut random) = (Storm::new(place, server), random());
    storm.source.begin(CHANGES_PER_SECOND, 30);
    (0..servers).for_each(|_| storm.cluster.start());
    storm.rage(&mut random, storm_duration());
    let met = storm.heal();
    let healed = Instant::now();
    let blamed = storm.cluster.become_quiet(|| compare::differences(place, &storm.source));
    let quiet = healed.elapsed();
    storm.cluster.stop();
    assert_eq!(compare::differences(place, &storm.source), [""; 0], "it was quiet");
    assert_eq!(compare::odd(place), [""; 0], "it was quiet");
    let events = storm.cluster.assert_story();
    let lost = assert_readable(place);
    let messages: usize = (1..=MAILBOXES).map(|number| storm.source.truth(number).messages).sum();
    tell(&format!(
        "{messages} messages, {events} events; {:?}; {} cursors expired; faults met: {met}; replayed: {blamed}; without bytes: {lost}; quiet after {quiet:.1?}",
        storm.cluster.troubles, storm.cursors_expired
    ));
}

fn storm_duration() -> Duration {
    Duration::from_secs(setting("MAILROOM_TEST_STORM_SECONDS", SECONDS))
}

/// Every byte is read back. What came while blob storage was away and was deleted before it could be fetched once more has
/// none, which is told; how many.
fn assert_readable(place: &Place) -> u64 {
    let mut told = BTreeMap::new();
    for report in place.objects_of(&["verify", "--deep"]) {
        if !report["mailbox"].is_null() {
            assert_ne!(report["ok"], false, "{report}");
            continue;
        }
        for difference in report["differences"].as_array().unwrap() {
            let what = difference["what"].as_str().unwrap().to_owned();
            *told.entry(what).or_insert(0) += difference["count"].as_u64().unwrap();
        }
    }
    let gone = "join ledger l on l.tenant_id = e.tenant_id and l.email_id = e.id and l.state = 'gone'
                where e.deleted_at is not null";
    let lost = number(place, &format!("select count(*) from emails e {gone} and e.raw_blob_sha256 is null"));
    let parts = format!(
        "select count(*) from attachments a join emails e on e.tenant_id = a.tenant_id and e.id = a.email_id {gone}
         and a.status = 'pending'"
    );
    let lost_parts = number(place, &parts);
    let mut expected = BTreeMap::from([
        ("emails are stored without their raw bytes".to_owned(), lost),
        ("attachments are not stored yet".to_owned(), lost_parts),
    ]);
    expected.retain(|_, count| *count > 0);
    assert_eq!(told, expected);
    lost
}

#[expect(clippy::print_stdout, reason = "for who runs it")]
fn tell(text: &str) {
    println!("{text}");
}

#[test]
fn three_servers_in_a_storm_end_up_with_what_the_provider_has_on_postgresql() {
    let server = Postgres::start();
    storm(&Place::on_server(server.url()), 3, Some(&server));
}

#[test]
fn a_server_in_a_storm_ends_up_with_what_the_provider_has_on_sqlite() {
    storm(&Place::sqlite(), 1, None);
}
