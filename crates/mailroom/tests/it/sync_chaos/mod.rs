//! P1 and P4 for mail that is synced: whatever is killed, stopped, restarted or away, and whatever the provider does wrong,
//! in the end everything is there that the provider has, once, and the events tell how it came there.

mod compare;
mod source;
mod story;
mod troubles;

use std::collections::BTreeMap;
use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use domain::{JobState, PlanTier, TenantId};
use store::Store;
use store::sql::jobs::{JobFilter, Replay};

use crate::crash::{random, setting};
use crate::jobs_killed::{number, open};
use crate::place::{PROGRAM, Place, block_on};
use crate::processes::Running;
use crate::servers::{Postgres, Redis};
use source::{FAILING, Source, address};

const TENANTS: usize = 5;
const MAILBOXES_EACH: usize = 4;
const MAILBOXES: usize = TENANTS * MAILBOXES_EACH;

const LEASE: Duration = Duration::from_secs(1);

/// How long it storms; with `make chaos` much longer.
const SECONDS: u64 = 10;

/// Far longer than it takes to become quiet on a busy machine; only what never ends gets there.
const DEADLINE: Duration = Duration::from_secs(120);

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
    place: &'a Place,
    store: Store,
    tenants: Vec<TenantId>,
    source: Source,
    running: Vec<Running>,
    started: usize,
    redis: Option<Redis>,
}

impl<'a> Storm<'a> {
    fn new(place: &'a Place, redis: Option<Redis>) -> Self {
        let source = Source::start(setting("MAILROOM_TEST_SEED", 1), MAILBOXES);
        let store = open(place);
        let tenants = block_on(async {
            store.migrate().await.unwrap();
            let mut tenants = Vec::new();
            for n in 0..TENANTS {
                let made = store.system().create_tenant(&format!("tenant {n}"), PlanTier::Standard).await;
                tenants.push(made.unwrap().unwrap().id);
            }
            tenants
        });
        let storm = Self { place, store, tenants, source, running: Vec::new(), started: 0, redis };
        (1..=MAILBOXES).for_each(|number| storm.connect(number));
        // Small pages, so that there are many of them.
        storm.place.sql(match storm.place.is_sqlite() {
            true => "update mailboxes set settings = json_set(settings, '$.connection.page_size', 5)",
            false => "update mailboxes set settings = jsonb_set(settings, '{connection,page_size}', '5')",
        });
        storm
    }

    fn connect(&self, number: usize) {
        let token = self.place.write(&format!("token-{number}"), format!("token-{number}"));
        let (tenant, address, url) = (tenant_name(number), address(number), self.source.url());
        let mut args = vec!["mailbox", "add", "scripted", "--tenant", &tenant, "--address", &address, "--url", &url];
        args.extend(["--token-file", &token, "--backfill", "all", "--interval", "1s"]);
        if has_drafts(number) {
            args.extend(["--folders", WITH_DRAFTS]);
        }
        self.place.ok(&args);
    }

    fn start(&mut self) {
        let mut command = self.serve();
        let log = File::create(self.place.path(&format!("serve-{}.log", self.started))).unwrap();
        self.started += 1;
        self.running.push(Running::spawn(command.stdout(Stdio::null()).stderr(log)));
    }

    fn serve(&self) -> Command {
        let lease = format!("{}s", LEASE.as_secs());
        // Every other seed lets all of them look at the calendar: that they agree must not be what it rests on.
        let elects = setting("MAILROOM_TEST_SEED", 1).is_multiple_of(2).to_string();
        let mut command = self.place.command(PROGRAM, &["serve"]);
        command
            .env("MAILROOM_SERVER__LISTEN", "127.0.0.1:0")
            .env("MAILROOM_JOBS__LEASE", &lease)
            .env("MAILROOM_SYNC__LEASE", &lease)
            .env("MAILROOM_SYNC__LEADER_ELECTION", elects)
            .envs(self.redis.iter().map(|redis| ("MAILROOM_CACHE__URL", redis.url())));
        command
    }

    /// Those whose credentials were refused, and the one of which a message was given up, wait for somebody.
    fn help(&self, state: &str) {
        for waiting in self.place.select(&format!("select address from mailboxes where state = '{state}'")) {
            let number = (1..=MAILBOXES).find(|number| address(*number) == waiting).unwrap();
            self.place.ok(&["mailbox", "resume", &waiting, "--tenant", &tenant_name(number)]);
        }
    }
}

impl Storm<'_> {
    /// Nothing goes wrong any more; everybody who waits for somebody is helped once.
    fn heal(&self) -> String {
        let met = self.source.heal();
        self.help("needs_reauth");
        // Its message can be had now, for who asks once more.
        let (tenant, address) = (tenant_name(FAILING), address(FAILING));
        for action in ["pause", "resume"] {
            self.place.ok(&["mailbox", action, &address, "--tenant", &tenant]);
        }
        format!("{met:?}")
    }

    /// Until what is stored is what the provider has and nothing is left to do. What waits for its time is done now; how
    /// many were parked and had to be replayed.
    fn become_quiet(&self) -> u64 {
        let begun = Instant::now();
        let mut blamed = 0;
        loop {
            let mut differences = compare::differences(self.place, &self.source);
            differences.extend(compare::unfinished(self.place));
            if differences.is_empty() {
                return blamed;
            }
            if begun.elapsed() > DEADLINE {
                let count = differences.len();
                differences.truncate(40);
                differences.extend(compare::standing(self.place));
                panic!("{count} differences after {DEADLINE:?}:\n{}", differences.join("\n"));
            }
            blamed += self.replay_the_blamed();
            self.hurry();
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    fn hurry(&self) {
        block_on(async {
            for state in [JobState::Scheduled, JobState::Retry] {
                let filter = JobFilter { state: Some(state), ..JobFilter::default() };
                for job in self.store.system().list_jobs(&filter, None, 1000).await.unwrap() {
                    self.store.system().retry_now(job.id).await.unwrap();
                }
            }
        });
    }

    /// Who is around whenever a process dies is taken for the cause: parked, not lost, and done when somebody wants it.
    fn replay_the_blamed(&self) -> u64 {
        let dead = self.place.select("select coalesce(error_class, '') from finished_jobs where state = 'dead'");
        assert!(dead.iter().all(|class| class == "poison"), "{dead:?}");
        block_on(self.store.system().replay_dead(&JobFilter::default(), &Replay::default())).unwrap()
    }

    fn stop(&mut self) {
        for running in self.running.drain(..) {
            running.terminate();
            let done = running.finish();
            assert_eq!(done.code, Some(0), "{done}");
        }
        for n in 0..self.started {
            let log = std::fs::read_to_string(self.place.path(&format!("serve-{n}.log"))).unwrap();
            assert!(!log.contains("panicked"), "{log}");
        }
    }

    /// What the events tell is what is there; how many there are.
    fn assert_story(&self) -> u64 {
        let mut events = 0;
        for tenant in &self.tenants {
            let story = story::read(&self.store, *tenant);
            let differences = story.differences(&compare::present(self.place, *tenant));
            assert!(differences.is_empty(), "of tenant {tenant}:\n{}", differences.join("\n"));
            events += story.events();
        }
        events
    }
}

fn storm(place: &Place, servers: usize, server: Option<&Postgres>) {
    // One server alone has nobody to ask for its turn.
    let redis = server.map(|_| Redis::start());
    let (mut storm, mut random) = (Storm::new(place, redis), random());
    storm.source.begin(CHANGES_PER_SECOND, 30);
    (0..servers).for_each(|_| storm.start());
    let duration = Duration::from_secs(setting("MAILROOM_TEST_STORM_SECONDS", SECONDS));
    let troubles = storm.rage(&mut random, duration, server);
    let met = storm.heal();
    let healed = Instant::now();
    let blamed = storm.become_quiet();
    let quiet = healed.elapsed();
    storm.stop();
    assert_eq!(compare::differences(place, &storm.source), [""; 0], "it was quiet");
    let events = storm.assert_story();
    let lost = assert_readable(place);
    let messages: usize = (1..=MAILBOXES).map(|number| storm.source.truth(number).messages).sum();
    tell(&format!(
        "{messages} messages, {events} events; {troubles:?}; faults met: {met}; replayed: {blamed}; without bytes: {lost}; quiet after {quiet:.1?}"
    ));
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
