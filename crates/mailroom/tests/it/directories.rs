//! A tenant's directory becomes mailboxes, by commands.

use std::sync::Arc;

use ::sim::google::{self, GoogleWorld};
use ::sim::people::{DirectoryProvider, NewOrganisation, PeopleOperation};
use domain::{Clock, SystemClock};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::installation::{CommandOutput, PROGRAM, TestInstallation, on_each_database};

const DOMAIN: &str = "harbour.example";
const ADMIN: &str = "user1@harbour.example";

/// A simulated Google with an organisation of so many people.
struct GoogleOrganisation {
    world: Arc<GoogleWorld>,
    server: google::GoogleServer,
    _runtime: Runtime,
}

impl GoogleOrganisation {
    fn start(people: usize) -> Self {
        let world = Arc::new(GoogleWorld::new(7, 20, Arc::new(|| SystemClock.now())));
        let new = NewOrganisation { domain: DOMAIN.to_owned(), people, messages: 3, ..NewOrganisation::default() };
        world.create_organisation(&new).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let server = runtime.block_on(google::GoogleServer::start_here(world.clone())).unwrap();
        Self { world, server, _runtime: runtime }
    }

    fn settings(&self, place: &TestInstallation) -> Vec<(String, String)> {
        let url = self.server.url();
        let pairs = [
            ("SERVICE_ACCOUNT_FILE", place.write("account.json", self.world.service_account_key().to_string())),
            ("TOKEN_URL", format!("{url}/token")),
            ("API_URL", url.clone()),
            ("DIRECTORY_URL", url),
        ];
        pairs.map(|(key, value)| (format!("MAILROOM_PROVIDERS__GOOGLE__{key}"), value)).into()
    }

    fn run(&self, place: &TestInstallation, args: &[&str]) -> CommandOutput {
        let mut command = place.command(PROGRAM, args);
        command.envs(self.settings(place));
        CommandOutput::of(&mut command)
    }

    fn object(&self, place: &TestInstallation, args: &[&str]) -> Value {
        let done = self.run(place, &[args, &["--json"]].concat());
        assert_eq!(done.code, Some(0), "{done}");
        done.objects().remove(0)
    }

    fn goes(&self, address: &str) {
        let person = address.to_owned();
        self.world.apply_to_people(DOMAIN, PeopleOperation::Delete { person }).unwrap();
    }
}

#[test]
fn commands_manage_a_directory() {
    on_each_database(|place| {
        let google = GoogleOrganisation::start(20);
        place.ok(&["tenant", "create", "acme"]);
        let acme = ["--tenant", "acme"];
        let set = ["directory", "set", "gmail", "--administrator", ADMIN, "--exclude-address", "user2@harbour.example"];
        let set = [&set[..], &acme, &["--paused"]].concat();

        place.run(&set).assert_refused(2, &["providers.google.service_account_file"]);
        google.run(place, &[&["directory", "set", "gmail"][..], &acme].concat()).assert_refused(2, &["administrator"]);
        google.run(place, &[&["directory", "discover"][..], &acme].concat()).assert_refused(1, &["no such directory"]);
        assert_eq!(google.object(place, &set)["is_new"], true);
        let discover = |more: &[&str]| google.object(place, &[&["directory", "discover"][..], &acme, more].concat());
        let tried = discover(&["--dry-run"]);
        assert_eq!(place.select("select address from mailboxes"), Vec::<String>::new());
        let done = discover(&[]);

        assert_eq!((&tried["added"], tried["outcome"].as_str()), (&done["added"], Some("dry_run")));
        assert_eq!(tried["items"].as_array().unwrap().len(), 19, "one of them is deleted");
        assert_eq!(done["left_out"]["excluded"], 1);
        let mailboxes = place.select("select address from mailboxes");
        assert_eq!(mailboxes.len() as u64, done["added"].as_u64().unwrap());
        assert!(!mailboxes.contains(&"user2@harbour.example".to_owned()));
        let users = place.objects(&[&["user", "list"][..], &acme].concat());
        assert_eq!(users.len(), 19);
        let left_out = place.objects(&[&["user", "list", "--inactive"][..], &acme].concat());
        assert_eq!(users.len() - left_out.len(), mailboxes.len());
        assert!(place.ok(&[&["user", "list"][..], &acme].concat()).text().contains("excluded by the rules"));

        for gone in mailboxes.iter().filter(|address| *address != ADMIN) {
            google.goes(gone);
        }
        let held = google.run(place, &[&["directory", "discover"][..], &acme].concat());
        assert_eq!(held.code, Some(1), "{held}");
        assert!(held.text().contains("nothing was changed"), "{held}");
        assert!(place.ok(&[&["directory", "show"][..], &acme].concat()).text().contains("held"));
        assert_eq!(discover(&["--force"])["outcome"], "done");
        assert_eq!(place.select("select address from mailboxes where is_active"), [ADMIN]);
        let listed = place.ok(&["tenant", "show", "acme"]).text();
        let gone = mailboxes.iter().find(|address| *address != ADMIN).unwrap();
        assert!(listed.lines().any(|line| line.contains(gone) && line.contains(", off")), "{listed}");
        assert_eq!(place.select("select address from mailboxes").len(), mailboxes.len(), "their mail stays");

        let shown = || place.object(&[&["directory", "show"][..], &acme].concat());
        google.object(place, &[&["directory", "set", "gmail", "--interval", "2h"][..], &acme].concat());
        assert_eq!(shown()["rules"]["exclude"]["addresses"], json!(["user2@harbour.example"]), "as it was");
        assert_eq!((&shown()["is_paused"], &shown()["interval_seconds"]), (&json!(true), &json!(7200)));
        google.object(place, &[&["directory", "set", "gmail", "--no-rules"][..], &acme].concat());
        assert_eq!(shown()["rules"]["exclude"]["addresses"].as_array().map_or(0, Vec::len), 0);
        assert_eq!(shown()["interval_seconds"], 7200);

        place.ok(&[&["directory", "remove", "gmail"][..], &acme].concat());
        assert_eq!(place.select("select provider from directories"), Vec::<String>::new());
        assert_eq!(place.select("select address from mailboxes").len(), mailboxes.len());
        let audit = place.select("select cast(entry as text) from audit").join("\n");
        assert!(audit.contains("directory.put") && audit.contains("directory.delete"), "{audit}");
        assert_eq!(google.world.violations(), []);
    });
}

#[test]
fn directory_of_an_inactive_tenant_is_not_discovered() {
    on_each_database(|place| {
        let google = GoogleOrganisation::start(3);
        place.ok(&["tenant", "create", "acme"]);
        let acme = ["--tenant", "acme"];
        let set = [&["directory", "set", "gmail", "--administrator", ADMIN, "--paused"][..], &acme].concat();
        google.object(place, &set);
        place.ok(&["tenant", "deactivate", "acme"]);

        for more in [&[][..], &["--dry-run"]] {
            let discover = [&["directory", "discover"][..], &acme, more].concat();
            let says = ["acme is deactivated", "`mailroom tenant activate acme`"];
            google.run(place, &discover).assert_refused(1, &says);
        }

        assert_eq!(place.select("select provider from directories where token = 0 and dry_run is null"), ["gmail"]);
        place.ok(&["tenant", "activate", "acme"]);
        assert_eq!(google.object(place, &[&["directory", "discover"][..], &acme].concat())["outcome"], "done");
    });
}
