//! A running server hears of new mail at an IMAP server, long before it would look by itself.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Stdio;

use crate::imap_commands::{Add, place, plain_port};
use crate::place::{PROGRAM, Place};
use crate::processes::{Running, wait_until};

/// As the sender's server would.
fn deliver(user: &str, subject: &str) {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{}", plain_port())).unwrap();
    let message = format!("Subject: {subject}\r\n\r\nhello\r\n");
    let length = message.len();
    write!(stream, "a LOGIN {user} pw\r\nb APPEND INBOX {{{length}+}}\r\n{message}\r\nz LOGOUT\r\n").unwrap();
    let said: Vec<String> = BufReader::new(stream).lines().map_while(Result::ok).collect();
    assert!(said.iter().any(|line| line.starts_with("b OK")), "{said:?}");
}

fn has(place: &Place, subject: &str) -> bool {
    !place.select(&format!("select id from emails where subject = '{subject}'")).is_empty()
}

#[test]
fn new_mail_is_heard_of_and_the_mailbox_ends_up_equal() {
    let place = place();
    // A user that no other test has.
    let user = format!("heard-{}", place.select("select id from tenants")[0]);
    deliver(&user, "before");
    let added = Add::new(&place).with("--user", &user).with("--interval", "10h").with("--backfill", "all").run();
    assert_eq!(added.code, Some(0), "{added}");
    let mut command = place.command(PROGRAM, &["serve"]);
    command.env("MAILROOM_SERVER__LISTEN", "127.0.0.1:0");
    let server = Running::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
    wait_until("what was there is stored", || has(&place, "before"));

    for subject in ["first", "second"] {
        deliver(&user, subject);
        wait_until("it is heard of", || has(&place, subject));
    }
    wait_until("nothing is left to do", || place.run(&["verify", "--tenant", "acme"]).code == Some(0));
    server.terminate();
    assert_eq!(server.finish().code, Some(0));
}
