//! A running server hears of new mail at an IMAP server, long before it would look by itself.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Stdio;

use crate::imap_commands::{AddImapCommand, installation_with_acme, plain_port};
use crate::installation::{PROGRAM, TestInstallation};
use crate::processes::{RunningProcess, wait_until};

/// Delivers a message, as the sender's server does.
fn deliver(user: &str, subject: &str) {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{}", plain_port())).unwrap();
    let message = format!("Subject: {subject}\r\n\r\nhello\r\n");
    let length = message.len();
    write!(stream, "a LOGIN {user} pw\r\nb APPEND INBOX {{{length}+}}\r\n{message}\r\nz LOGOUT\r\n").unwrap();
    let said: Vec<String> = BufReader::new(stream).lines().map_while(Result::ok).collect();
    assert!(said.iter().any(|line| line.starts_with("b OK")), "{said:?}");
}

fn has(mailroom: &TestInstallation, subject: &str) -> bool {
    !mailroom.select(&format!("select id from emails where subject = '{subject}'")).is_empty()
}

#[test]
fn idle_brings_new_mail() {
    let mailroom = installation_with_acme();
    // A user that no other test has.
    let user = format!("heard-{}", mailroom.select("select id from tenants")[0]);
    deliver(&user, "before");
    let added =
        AddImapCommand::new(&mailroom).with("--user", &user).with("--interval", "10h").with("--backfill", "all").run();
    assert_eq!(added.code, Some(0), "{added}");
    let mut command = mailroom.command(PROGRAM, &["serve"]);
    command.env("MAILROOM_SERVER__LISTEN", "127.0.0.1:0");
    let server = RunningProcess::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
    wait_until("what was there is stored", || has(&mailroom, "before"));

    for subject in ["first", "second"] {
        deliver(&user, subject);
        wait_until("it is heard of", || has(&mailroom, subject));
    }
    wait_until("nothing is left to do", || mailroom.run(&["verify", "--tenant", "acme"]).code == Some(0));
    server.terminate();
    assert_eq!(server.finish().code, Some(0));
}
