//! `mailroom sim`, from its first line to its end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::installation::{PROGRAM, TestInstallation};

/// The simulated providers as a process, which ends with the test.
pub struct SimProcess {
    process: Child,
    /// What it prints when it starts.
    pub settings: Value,
}

impl SimProcess {
    /// Starts it on free ports.
    pub fn start(mailroom: &TestInstallation, args: &[&str]) -> Self {
        let args = [&["sim", "--listen", "127.0.0.1:0", "--json"], args].concat();
        let mut process =
            mailroom.command(PROGRAM, &args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Self { process, settings: serde_json::from_str(&line).unwrap() }
    }

    pub fn address(&self) -> &str {
        self.settings["listening"].as_str().unwrap()
    }

    /// Calls the control API, which must succeed.
    pub fn control(&self, method: &str, path: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} /control{path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 2"), "{reply}");
        serde_json::from_str(body).unwrap_or_default()
    }
}

impl Drop for SimProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn get(address: &str, path: &str) -> Value {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    serde_json::from_str(body).unwrap()
}

#[test]
fn simulated_providers_have_the_requested_accounts() {
    let mailroom = TestInstallation::sqlite();
    let args = ["--accounts", "2", "--emails", "7", "--organisations", "2", "--people", "60"];
    let mut sim = SimProcess::start(&mailroom, &args);
    let said = sim.settings.clone();
    let address = said["listening"].as_str().unwrap();

    let accounts = get(address, "/control/google/accounts");
    let google = get(address, "/control/google/accounts/user2@sim.example/truth");

    assert_eq!(said["control"], format!("http://{address}/control"));
    // The people of organisations have accounts too.
    let accounts = accounts["items"].as_array().unwrap().iter().map(|account| account["address"].as_str().unwrap());
    assert_eq!(accounts.filter(|address| address.ends_with("@sim.example")).count(), 2);
    assert_eq!(google["messages"].as_object().unwrap().len(), 7);
    let microsoft = get(address, "/control/microsoft/accounts/user2@contoso.example/truth");
    assert_eq!(microsoft["messages"].as_object().unwrap().len(), 7);
    let imap = get(address, "/control/imap/accounts/user2@imap.example/truth");
    let folders = imap["folders"].as_object().unwrap().values();
    assert_eq!(folders.map(|folder| folder["messages"].as_object().unwrap().len()).sum::<usize>(), 7);
    let jmap = get(address, "/control/jmap/accounts/user2@jmap.example/truth");
    assert_eq!(jmap["messages"].as_object().unwrap().len(), 7);
    assert_eq!(said["jmap"], format!("http://{address}"));
    let mut greeting = String::new();
    let stream = TcpStream::connect(said["imap"].as_str().unwrap()).unwrap();
    BufReader::new(stream).read_line(&mut greeting).unwrap();
    assert!(greeting.starts_with("* OK [CAPABILITY IMAP4rev1"), "{greeting}");
    for (provider, domain) in [("google", "sim.example"), ("microsoft", "contoso.example")] {
        let organisations = get(address, &format!("/control/{provider}/organisations"))["items"].clone();
        let domains: Vec<&Value> = organisations.as_array().unwrap().iter().map(|one| &one["domains"][0]).collect();
        let mut wanted = ["org1.example", "org2.example", domain];
        wanted.sort_unstable();
        assert_eq!(domains, wanted);
        let truth = get(address, &format!("/control/{provider}/organisations/org2.example/truth"));
        let people: Vec<&Value> = truth["people"].as_object().unwrap().values().collect();
        assert_eq!(people.len(), 60);
        for kind in ["is_suspended", "is_archived", "is_guest", "has_mailbox"] {
            assert!(people.iter().any(|person| person[kind] == true), "{kind}");
        }
    }
    assert_eq!(said["microsoft"]["authority_url"], format!("http://{address}"));
    let configuration = get(address, "/common/v2.0/.well-known/openid-configuration");
    assert_eq!(configuration["token_endpoint"], format!("http://{address}/common/oauth2/v2.0/token"));
    assert_eq!(said["google"]["token_url"], format!("http://{address}/token"));
    assert!(!mailroom.data_dir().join("mailroom.db").exists(), "it needs no database");
    let sent = Command::new("sh").args(["-c", &format!("kill -TERM {}", sim.process.id())]).status().unwrap();
    assert!(sent.success());
    assert_eq!(sim.process.wait().unwrap().code(), Some(0));
}

#[test]
fn mailbox_at_the_simulated_jmap_server_is_synced() {
    let mailroom = TestInstallation::sqlite();
    let sim = SimProcess::start(&mailroom, &["--accounts", "1", "--emails", "20"]);
    let password = mailroom.write("password", format!("{}\n", sim::jmap::JMAP_PASSWORD));
    let (url, address) = (sim.settings["jmap"].as_str().unwrap(), "user1@jmap.example");
    mailroom.ok(&["tenant", "create", "acme"]);

    let add = ["mailbox", "add", "jmap", "--tenant", "acme", "--address", address, "--backfill", "all"];
    mailroom.ok(&[&add[..], &["--url", url, "--password-file", &password]].concat());
    mailroom.ok(&["mailbox", "sync", address, "--tenant", "acme", "--wait"]);

    mailroom.ok(&["verify", "--tenant", "acme"]);
    assert_ne!(mailroom.select("select cast(count(*) as text) from emails"), ["0"]);
    assert_eq!(sim.control("GET", "/jmap/violations", "")["items"], serde_json::json!([]));
}

#[test]
fn taken_address_says_what_to_do() {
    let mailroom = TestInstallation::sqlite();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();

    mailroom.run(&["sim", "--listen", &address]).assert_refused(1, &["choose another address with --listen"]);
    let args = ["sim", "--listen", "127.0.0.1:0", "--imap-listen", &address];
    mailroom.run(&args).assert_refused(1, &["choose another address with --imap-listen"]);
}
