//! Two tenants with the same organisation at Google and at Microsoft: each person has four mailboxes, called differently, and
//! two accounts. The program, simulated providers that push, and nobody who looks by the clock.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::http::send;
use crate::installation::{PROGRAM, TestInstallation, on_each_database};
use crate::processes::{RunningProcess, wait_until};
use crate::servers::closed_port;

const DOMAIN: &str = "org1.example";
const ACCOUNT: &str = "user1@org1.example";

const TENANTS: [&str; 2] = ["acme", "beta"];
const PROVIDERS: [&str; 2] = ["gmail", "outlook"];

struct SharedAccounts<'a> {
    place: &'a TestInstallation,
    sim: Child,
    control: SocketAddr,
    variables: Vec<(String, String)>,
}

impl Drop for SharedAccounts<'_> {
    fn drop(&mut self) {
        let _ = self.sim.kill();
        let _ = self.sim.wait();
    }
}

/// As the simulator calls it.
fn company(provider: &str) -> &'static str {
    if provider == "gmail" { "google" } else { "microsoft" }
}

impl<'a> SharedAccounts<'a> {
    fn new(place: &'a TestInstallation) -> (Self, RunningProcess) {
        let args = ["sim", "--listen", "127.0.0.1:0", "--accounts", "0", "--emails", "1", "--json"];
        let mut command = place.command(PROGRAM, &args);
        command.args(["--organisations", "1", "--people", "3"]);
        let mut sim = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(sim.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        let control = said["listening"].as_str().unwrap().parse().unwrap();
        let mut scene = Self { place, sim, control, variables: Vec::new() };

        let address = SocketAddr::from(([127, 0, 0, 1], closed_port()));
        let url = format!("http://{address}");
        for (company, settings) in [("google", &said["google"]), ("microsoft", &said["microsoft"])] {
            for (key, value) in settings.as_object().unwrap() {
                let name = format!("PROVIDERS__{}__{}", company.to_uppercase(), key.to_uppercase());
                scene.variables.push((name, value.as_str().unwrap().to_owned()));
            }
        }
        let key = place
            .write("account.json", scene.call_control_api("GET", "google/service-account", &Value::Null).to_string());
        let more = [
            ("SERVER__LISTEN", address.to_string()),
            ("SERVER__PUBLIC_URL", url.clone()),
            // Whatever comes in after the first look, a push has told of.
            ("SYNC__INTERVAL", "24h".to_owned()),
            ("PROVIDERS__GOOGLE__SERVICE_ACCOUNT_FILE", key),
            ("PROVIDERS__GOOGLE__PUBSUB_TOPIC", "projects/mailroom-test/topics/gmail".to_owned()),
            ("PROVIDERS__GOOGLE__PUSH_SERVICE_ACCOUNT", "pusher@mailroom-test.iam.gserviceaccount.com".to_owned()),
        ];
        scene.variables.extend(more.map(|(name, value)| (name.to_owned(), value)));
        scene.variables.iter_mut().for_each(|(name, _)| name.insert_str(0, "MAILROOM_"));
        let push = json!({"url": format!("{url}/v1/hooks/gmail"), "rate_limit": false});
        scene.call_control_api("PUT", "google/push", &push);
        scene.call_control_api("PUT", &format!("microsoft/directories/{DOMAIN}"), &json!({"admin_consent": true}));
        let mut command = place.command(PROGRAM, &["serve"]);
        command.envs(scene.variables.iter().cloned()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = RunningProcess::spawn(&mut command);
        wait_until("it answers", || TcpStream::connect(address).is_ok());
        (scene, server)
    }

    fn call_control_api(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [("Content-Type", "application/json")];
        let answer = send(self.control, method, &format!("/control/{path}"), &headers, body.as_bytes());
        assert!((200..300).contains(&answer.status), "{path}: {answer:?}");
        serde_json::from_slice(&answer.body).unwrap_or_default()
    }

    fn ok(&self, args: &[&str]) {
        let variables: Vec<(&str, &str)> = self.variables.iter().map(|(name, value)| (&**name, &**value)).collect();
        let done = self.place.run_with(&variables, args);
        assert_eq!(done.code, Some(0), "mailroom {args:?}: {done}");
    }

    /// Everybody of the organisation has a mailbox of this provider at this tenant.
    fn discover(&self, tenant: &str, provider: &str) {
        let at = if provider == "gmail" { ["--administrator", ACCOUNT] } else { ["--directory", DOMAIN] };
        let set = ["directory", "set", provider, "--tenant", tenant, "--backfill", "all", "--paused"];
        self.ok(&[&set[..], &at].concat());
        self.ok(&["directory", "discover", provider, "--tenant", tenant]);
    }

    /// What the mailbox of the person is called, and its id.
    fn mailbox(&self, tenant: &str, provider: &str) -> (String, String) {
        let found = self.place.select(&format!(
            "select m.address || ' ' || cast(m.id as text) from users u join tenants t on t.id = u.tenant_id
             join mailboxes m on m.tenant_id = u.tenant_id and m.id = u.mailbox_id
             where t.name = '{tenant}' and u.provider = '{provider}' and u.address = '{ACCOUNT}'"
        ));
        let (address, id) = found[0].split_once(' ').unwrap();
        (address.to_owned(), id.to_owned())
    }

    /// Emails in the mailboxes of the person: acme's at Gmail and Outlook, then beta's.
    fn emails(&self) -> [usize; 4] {
        let count = |n: usize| {
            let (_, id) = self.mailbox(TENANTS[n / 2], PROVIDERS[n % 2]);
            self.place.select(&format!("select cast(id as text) from emails where mailbox_id = '{id}'")).len()
        };
        [0, 1, 2, 3].map(count)
    }

    fn deliver(&self, provider: &str) {
        let path = format!("{}/accounts/{ACCOUNT}/apply", company(provider));
        self.call_control_api("POST", &path, &json!({"op": "deliver"}));
    }

    /// How often the provider was asked to tell of the person's account, and has not been told to stop.
    fn watches(&self, provider: &str) -> usize {
        let path = match provider {
            "gmail" => format!("google/accounts/{ACCOUNT}/watches"),
            _ => "microsoft/subscriptions".to_owned(),
        };
        let all = self.call_control_api("GET", &path, &Value::Null)["items"].as_array().unwrap().clone();
        all.iter().filter(|one| provider == "gmail" || one["account"] == ACCOUNT).count()
    }

    fn leave(&self, tenant: &str, provider: &str) {
        let (address, _) = self.mailbox(tenant, provider);
        self.ok(&["mailbox", "remove", &address, "--tenant", tenant, "--yes"]);
        wait_until("it is let go", || {
            self.place.select("select kind from jobs where kind in ('stop_watch', 'revoke_grant')").is_empty()
        });
    }
}

#[test]
fn shared_account_is_watched_once_for_all_its_mailboxes() {
    on_each_database(|place| {
        let (scene, _server) = SharedAccounts::new(place);
        for (tenant, first, second) in [("acme", "gmail", "outlook"), ("beta", "outlook", "gmail")] {
            place.ok(&["tenant", "create", tenant]);
            scene.discover(tenant, first);
            scene.discover(tenant, second);
            assert_eq!(scene.mailbox(tenant, first).0, ACCOUNT);
            assert_ne!(scene.mailbox(tenant, second).0, ACCOUNT, "the other one is called so");
        }
        wait_until("everything is there, and everybody is asked to tell us", || {
            scene.emails() == [1; 4]
                && place.select("select state from mailboxes where state <> 'active'").is_empty()
                && place.select("select 'x' from push_watches where expires_at is null").is_empty()
        });
        assert_eq!(PROVIDERS.map(|provider| scene.watches(provider)), [1, 1]);

        scene.deliver("gmail");
        wait_until("both tenants have what came to Gmail", || scene.emails() == [2, 1, 2, 1]);
        scene.deliver("outlook");
        wait_until("both tenants have what came to Outlook", || scene.emails() == [2; 4]);

        for provider in PROVIDERS {
            scene.leave("acme", provider);
            assert_eq!(scene.watches(provider), 1, "beta has the same account at {provider}");
            scene.deliver(provider);
        }
        wait_until("beta is still told", || scene.emails() == [2, 2, 3, 3]);
        for provider in PROVIDERS {
            scene.leave("beta", provider);
            assert_eq!(scene.watches(provider), 0, "nobody has it any more at {provider}");
        }
        assert_eq!(scene.emails(), [2, 2, 3, 3], "mail is kept");
        for company in ["google", "microsoft"] {
            let violations = scene.call_control_api("GET", &format!("{company}/violations"), &Value::Null);
            assert_eq!(violations["items"], json!([]));
        }
    });
}
