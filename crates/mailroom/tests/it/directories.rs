//! A tenant's directory becomes mailboxes: by commands, and over HTTP beside a server.

use std::sync::Arc;

use ::sim::google::{self, Operation, World};
use ::sim::people::{NewOrganisation, Organised, PeopleOperation};
use domain::{Clock, SystemClock};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::api::scene::try_tell;
use crate::http::{self, Answer, GENEROUS};
use crate::place::{Done, PROGRAM, Place, on_each_database};
use crate::processes::wait_until;

const DOMAIN: &str = "harbour.example";
const ADMIN: &str = "user1@harbour.example";

/// A simulated Google with an organisation of so many people.
struct Google {
    world: Arc<World>,
    server: google::Server,
    _runtime: Runtime,
}

impl Google {
    fn start(people: usize) -> Self {
        let world = Arc::new(World::new(7, 20, Arc::new(|| SystemClock.now())));
        let new = NewOrganisation { domain: DOMAIN.to_owned(), people, messages: 3, ..NewOrganisation::default() };
        world.organise(&new).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let server = runtime.block_on(google::Server::start_here(world.clone())).unwrap();
        Self { world, server, _runtime: runtime }
    }

    fn settings(&self, place: &Place) -> Vec<(String, String)> {
        let url = self.server.url();
        let pairs = [
            ("SERVICE_ACCOUNT_FILE", place.write("account.json", self.world.service_account_key().to_string())),
            ("TOKEN_URL", format!("{url}/token")),
            ("API_URL", url.clone()),
            ("DIRECTORY_URL", url),
        ];
        pairs.map(|(key, value)| (format!("MAILROOM_PROVIDERS__GOOGLE__{key}"), value)).into()
    }

    fn run(&self, place: &Place, args: &[&str]) -> Done {
        let mut command = place.command(PROGRAM, args);
        command.envs(self.settings(place));
        Done::of(&mut command)
    }

    fn object(&self, place: &Place, args: &[&str]) -> Value {
        let done = self.run(place, &[args, &["--json"]].concat());
        assert_eq!(done.code, Some(0), "{done}");
        done.objects().remove(0)
    }

    /// With a message that came while they were away.
    fn comes_back(&self, address: &str) {
        let person = address.to_owned();
        self.world.apply_to_people(DOMAIN, PeopleOperation::Restore { person }).unwrap();
        self.world.apply(address, Operation::deliver()).unwrap();
    }

    fn goes(&self, address: &str) {
        let person = address.to_owned();
        self.world.apply_to_people(DOMAIN, PeopleOperation::Delete { person }).unwrap();
    }
}

#[test]
fn commands_set_try_discover_show_and_remove() {
    on_each_database(|place| {
        let google = Google::start(20);
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
fn the_directory_of_a_tenant_that_is_deactivated_is_not_looked_at_and_the_command_says_why() {
    on_each_database(|place| {
        let google = Google::start(3);
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

/// The health of a mailbox whose owner has left.
fn assert_off(health: &Value) {
    let told = (&health["is_active"], &health["left_out"], &health["next_sync_at"]);
    assert_eq!(told, (&json!(false), &json!("gone"), &Value::Null), "{health}");
    let push = (health["push"]["state"].as_str(), health["push"]["reason"].as_str());
    assert_eq!(push, (Some("off"), Some("the mailbox is switched off")));
}

#[test]
fn over_http_an_organisation_is_connected_once_and_its_mail_comes_in() {
    on_each_database(|place| {
        let google = Google::start(6);
        let tenant = place.object(&["tenant", "create", "acme"])["id"].as_str().unwrap().to_owned();
        let key = place.object(&["key", "create", "--tenant", "acme", "--name", "test", "--scopes", "read,write"]);
        let key = key["key"].as_str().unwrap();
        let settings = google.settings(place);
        let mut variables: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (&**name, &**value)).collect();
        variables.extend(GENEROUS);
        let (_server, address) = http::serve_as(place, "web,worker,scheduler", &variables);
        let operator = std::fs::read_to_string(place.data_dir().join("admin.key")).unwrap();
        let tell = |method: &str, path: &str, key: &str, body: &Value, named: bool| -> Answer {
            let more = [("X-Tenant-Id", &*tenant)];
            try_tell(address, method, path, key.trim(), body, if named { &more } else { &[] }).unwrap()
        };
        let get = |path: &str| tell("GET", path, key, &Value::Null, false).json();

        let wish = json!({"administrator": ADMIN, "backfill": "all", "rules": {"exclude": {"units": ["/Nowhere"]}}});
        tell("PUT", "/v1/directories/gmail", key, &wish, false).assert_problem(403, "operator");
        tell("PUT", "/v1/directories/imap", &operator, &wish, true).assert_problem(404, "no such directory");
        let odd = json!({"administrator": ADMIN, "rules": {"exclude": {"addresses": ["x"]}}});
        tell("PUT", "/v1/directories/gmail", &operator, &odd, true).assert_problem(422, "rules.exclude.addresses");
        tell("POST", "/v1/directory/discover", key, &json!({}), false).assert_problem(404, "no such directory");
        let put = tell("PUT", "/v1/directories/gmail", &operator, &wish, true);
        assert_eq!((put.status, put.json()["interval_seconds"].as_u64()), (200, Some(21_600)), "{put:?}");

        let with_mail = "select distinct cast(mailbox_id as text) from emails";
        wait_until("everybody has a mailbox and its mail", || {
            get("/v1/directories/gmail")["last_run"]["outcome"] == "done"
                && place.select("select address from mailboxes where state = 'active'").len() == 5
                && place.select(with_mail).len() == 5
        });
        let listed = get("/v1/directories");
        assert_eq!(listed["items"][0]["last_run"]["added"], 5);
        let users = get("/v1/users?limit=4");
        assert_eq!(users["items"].as_array().unwrap().len(), 4);
        let rest = get(&format!("/v1/users?limit=4&cursor={}", users["next_cursor"].as_str().unwrap()));
        assert_eq!((rest["items"].as_array().unwrap().len(), &rest["next_cursor"]), (2, &Value::Null));
        let unlicensed = get("/v1/users?left_out=unlicensed");
        assert_eq!(unlicensed["items"].as_array().unwrap().len(), 1);
        assert_eq!(get(&format!("/v1/users?address={ADMIN}"))["items"][0]["state"], "active");
        tell("GET", "/v1/users?state=odd", key, &Value::Null, false).assert_problem(422, "state");

        google.goes("user2@harbour.example");
        let asked = tell("POST", "/v1/directory/discover", key, &json!({"dry_run": true}), false);
        assert_eq!((asked.status, asked.json()["providers"][0].as_str()), (202, Some("gmail")), "{asked:?}");
        wait_until("it is known what would happen", || get("/v1/directories/gmail")["dry_run"]["left"] == 1);
        let item = get("/v1/directories/gmail")["dry_run"]["items"][0].clone();
        assert_eq!((item["action"].as_str(), item["reason"].as_str()), (Some("leave"), Some("gone")));
        assert_eq!(get("/v1/users?state=active")["items"].as_array().unwrap().len(), 5);
        let asked = tell("POST", "/v1/directory/discover", key, &json!({"provider": "gmail"}), false);
        assert_eq!(asked.status, 202, "{asked:?}");
        wait_until("who has left is not looked at", || get("/v1/users?left_out=gone")["items"][0].is_object());
        let mailboxes = get("/v1/mailboxes");
        let off: Vec<&Value> =
            mailboxes["items"].as_array().unwrap().iter().filter(|one| one["is_active"] == false).collect();
        assert_eq!(off.len(), 1);
        assert_off(&get(&format!("/v1/mailboxes/{}/health", off[0]["id"].as_str().unwrap())));
        let shown = place.ok(&["tenant", "show", "acme"]).text();
        assert!(shown.lines().any(|line| line.contains("user2@") && line.contains(", off")), "{shown}");
        let sync = format!("/v1/mailboxes/{}/sync", off[0]["id"].as_str().unwrap());
        tell("POST", &sync, key, &Value::Null, false).assert_problem(409, "not synced");
        let of_theirs =
            format!("select cast(id as text) from emails where mailbox_id = '{}'", off[0]["id"].as_str().unwrap());
        assert!(!place.select(&of_theirs).is_empty(), "the mail stays");
        // What came meanwhile is there once they are back, and what was there before is not there twice.
        let before = place.select(&of_theirs).len();
        google.comes_back("user2@harbour.example");
        let asked = tell("POST", "/v1/directory/discover", key, &json!({}), false);
        assert_eq!(asked.status, 202, "{asked:?}");
        wait_until("who is back is looked at", || place.select(&of_theirs).len() == before + 1);
        let again = get(&format!("/v1/mailboxes/{}", off[0]["id"].as_str().unwrap()));
        assert_eq!((&again["is_active"], &again["address"]), (&json!(true), &json!("user2@harbour.example")));
        assert_eq!(place.select("select address from mailboxes").len(), 5);
        assert_eq!(tell("DELETE", "/v1/directories/gmail", key, &Value::Null, false).status, 204);
        assert_eq!(get("/v1/users")["items"], json!([]));
    });
}
