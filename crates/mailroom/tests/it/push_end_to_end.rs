//! An account with pushes from its connection to its removal: the program, a simulated provider, and no polling.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::http::{ask, send};
use crate::installation::{PROGRAM, TestInstallation, on_each_database};
use crate::processes::{RunningProcess, wait_until};
use crate::servers::closed_port;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PushProvider {
    Gmail,
    Outlook,
}

impl PushProvider {
    /// As commands call it.
    fn provider(self) -> &'static str {
        match self {
            Self::Gmail => "gmail",
            Self::Outlook => "outlook",
        }
    }

    /// As settings and the simulator call it.
    fn company(self) -> &'static str {
        match self {
            Self::Gmail => "google",
            Self::Outlook => "microsoft",
        }
    }

    fn account(self) -> &'static str {
        match self {
            Self::Gmail => "user1@sim.example",
            Self::Outlook => "user1@contoso.example",
        }
    }
}

/// The provider, at this address, until the test ends.
struct SimulatorProcess {
    provider: PushProvider,
    process: std::process::Child,
    address: SocketAddr,
    settings: Vec<(String, String)>,
}

impl Drop for SimulatorProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl SimulatorProcess {
    fn start(provider: PushProvider, place: &TestInstallation) -> Self {
        let args = ["sim", "--listen", "127.0.0.1:0", "--accounts", "1", "--emails", "0", "--json"];
        let mut process = place.command(PROGRAM, &args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        let settings = said[provider.company()].as_object().unwrap().iter();
        let company = provider.company().to_uppercase();
        let name = |name: &str| format!("MAILROOM_PROVIDERS__{company}__{}", name.to_uppercase());
        let settings = settings.map(|(key, value)| (name(key), value.as_str().unwrap().to_owned())).collect();
        Self { provider, process, address: said["listening"].as_str().unwrap().parse().unwrap(), settings }
    }

    fn control(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [("Content-Type", "application/json")];
        let answer = send(
            self.address,
            method,
            &format!("/control/{}{path}", self.provider.company()),
            &headers,
            body.as_bytes(),
        );
        assert!((200..300).contains(&answer.status), "{path}: {answer:?}");
        serde_json::from_slice(&answer.body).unwrap_or_default()
    }

    /// What its owner's consent gives us.
    fn grant(&self) -> String {
        let granted = self.control("POST", &format!("/accounts/{}/grant", self.provider.account()), &json!({}));
        granted["refresh_token"].as_str().unwrap_or_else(|| panic!("{granted}")).to_owned()
    }

    fn deliver(&self) {
        self.control("POST", &format!("/accounts/{}/apply", self.provider.account()), &json!({"op": "deliver"}));
    }

    fn watches(&self) -> usize {
        let watches = match self.provider {
            PushProvider::Gmail => {
                self.control("GET", &format!("/accounts/{}/watches", self.provider.account()), &Value::Null)
            }
            PushProvider::Outlook => self.control("GET", "/subscriptions", &Value::Null),
        };
        watches["items"].as_array().unwrap().len()
    }
}

struct PushedServer<'a> {
    place: &'a TestInstallation,
    simulator: SimulatorProcess,
    address: SocketAddr,
    variables: Vec<(String, String)>,
}

impl<'a> PushedServer<'a> {
    fn new(provider: PushProvider, place: &'a TestInstallation) -> (Self, RunningProcess) {
        let simulator = SimulatorProcess::start(provider, place);
        let address = SocketAddr::from(([127, 0, 0, 1], closed_port()));
        let url = format!("http://{address}");
        let mut variables = simulator.settings.clone();
        let more = [
            ("SERVER__LISTEN", address.to_string()),
            ("SERVER__PUBLIC_URL", url.clone()),
            // Whatever comes in after the first look, a push has told of.
            ("SYNC__INTERVAL", "24h".to_owned()),
            ("PROVIDERS__GOOGLE__PUBSUB_TOPIC", "projects/mailroom-test/topics/gmail".to_owned()),
            ("PROVIDERS__GOOGLE__PUSH_SERVICE_ACCOUNT", "pusher@mailroom-test.iam.gserviceaccount.com".to_owned()),
        ];
        variables.extend(more.map(|(name, value)| (format!("MAILROOM_{name}"), value)));
        // More than one in a second would be dropped, as Google does it; then only the clock helps.
        if provider == PushProvider::Gmail {
            simulator.control("PUT", "/push", &json!({"url": format!("{url}/v1/hooks/gmail"), "rate_limit": false}));
        }
        let mut command = place.command(PROGRAM, &["serve"]);
        command.envs(variables.iter().cloned()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = RunningProcess::spawn(&mut command);
        wait_until("it answers", || TcpStream::connect(address).is_ok());
        (Self { place, simulator, address, variables }, server)
    }

    fn account(&self) -> &'static str {
        self.simulator.provider.account()
    }

    fn ok(&self, args: &[&str]) {
        let variables: Vec<(&str, &str)> = self.variables.iter().map(|(name, value)| (&**name, &**value)).collect();
        let done = self.place.run_with(&variables, args);
        assert_eq!(done.code, Some(0), "mailroom {args:?}: {done}");
    }

    fn connect(&self, tenant: &str) {
        self.place.ok(&["tenant", "create", tenant]);
        let file = self.place.write(&format!("token-{tenant}"), self.simulator.grant());
        let which =
            ["--tenant", tenant, "--address", self.account(), "--refresh-token-file", &file, "--backfill", "all"];
        self.ok(&[&["mailbox", "add", self.simulator.provider.provider()], &which[..]].concat());
    }

    fn push(&self, tenant: &str) -> Value {
        self.place.object(&["mailbox", "show", self.account(), "--tenant", tenant])["push"].clone()
    }

    /// What the API says of it, in both places.
    fn push_over_http(&self, tenant: &str) -> [Value; 2] {
        let made = self.place.object(&["key", "create", "--tenant", tenant, "--name", "test", "--scopes", "read"]);
        let bearer = format!("Bearer {}", made["key"].as_str().unwrap());
        let shown = self.place.object(&["mailbox", "show", self.account(), "--tenant", tenant]);
        let path = format!("/v1/mailboxes/{}", shown["mailbox"]["id"].as_str().unwrap());
        let get = |path: &str| ask(self.address, "GET", path, &[("Authorization", &bearer)]).json()["push"].clone();
        [get(&path), get(&format!("{path}/health"))]
    }

    fn emails(&self, tenant: &str) -> usize {
        self.place.objects(&["search", "", "--tenant", tenant, "--limit", "500"]).len()
    }
}

#[test]
fn gmail_pushes_reach_every_tenant_until_the_last_leaves() {
    on_each_database(|place| assert_pushed_until_the_last_leaves(PushProvider::Gmail, place));
}

#[test]
fn outlook_pushes_reach_every_tenant_until_the_last_leaves() {
    on_each_database(|place| assert_pushed_until_the_last_leaves(PushProvider::Outlook, place));
}

fn assert_pushed_until_the_last_leaves(provider: PushProvider, place: &TestInstallation) {
    let (scene, _server) = PushedServer::new(provider, place);
    scene.simulator.deliver();
    scene.connect("acme");
    wait_until("acme has what was there", || scene.emails("acme") == 1);
    wait_until("the provider is asked to push", || {
        scene.simulator.watches() == 1 && scene.push("acme")["state"] == "on"
    });
    scene.simulator.deliver();
    wait_until("what arrived has come", || scene.emails("acme") == 2);
    wait_until("that it was pushed shows", || scene.push("acme")["last_push_at"].is_string());

    for push in scene.push_over_http("acme") {
        assert_eq!((&push["state"], &push["reason"]), (&json!("on"), &Value::Null), "{push}");
        assert!(push["expires_at"].is_string() && push["last_push_at"].is_string(), "{push}");
    }

    scene.connect("beta");
    wait_until("beta has it too", || scene.emails("beta") == 2 && scene.push("beta")["state"] == "on");
    scene.simulator.deliver();
    wait_until("both are told", || scene.emails("acme") == 3 && scene.emails("beta") == 3);

    let left = |kind: &str| place.select(&format!("select kind from jobs where kind = '{kind}'")).len();
    let leave = |tenant: &str| {
        scene.ok(&["mailbox", "remove", scene.account(), "--tenant", tenant, "--yes"]);
        wait_until("it is let go", || left("stop_watch") + left("revoke_grant") == 0);
    };
    leave("acme");
    assert_eq!((scene.simulator.watches(), &scene.push("acme")["state"]), (1, &json!("off")));
    scene.simulator.deliver();
    wait_until("beta still is told", || scene.emails("beta") == 4);
    leave("beta");
    assert_eq!((scene.simulator.watches(), scene.emails("acme")), (0, 3));
    assert_eq!(place.select("select mailbox_id || '' from push_watches"), Vec::<String>::new());
    assert_eq!(place.select("select id || '' from secrets"), Vec::<String>::new(), "nothing opens it any more");
    assert_eq!(scene.simulator.control("GET", "/violations", &Value::Null)["items"], json!([]));
}
