//! `mailroom bench seed` and `bench api`: the copies are true, and every figure is there, whatever it is.

use std::net::SocketAddr;

use serde_json::Value;

use crate::installation::{PROGRAM, TestInstallation, on_each_database};
use crate::processes::{RunningProcess, wait_until};
use crate::servers::closed_port;

fn objects(mailroom: &TestInstallation, args: &[&str]) -> Vec<Value> {
    let done = mailroom.run(&[args, &["--json"]].concat());
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let text = String::from_utf8(done.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn subjects(mailroom: &TestInstallation, tenant: &str, query: &str) -> Vec<String> {
    let lines = objects(mailroom, &["search", query, "--tenant", tenant]);
    lines.iter().map(|line| line["subject"].to_string()).collect()
}

#[test]
fn each_tenant_sees_its_copied_mail() {
    on_each_database(|mailroom| {
        let keys = mailroom.path("keys").into_os_string().into_string().unwrap();
        let seeded = objects(mailroom, &["bench", "seed", "--emails", "360", "--tenants", "3", "--keys", &keys]);
        assert_eq!((&seeded[0]["emails"], &seeded[0]["tenants"]), (&Value::from(360), &Value::from(3)));
        for query in ["", "from:test", "\"of the\"", "label:inbox", "has:attachment"] {
            let first = subjects(mailroom, "tenant-1", query);
            for tenant in ["tenant-2", "tenant-3"] {
                assert_eq!(subjects(mailroom, tenant, query), first, "{query}");
            }
        }
        assert_eq!(subjects(mailroom, "tenant-3", "").len(), 120);
        let address = SocketAddr::from(([127, 0, 0, 1], closed_port()));
        let mut serve = mailroom.command(PROGRAM, &["serve"]);
        serve.env("MAILROOM_SERVER__LISTEN", address.to_string()).env("MAILROOM_LOG__LEVEL", "warn");
        let server = RunningProcess::start(&mut serve);
        wait_until("it listens", || std::net::TcpStream::connect(address).is_ok());

        let url = format!("http://{address}");
        let short = ["--rate", "12", "--search-rate", "6", "--seconds", "1", "--clients", "20", "--noisy"];
        let what =
            ["bench", "api", "--url", &url, "--keys", &keys, "--name", "it", "--what", "health,mixed,search,sse"];
        let figures = objects(mailroom, &[&what[..], &short].concat());

        drop(server);
        let names: Vec<&str> = figures.iter().map(|figures| figures["name"].as_str().unwrap()).collect();
        for name in ["it, health", "it, mixed: whole email", "it, search: no hit", "it, 20 followers"] {
            assert!(names.contains(&name), "{names:?}");
        }
        assert!(names.contains(&"it, mixed: list, beside the noisy tenant"), "{names:?}");
        for figures in &figures {
            assert_eq!(figures["errors"], 0, "{figures}");
            // The noisy one is refused more than it may ask for.
            let is_refused = figures["refused"].as_u64().is_some_and(|refused| refused > 0);
            assert!(is_refused || figures["p99_ms"].as_f64().is_some_and(|p99| p99 > 0.0), "{figures}");
        }
    });
}
