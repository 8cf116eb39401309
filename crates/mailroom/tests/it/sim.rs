//! `mailroom sim`, from its first line to its end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::place::{PROGRAM, Place};

/// Ends with the test, whatever becomes of it.
struct Sim(Child);

impl Drop for Sim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
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
fn a_simulated_provider_has_the_mailboxes_it_was_asked_for_until_it_is_stopped() {
    let place = Place::sqlite();
    let args = ["sim", "--listen", "127.0.0.1:0", "--accounts", "2", "--emails", "7", "--json"];
    let args = [&args[..], &["--organisations", "2", "--people", "60"]].concat();
    let mut sim = Sim(place.command(PROGRAM, &args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(sim.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    let address = said["listening"].as_str().unwrap();

    let accounts = get(address, "/control/accounts");
    let truth = get(address, "/control/accounts/box2@scripted.example/truth");
    let google = get(address, "/control/google/accounts/user2@sim.example/truth");

    assert_eq!(said["control"], format!("http://{address}/control"));
    assert_eq!(accounts["items"].as_array().unwrap().len(), 2);
    assert_eq!(accounts["items"][0]["token"], "token-1");
    let places = truth["folders"].as_object().unwrap().values().map(|f| f["places"].as_array().unwrap().len());
    assert_eq!(places.sum::<usize>(), 7);
    assert_eq!(google["messages"].as_object().unwrap().len(), 7);
    let microsoft = get(address, "/control/microsoft/accounts/user2@contoso.example/truth");
    assert_eq!(microsoft["messages"].as_object().unwrap().len(), 7);
    let imap = get(address, "/control/imap/accounts/user2@imap.example/truth");
    let folders = imap["folders"].as_object().unwrap().values();
    assert_eq!(folders.map(|folder| folder["messages"].as_object().unwrap().len()).sum::<usize>(), 7);
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
    assert!(!place.data_dir().join("mailroom.db").exists(), "it needs no database");
    let sent = Command::new("sh").args(["-c", &format!("kill -TERM {}", sim.0.id())]).status().unwrap();
    assert!(sent.success());
    assert_eq!(sim.0.wait().unwrap().code(), Some(0));
}

#[test]
fn an_address_that_is_taken_is_told_with_what_to_do() {
    let place = Place::sqlite();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();

    place.run(&["sim", "--listen", &address]).assert_refused(1, &["choose another address with --listen"]);
    let args = ["sim", "--listen", "127.0.0.1:0", "--imap-listen", &address];
    place.run(&args).assert_refused(1, &["choose another address with --imap-listen"]);
}
