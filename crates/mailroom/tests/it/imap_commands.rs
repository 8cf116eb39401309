//! Mailboxes at an IMAP server, as people connect them: what is wrong is told in a sentence, and leaves nothing behind.
//!
//! `make test` starts a Dovecot and names it in MAILROOM_TEST_IMAP_URL, and its folder, with its authority and the port
//! for TLS, in MAILROOM_TEST_IMAP_DIR.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::place::{Done, PROGRAM, Place};
use crate::servers::closed_port;

/// Any user may log in with this.
const DOVECOTS_PASSWORD: &str = "pw";

pub fn plain_port() -> String {
    let url = variable("MAILROOM_TEST_IMAP_URL");
    url.trim_end_matches('/').rsplit(':').next().unwrap().to_owned()
}

fn in_dovecots_folder(file: &str) -> String {
    format!("{}/{file}", variable("MAILROOM_TEST_IMAP_DIR"))
}

fn tls_port() -> String {
    std::fs::read_to_string(in_dovecots_folder("imaps-port")).unwrap().trim().to_owned()
}

fn variable(name: &str) -> String {
    #[expect(clippy::disallowed_methods, reason = "the tests' servers are named in the environment")]
    let value = std::env::var(name);
    value.unwrap_or_else(|_| panic!("{name} is not set; scripts/services/dovecot.sh starts a Dovecot"))
}

/// A server that speaks a line to everyone who connects, and then answers what it is asked for.
fn server(greeting: &'static str, answer: impl Fn(&str, &str) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Who hangs up has heard enough.
            let _ = speak(stream, greeting, &answer);
        }
    });
    port.to_string()
}

fn speak(mut stream: TcpStream, greeting: &str, answer: impl Fn(&str, &str) -> String) -> std::io::Result<()> {
    stream.write_all(greeting.as_bytes())?;
    for line in BufReader::new(stream.try_clone()?).lines() {
        let line = line?;
        let (tag, command) = line.split_once(' ').unwrap_or(("*", ""));
        stream.write_all(answer(tag, command).as_bytes())?;
    }
    Ok(())
}

pub struct Add<'a> {
    place: &'a Place,
    args: Vec<String>,
}

impl<'a> Add<'a> {
    /// To the Dovecot, in the open, with the right password.
    pub fn new(place: &'a Place) -> Self {
        let password = place.write("password", format!("{DOVECOTS_PASSWORD}\n"));
        let args = ["--tenant", "acme", "--address", "ann@acme.test", "--host", "127.0.0.1", "--tls", "none"];
        let args = ["mailbox", "add", "imap"].into_iter().chain(args).map(str::to_owned).collect();
        Self { place, args }.with("--port", &plain_port()).with("--password-file", &password)
    }

    pub fn with(mut self, key: &str, value: &str) -> Self {
        match self.args.iter().position(|arg| arg == key) {
            Some(at) => self.args[at + 1] = value.to_owned(),
            None => self.args.extend([key.to_owned(), value.to_owned()]),
        }
        self
    }

    fn and(mut self, flag: &str) -> Self {
        self.args.push(flag.to_owned());
        self
    }

    fn without(mut self, key: &str) -> Self {
        let at = self.args.iter().position(|arg| arg == key).unwrap();
        self.args.drain(at..at + 2);
        self
    }

    fn args(&self) -> Vec<&str> {
        self.args.iter().map(String::as_str).collect()
    }

    pub fn run(&self) -> Done {
        self.place.run(&self.args())
    }

    fn run_with_input(&self, input: &str) -> Done {
        let mut command = self.place.command(PROGRAM, &self.args());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        Done::new(output.status.code(), output.stdout, &output.stderr)
    }

    /// It is refused in one sentence.
    fn refused(self, code: i32, says: &[&str]) {
        self.run().assert_refused(code, says);
    }
}

pub fn place() -> Place {
    let place = Place::sqlite();
    place.ok(&["tenant", "create", "acme"]);
    place
}

fn assert_nothing_is_left(place: &Place) {
    assert!(place.objects(&["mailbox", "list"]).is_empty());
    assert!(place.select("select id from secrets").is_empty());
    assert!(place.select("select id from jobs where kind = 'sync_mailbox'").is_empty());
}

const MEND: &str = "mend that, or add it with --no-check";

#[test]
fn a_server_that_cannot_be_used_is_told_in_a_sentence_and_leaves_nothing() {
    let place = place();
    let add = || Add::new(&place);
    let closed = closed_port().to_string();
    let smtp = server("220 mail.acme.test ESMTP\r\n", |_, _| "500 what?\r\n".to_owned());
    let without_inbox = server("* OK hello\r\n", |tag, command| match command {
        "CAPABILITY" => format!("* CAPABILITY IMAP4rev1\r\n{tag} OK done\r\n"),
        list if list.starts_with("LIST") => format!("* LIST (\\Noselect) \"/\" Public\r\n{tag} OK done\r\n"),
        _ => format!("{tag} OK done\r\n"),
    });
    let busy = server("* BYE [UNAVAILABLE] not today\r\n", |_, _| String::new());
    let wrong = place.write("wrong", "hunter2");

    add()
        .with("--host", "mail..acme")
        .with("--tls", "implicit")
        .refused(1, &["cannot use ann@acme.test: there is no server called mail..acme", MEND]);
    add()
        .with("--port", &closed)
        .refused(1, &[&format!("nothing listens at 127.0.0.1:{closed}: check the port"), MEND]);
    add().with("--port", &smtp).refused(1, &["does not speak IMAP", "the greeting of an SMTP or FTP server", MEND]);
    add().with("--port", &busy).refused(1, &["cannot serve us at the moment", "not today", MEND]);
    add().with("--port", &without_inbox).refused(1, &["has no INBOX", MEND]);
    add().with("--password-file", &wrong).refused(1, &["refuses the user name or the password", MEND]);
    add().with("--tls", "implicit").refused(1, &["does not speak TLS on this port", "usually 993", MEND]);
    let by_tls = || add().with("--tls", "implicit").with("--host", "localhost").with("--port", &tls_port());
    by_tls().refused(1, &["certificate is signed by nobody we trust", "name the authority", MEND]);
    // Another address of this machine, which is not in the certificate.
    let elsewhere = forward("127.0.0.2:0", &format!("127.0.0.1:{}", tls_port()));
    by_tls()
        .with("--host", "127.0.0.2")
        .with("--port", &elsewhere)
        .with("--ca-file", &in_dovecots_folder("ca.pem"))
        .refused(1, &["certificate is for another name", MEND]);

    assert_nothing_is_left(&place);
}

/// Passes everything on, both ways.
fn forward(from: &str, to: &str) -> String {
    let listener = TcpListener::bind(from).unwrap();
    let port = listener.local_addr().unwrap().port();
    let to = to.to_owned();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let far = TcpStream::connect(&to).unwrap();
            for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        }
    });
    port.to_string()
}

#[test]
fn wrong_usage_is_told_in_a_sentence_and_nobody_is_called() {
    let place = place();
    let add = || Add::new(&place);
    let (none, text) = (place.write("none", "\n"), place.write("text", "no certificate"));

    add().with("--tenant", "nobody").refused(1, &["there is no tenant \"nobody\"", "tenant list"]);
    add().with("--address", "nothing").refused(2, &["is not an address"]);
    add().with("--host", "imap.acme.test").refused(2, &["to imap.acme.test in the open", "--allow-plaintext"]);
    add().with("--password-file", "/does/not/exist").refused(1, &["cannot read the secret"]);
    add().with("--password-file", &none).refused(1, &["is empty, but should hold a secret"]);
    add().without("--password-file").refused(2, &["there is no password", "--password-file", "standard input"]);
    add().with("--ca-file", &text).refused(1, &["has no certificate in it", "PEM"]);
    add().with("--ca-file", "/does/not/exist").refused(1, &["cannot read the certificate"]);
    for nonsense in ["much", "50", "1.5 GB", "", "5000 GiB", "99999999999999999999 GB"] {
        add().with("--bytes-per-day", nonsense).refused(2, &["--bytes-per-day wants a size like \"500 MB\""]);
    }
    add().with("--backfill", "soon").refused(2, &["--backfill wants all, none or a duration"]);
    let both = add().with("--token-file", &none).run();
    assert_eq!(both.code, Some(2), "{both}");
    both.assert_tells("cannot be used with");
    assert_eq!(add().with("--port", "0").run().code, Some(2));

    assert_nothing_is_left(&place);
}

#[test]
fn a_mailbox_is_connected_by_each_kind_of_tls_and_its_password_is_nowhere_to_be_seen() {
    let place = place();
    let add = |address: &str| Add::new(&place).with("--address", address);
    let authority = in_dovecots_folder("ca.pem");
    let secured = |address: &str, how: &str, port: &str| {
        add(address).with("--tls", how).with("--host", "localhost").with("--port", port).with("--ca-file", &authority)
    };

    for connected in [
        add("plain@acme.test"),
        secured("implicit@acme.test", "implicit", &tls_port()),
        secured("upgraded@acme.test", "starttls", &plain_port()),
        add("unseen@acme.test").with("--port", &closed_port().to_string()).and("--no-check"),
    ] {
        let done = connected.run();
        assert_eq!(done.code, Some(0), "{done}");
    }
    let typed = add("typed@acme.test").without("--password-file").run_with_input("pw\n");
    assert_eq!(typed.code, Some(0), "{typed}");
    add("plain@acme.test").refused(1, &["has a mailbox plain@acme.test already"]);

    let mailboxes = place.objects(&["mailbox", "list"]);
    assert_eq!(mailboxes.len(), 5);
    let implicit = mailboxes.iter().find(|mailbox| mailbox["address"] == "implicit@acme.test").unwrap();
    let connection = &implicit["settings"]["connection"];
    assert_eq!((&connection["tls"], &connection["user"]), (&"implicit".into(), &"implicit@acme.test".into()));
    assert!(connection["authority"].as_str().unwrap().contains("BEGIN CERTIFICATE"));
    assert_eq!(connection.get("password"), None);
    assert_eq!(place.select("select id from secrets").len(), 5);
    assert_eq!(place.select("select id from jobs where kind = 'sync_mailbox'").len(), 5);
}

#[test]
fn a_mailbox_shows_how_much_it_may_fetch_in_a_day() {
    let place = place();
    let add = |address: &str| Add::new(&place).with("--address", address).and("--no-check");
    let gmail = |address: &str| add(address).with("--tls", "implicit").with("--host", "imap.gmail.com");
    for added in [
        add("any@acme.test"),
        add("own@acme.test").with("--bytes-per-day", "500 MB"),
        gmail("gmail@acme.test"),
        gmail("free@acme.test").with("--bytes-per-day", "0 B"),
    ] {
        let done = added.run();
        assert_eq!(done.code, Some(0), "{done}");
    }

    let shown = |address: &str| place.object(&["mailbox", "show", address, "--tenant", "acme"]);
    assert_eq!(shown("any@acme.test")["bytes_per_day"], Value::Null);
    assert_eq!(shown("own@acme.test")["bytes_per_day"], 500_000_000);
    assert_eq!(shown("own@acme.test")["mailbox"]["settings"]["bytes_per_day"], 500_000_000);
    assert_eq!(shown("gmail@acme.test")["bytes_per_day"], 2_000_000_000_u64);
    assert_eq!(shown("free@acme.test")["bytes_per_day"], Value::Null);
    let with = |variables: &[(&str, &str)], address: &str| {
        let done = place.run_with(variables, &["mailbox", "show", address, "--tenant", "acme"]);
        done.text().lines().find(|line| line.contains("fetches at most")).map(str::to_owned)
    };
    assert_eq!(with(&[], "any@acme.test"), None);
    assert_eq!(with(&[], "own@acme.test").unwrap(), "fetches at most 500.0 MB a day");
    let for_all = [("MAILROOM_PROVIDERS__IMAP__BYTES_PER_DAY", "3 GB")];
    assert_eq!(with(&for_all, "any@acme.test").unwrap(), "fetches at most 3.0 GB a day");
    assert_eq!(with(&for_all, "gmail@acme.test").unwrap(), "fetches at most 3.0 GB a day");
    assert_eq!(with(&for_all, "own@acme.test").unwrap(), "fetches at most 500.0 MB a day");
    assert_eq!(with(&for_all, "free@acme.test"), None);
}

#[test]
fn a_mailbox_that_is_paused_for_a_while_shows_until_when_and_why() {
    let place = place();
    for address in ["ann@acme.test", "bob@acme.test"] {
        let done = Add::new(&place).with("--address", address).and("--no-check").run();
        assert_eq!(done.code, Some(0), "{done}");
    }
    let pause = |until: &str| {
        place.sql(&format!(
            "update sync_states set paused_until = '{until}', paused_reason = 'its server asked to wait'
             where mailbox_id = (select id from mailboxes where address = 'ann@acme.test')"
        ));
    };
    let sentence = "paused until 2999-11-15 14:05 UTC: its server asked to wait";
    let show = ["mailbox", "show", "ann@acme.test", "--tenant", "acme"];
    let told = || {
        let (list, show) = (place.ok(&["mailbox", "list"]).text(), place.ok(&show).text());
        (list.matches(sentence).count(), show.lines().filter(|line| *line == sentence).count())
    };
    let paused = || {
        let listed = place.objects(&["mailbox", "list"]).into_iter().find(|one| one["address"] == "ann@acme.test");
        let (listed, shown) = (listed.unwrap()["paused"].clone(), place.object(&show)["sync"]["paused"].clone());
        assert_eq!(listed, shown);
        shown
    };

    assert_eq!((told(), paused()), ((0, 0), Value::Null));
    pause("2999-11-15T14:05:00.000Z");
    assert_eq!(told(), (1, 1));
    assert_eq!(paused(), json!({"until": "2999-11-15T14:05:00Z", "reason": "its server asked to wait"}));
    pause("2020-11-15T14:05:00.000Z");
    assert_eq!((told(), paused()), ((0, 0), Value::Null), "it is over");
}

#[test]
fn a_new_password_is_tried_before_the_old_one_is_forgotten() {
    let place = place();
    let done = Add::new(&place).run();
    assert_eq!(done.code, Some(0), "{done}");
    let resume =
        |more: &[&str]| place.run(&[&["mailbox", "resume", "ann@acme.test", "--tenant", "acme"], more].concat());
    let (right, wrong) = (place.write("right", "pw"), place.write("wrong", "hunter2"));
    let state = || {
        let shown = place.object(&["mailbox", "show", "ann@acme.test", "--tenant", "acme"]);
        shown["mailbox"]["state"].as_str().unwrap().to_owned()
    };
    place.sql("update mailboxes set state = 'needs_reauth', state_reason = 'the password was refused'");

    resume(&["--password-file", &wrong]).assert_refused(1, &["refuses the user name or the password", "nothing was"]);
    resume(&["--token-file", &right]).assert_refused(2, &["was connected with a password", "--password-file"]);
    assert_eq!(state(), "needs_reauth");
    let resumed = resume(&["--password-file", &right]);
    assert_eq!(resumed.code, Some(0), "{resumed}");
    assert_eq!(state(), "active");
}
