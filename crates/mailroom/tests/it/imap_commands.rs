//! `mailbox add imap` and its siblings: a problem is one sentence and leaves nothing behind.
//!
//! `make test` starts a Dovecot and names it in MAILROOM_TEST_IMAP_URL, and its folder, with its authority and the port
//! for TLS, in MAILROOM_TEST_IMAP_DIR.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::installation::{CommandOutput, PROGRAM, TestInstallation};
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

/// Starts a server that greets each connection with a line, then answers each command. Returns its port.
fn server(greeting: &'static str, answer: impl Fn(&str, &str) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // The client may hang up at any time.
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

/// The arguments of `mailbox add imap`.
#[derive(Clone)]
pub struct AddImapCommand<'a> {
    mailroom: &'a TestInstallation,
    args: Vec<String>,
}

impl<'a> AddImapCommand<'a> {
    /// Adds a mailbox of the Dovecot, without TLS, with the right password.
    pub fn new(mailroom: &'a TestInstallation) -> Self {
        let password = mailroom.write("password", format!("{DOVECOTS_PASSWORD}\n"));
        let args = ["--tenant", "acme", "--address", "ann@acme.test", "--host", "127.0.0.1", "--tls", "none"];
        let args = ["mailbox", "add", "imap"].into_iter().chain(args).map(str::to_owned).collect();
        Self { mailroom, args }.with("--port", &plain_port()).with("--password-file", &password)
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

    pub fn run(&self) -> CommandOutput {
        self.mailroom.run(&self.args())
    }

    fn run_with_input(&self, input: &str) -> CommandOutput {
        let mut command = self.mailroom.command(PROGRAM, &self.args());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        CommandOutput::new(output.status.code(), output.stdout, &output.stderr)
    }

    /// Runs it, and fails unless it is refused in one sentence.
    fn refused(self, code: i32, says: &[&str]) {
        self.run().assert_refused(code, says);
    }
}

pub fn installation_with_acme() -> TestInstallation {
    let mailroom = TestInstallation::sqlite();
    mailroom.ok(&["tenant", "create", "acme"]);
    mailroom
}

fn assert_nothing_is_left(mailroom: &TestInstallation) {
    assert!(mailroom.objects(&["mailbox", "list"]).is_empty());
    assert!(mailroom.select("select id from secrets").is_empty());
    assert!(mailroom.select("select id from jobs where kind = 'sync_mailbox'").is_empty());
}

const NO_CHECK_HINT: &str = "fix that, or add it with --no-check";

#[test]
fn unusable_server_leaves_no_mailbox() {
    let mailroom = installation_with_acme();
    let closed = closed_port().to_string();
    let smtp = server("220 mail.acme.test ESMTP\r\n", |_, _| "500 what?\r\n".to_owned());
    let without_inbox = server("* OK hello\r\n", |tag, command| match command {
        "CAPABILITY" => format!("* CAPABILITY IMAP4rev1\r\n{tag} OK done\r\n"),
        list if list.starts_with("LIST") => format!("* LIST (\\Noselect) \"/\" Public\r\n{tag} OK done\r\n"),
        _ => format!("{tag} OK done\r\n"),
    });
    let busy = server("* BYE [UNAVAILABLE] not today\r\n", |_, _| String::new());
    let wrong = mailroom.write("wrong", "hunter2");

    AddImapCommand::new(&mailroom)
        .with("--host", "mail..acme")
        .with("--tls", "implicit")
        .refused(1, &["cannot open ann@acme.test: there is no server called mail..acme", NO_CHECK_HINT]);
    AddImapCommand::new(&mailroom)
        .with("--port", &closed)
        .refused(1, &[&format!("nothing listens at 127.0.0.1:{closed}: check the port"), NO_CHECK_HINT]);
    AddImapCommand::new(&mailroom)
        .with("--port", &smtp)
        .refused(1, &["does not speak IMAP", "the greeting of an SMTP or FTP server", NO_CHECK_HINT]);
    AddImapCommand::new(&mailroom)
        .with("--port", &busy)
        .refused(1, &["cannot serve us at the moment", "not today", NO_CHECK_HINT]);
    AddImapCommand::new(&mailroom).with("--port", &without_inbox).refused(1, &["has no INBOX", NO_CHECK_HINT]);
    AddImapCommand::new(&mailroom)
        .with("--password-file", &wrong)
        .refused(1, &["refuses the user name or the password", NO_CHECK_HINT]);
    AddImapCommand::new(&mailroom)
        .with("--tls", "implicit")
        .refused(1, &["does not speak TLS on this port", "usually 993", NO_CHECK_HINT]);
    let by_tls = AddImapCommand::new(&mailroom)
        .with("--tls", "implicit")
        .with("--host", "localhost")
        .with("--port", &tls_port());
    by_tls.clone().refused(1, &["certificate is not signed by a trusted authority", "--ca-file", NO_CHECK_HINT]);
    // Another address of this machine, which is not in the certificate.
    let elsewhere = forward("127.0.0.2:0", &format!("127.0.0.1:{}", tls_port()));
    by_tls
        .clone()
        .with("--host", "127.0.0.2")
        .with("--port", &elsewhere)
        .with("--ca-file", &in_dovecots_folder("ca.pem"))
        .refused(1, &["certificate is for another name", NO_CHECK_HINT]);

    assert_nothing_is_left(&mailroom);
}

/// Forwards connections to another address. Returns the port.
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
fn wrong_usage_calls_no_server() {
    let mailroom = installation_with_acme();
    let (none, text) = (mailroom.write("none", "\n"), mailroom.write("text", "no certificate"));

    AddImapCommand::new(&mailroom)
        .with("--tenant", "nobody")
        .refused(1, &["there is no tenant \"nobody\"", "tenant list"]);
    AddImapCommand::new(&mailroom).with("--address", "nothing").refused(2, &["must be an email address"]);
    AddImapCommand::new(&mailroom)
        .with("--host", "imap.acme.test")
        .refused(2, &["would be sent unencrypted", "--allow-plaintext"]);
    AddImapCommand::new(&mailroom).with("--password-file", "/does/not/exist").refused(1, &["cannot read the secret"]);
    AddImapCommand::new(&mailroom).with("--password-file", &none).refused(1, &["is empty, but must contain a secret"]);
    AddImapCommand::new(&mailroom)
        .without("--password-file")
        .refused(2, &["a password is required", "--password-file", "standard input"]);
    AddImapCommand::new(&mailroom)
        .with("--ca-file", &text)
        .refused(1, &["--ca-file must contain a certificate in PEM"]);
    AddImapCommand::new(&mailroom).with("--ca-file", "/does/not/exist").refused(1, &["cannot read the certificate"]);
    AddImapCommand::new(&mailroom)
        .with("--bytes-per-day", "5000 GiB")
        .refused(2, &["--bytes-per-day must be at most 1099511627776 bytes"]);
    for nonsense in ["much", "50", "1.5 GB", "", "99999999999999999999 GB"] {
        AddImapCommand::new(&mailroom)
            .with("--bytes-per-day", nonsense)
            .refused(2, &["--bytes-per-day must be a size such as \"500 MB\""]);
    }
    AddImapCommand::new(&mailroom)
        .with("--backfill", "soon")
        .refused(2, &["--backfill must be all, none or a duration"]);
    let both = AddImapCommand::new(&mailroom).with("--token-file", &none).run();
    assert_eq!(both.code, Some(2), "{both}");
    both.assert_tells("cannot be used with");
    assert_eq!(AddImapCommand::new(&mailroom).with("--port", "0").run().code, Some(2));

    assert_nothing_is_left(&mailroom);
}

#[test]
fn each_kind_of_tls_connects_a_mailbox() {
    let mailroom = installation_with_acme();
    let authority = in_dovecots_folder("ca.pem");
    let add = AddImapCommand::new(&mailroom);
    let secured = add.clone().with("--host", "localhost").with("--ca-file", &authority);

    for connected in [
        add.clone().with("--address", "plain@acme.test"),
        secured.clone().with("--address", "implicit@acme.test").with("--tls", "implicit").with("--port", &tls_port()),
        secured.with("--address", "upgraded@acme.test").with("--tls", "starttls").with("--port", &plain_port()),
        add.clone().with("--address", "unseen@acme.test").with("--port", &closed_port().to_string()).and("--no-check"),
    ] {
        let done = connected.run();
        assert_eq!(done.code, Some(0), "{done}");
    }
    let typed = add.clone().with("--address", "typed@acme.test").without("--password-file").run_with_input("pw\n");
    assert_eq!(typed.code, Some(0), "{typed}");
    add.with("--address", "plain@acme.test").refused(1, &["already has a mailbox plain@acme.test"]);

    let mailboxes = mailroom.objects(&["mailbox", "list"]);
    assert_eq!(mailboxes.len(), 5);
    let implicit = mailboxes.iter().find(|mailbox| mailbox["address"] == "implicit@acme.test").unwrap();
    let connection = &implicit["settings"]["connection"];
    assert_eq!((&connection["tls"], &connection["user"]), (&"implicit".into(), &"implicit@acme.test".into()));
    assert!(connection["authority"].as_str().unwrap().contains("BEGIN CERTIFICATE"));
    assert_eq!(connection.get("password"), None);
    assert_eq!(mailroom.select("select id from secrets").len(), 5);
    assert_eq!(mailroom.select("select id from jobs where kind = 'sync_mailbox'").len(), 5);
}

fn show(mailroom: &TestInstallation, address: &str) -> Value {
    mailroom.object(&["mailbox", "show", address, "--tenant", "acme"])
}

/// What `mailbox show` says to people about bytes per day.
fn byte_limit_line(mailroom: &TestInstallation, variables: &[(&str, &str)], address: &str) -> Option<String> {
    let done = mailroom.run_with(variables, &["mailbox", "show", address, "--tenant", "acme"]);
    done.text().lines().find(|line| line.contains("fetches at most")).map(str::to_owned)
}

#[test]
fn mailbox_shows_its_bytes_per_day() {
    let mailroom = installation_with_acme();
    let add = AddImapCommand::new(&mailroom).and("--no-check");
    let gmail = add.clone().with("--tls", "implicit").with("--host", "imap.gmail.com");
    for added in [
        add.clone().with("--address", "any@acme.test"),
        add.with("--address", "own@acme.test").with("--bytes-per-day", "500 MB"),
        gmail.clone().with("--address", "gmail@acme.test"),
        gmail.with("--address", "free@acme.test").with("--bytes-per-day", "0 B"),
    ] {
        let done = added.run();
        assert_eq!(done.code, Some(0), "{done}");
    }

    assert_eq!(show(&mailroom, "any@acme.test")["bytes_per_day"], Value::Null);
    assert_eq!(show(&mailroom, "own@acme.test")["bytes_per_day"], 500_000_000);
    assert_eq!(show(&mailroom, "own@acme.test")["mailbox"]["settings"]["bytes_per_day"], 500_000_000);
    assert_eq!(show(&mailroom, "gmail@acme.test")["bytes_per_day"], 2_000_000_000_u64);
    assert_eq!(show(&mailroom, "free@acme.test")["bytes_per_day"], Value::Null);
    assert_eq!(byte_limit_line(&mailroom, &[], "any@acme.test"), None);
    assert_eq!(byte_limit_line(&mailroom, &[], "own@acme.test").unwrap(), "fetches at most 500.0 MB a day");
    let for_all = [("MAILROOM_PROVIDERS__IMAP__BYTES_PER_DAY", "3 GB")];
    assert_eq!(byte_limit_line(&mailroom, &for_all, "any@acme.test").unwrap(), "fetches at most 3.0 GB a day");
    assert_eq!(byte_limit_line(&mailroom, &for_all, "gmail@acme.test").unwrap(), "fetches at most 3.0 GB a day");
    assert_eq!(byte_limit_line(&mailroom, &for_all, "own@acme.test").unwrap(), "fetches at most 500.0 MB a day");
    assert_eq!(byte_limit_line(&mailroom, &for_all, "free@acme.test"), None);
}

#[test]
fn mailbox_shows_its_last_new_message() {
    let mailroom = installation_with_acme();
    let done = AddImapCommand::new(&mailroom).with("--address", "ann@acme.test").and("--no-check").run();
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(show(&mailroom, "ann@acme.test")["sync"]["last_message_id"], Value::Null);

    mailroom.sql("update sync_states set last_message_id = '7.41'");

    assert_eq!(show(&mailroom, "ann@acme.test")["sync"]["last_message_id"], "7.41");
    let shown = mailroom.ok(&["mailbox", "show", "ann@acme.test", "--tenant", "acme"]).text();
    assert!(shown.lines().any(|line| line == "last new message: 7.41"), "{shown}");
}

fn pause_until(mailroom: &TestInstallation, until: &str) {
    mailroom.sql(&format!(
        "update sync_states set paused_until = '{until}', paused_reason = 'the provider asked to wait'
         where mailbox_id = (select id from mailboxes where address = 'ann@acme.test')"
    ));
}

/// How often `mailbox list` and `mailbox show` say to people that a mailbox is paused until 2999.
fn count_pauses(mailroom: &TestInstallation) -> (usize, usize) {
    let sentence = "paused until 2999-11-15 14:05 UTC: the provider asked to wait";
    let list = mailroom.ok(&["mailbox", "list"]).text();
    let shown = mailroom.ok(&["mailbox", "show", "ann@acme.test", "--tenant", "acme"]).text();
    (list.matches(sentence).count(), shown.lines().filter(|line| *line == sentence).count())
}

/// The pause of the mailbox in JSON, which is the same in list and show.
fn shown_pause(mailroom: &TestInstallation) -> Value {
    let mut listed = mailroom.objects(&["mailbox", "list"]).into_iter();
    let listed = listed.find(|mailbox| mailbox["address"] == "ann@acme.test").unwrap()["paused"].clone();
    assert_eq!(listed, show(mailroom, "ann@acme.test")["sync"]["paused"]);
    listed
}

#[test]
fn paused_mailbox_shows_until_when_and_why() {
    let mailroom = installation_with_acme();
    for address in ["ann@acme.test", "bob@acme.test"] {
        let done = AddImapCommand::new(&mailroom).with("--address", address).and("--no-check").run();
        assert_eq!(done.code, Some(0), "{done}");
    }

    assert_eq!((count_pauses(&mailroom), shown_pause(&mailroom)), ((0, 0), Value::Null));
    pause_until(&mailroom, "2999-11-15T14:05:00.000Z");
    assert_eq!(count_pauses(&mailroom), (1, 1));
    let expected = json!({"until": "2999-11-15T14:05:00Z", "reason": "the provider asked to wait"});
    assert_eq!(shown_pause(&mailroom), expected);
    pause_until(&mailroom, "2020-11-15T14:05:00.000Z");
    assert_eq!((count_pauses(&mailroom), shown_pause(&mailroom)), ((0, 0), Value::Null), "it is over");
}

fn resume(mailroom: &TestInstallation, args: &[&str]) -> CommandOutput {
    mailroom.run(&[&["mailbox", "resume", "ann@acme.test", "--tenant", "acme"], args].concat())
}

#[test]
fn new_password_is_checked_before_it_is_stored() {
    let mailroom = installation_with_acme();
    let done = AddImapCommand::new(&mailroom).run();
    assert_eq!(done.code, Some(0), "{done}");
    let (right, wrong) = (mailroom.write("right", "pw"), mailroom.write("wrong", "hunter2"));
    mailroom.sql("update mailboxes set state = 'needs_reauth', state_reason = 'the password was refused'");

    resume(&mailroom, &["--password-file", &wrong])
        .assert_refused(1, &["refuses the user name or the password", "nothing was"]);
    resume(&mailroom, &["--token-file", &right])
        .assert_refused(2, &["is connected with a password", "--password-file"]);
    assert_eq!(show(&mailroom, "ann@acme.test")["mailbox"]["state"], "needs_reauth");
    let resumed = resume(&mailroom, &["--password-file", &right]);
    assert_eq!(resumed.code, Some(0), "{resumed}");
    assert_eq!(show(&mailroom, "ann@acme.test")["mailbox"]["state"], "active");
}
