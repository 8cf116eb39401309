//! From a greeting to a login, and what can be in the way.

use domain::Secret;
use providers::imap::client::{Client, ClientSettings, Credentials, ImapError, RefusalClass, Security, Step};

use super::script::{login_error, password, serve, settings, token};

async fn logs_in(script: &str, credentials: &Credentials) -> Client {
    let (server, stream) = serve(script);
    let client = Client::over(Box::new(stream), settings(), credentials).await.unwrap();
    server.was_followed().await;
    client
}

#[tokio::test(start_paused = true)]
async fn every_offered_login_method_works() {
    let at_once = "S: * OK [CAPABILITY IMAP4rev1 SASL-IR AUTH=PLAIN] hi
        C: A1 AUTHENTICATE PLAIN AGFubgBwdw==
        S: A1 OK [CAPABILITY IMAP4rev1 IDLE] in";
    assert!(logs_in(at_once, &password()).await.capabilities().has("IDLE"));
    let asked = "S: * OK hi
        C: A1 CAPABILITY
        S: * CAPABILITY IMAP4rev1 AUTH=PLAIN
        S: A1 OK
        C: A2 AUTHENTICATE PLAIN
        S: +
        C: AGFubgBwdw==
        S: * CAPABILITY IMAP4rev1 MOVE
        S: A2 OK in";
    assert!(logs_in(asked, &password()).await.capabilities().has("MOVE"));
    let login = "S: * OK [CAPABILITY IMAP4rev1] hi
        C: A1 LOGIN \"ann\" \"pw\"
        S: A1 OK in
        C: A2 CAPABILITY
        S: * CAPABILITY IMAP4rev1 IDLE
        S: A2 OK";
    logs_in(login, &password()).await;
    let google = "S: * OK [CAPABILITY IMAP4rev1 SASL-IR AUTH=XOAUTH2 AUTH=OAUTHBEARER] hi
        C: A1 AUTHENTICATE XOAUTH2 dXNlcj1hLG49bgFhdXRoPUJlYXJlciB0b2sBAQ==
        S: A1 OK [CAPABILITY IMAP4rev1] in";
    logs_in(google, &token()).await;
    let bearer = "S: * OK [CAPABILITY IMAP4rev1 SASL-IR AUTH=OAUTHBEARER] hi
        C: A1 AUTHENTICATE OAUTHBEARER bixhPWE9MkNuPTNEbiwBaG9zdD1tYWlsLmV4YW1wbGUub3JnAXBvcnQ9OTkzAWF1dGg9QmVhcmVyIHRvawEB
        S: A1 OK [CAPABILITY IMAP4rev1] in";
    logs_in(bearer, &token()).await;
}

#[tokio::test(start_paused = true)]
async fn odd_passwords_are_sent_as_literals() {
    let odd = Credentials::Password { user: "a\"b".to_owned(), password: Secret::new("p\u{fc}".to_owned()) };
    let waiting = "S: * OK [CAPABILITY IMAP4rev1] hi
        C: A1 LOGIN \"a\\\"b\" {3}
        S: + go on
        C: p\u{fc}
        S: A1 OK [CAPABILITY IMAP4rev1] in";
    logs_in(waiting, &odd).await;
    let at_once = "S: * OK [CAPABILITY IMAP4rev1 LITERAL+] hi
        C: A1 LOGIN \"a\\\"b\" {3+}
        C: p\u{fc}
        S: A1 OK [CAPABILITY IMAP4rev1] in";
    logs_in(at_once, &odd).await;
}

#[tokio::test(start_paused = true)]
async fn rejected_token_is_a_refused_login() {
    for (offer, sent, reply) in [
        ("XOAUTH2", "dXNlcj1hLG49bgFhdXRoPUJlYXJlciB0b2sBAQ==", ""),
        ("OAUTHBEARER", "bixhPWE9MkNuPTNEbiwBaG9zdD1tYWlsLmV4YW1wbGUub3JnAXBvcnQ9OTkzAWF1dGg9QmVhcmVyIHRvawEB", "AQ=="),
    ] {
        let script = format!(
            "S: * OK [CAPABILITY IMAP4rev1 SASL-IR AUTH={offer}] hi
            C: A1 AUTHENTICATE {offer} {sent}
            S: + eyJzdGF0dXMiOiI0MDAifQ==
            C: {reply}
            S: A1 NO [AUTHENTICATIONFAILED] ann@example.org is unknown"
        );

        let error = login_error(&script, settings(), &token()).await;

        assert_eq!(error.refusal().unwrap().class, RefusalClass::BadCredentials);
        let engine = domain::ConnectorError::from(&error);
        assert!(matches!(engine, domain::ConnectorError::Unauthorized(_)));
        assert!(!format!("{error:?} {error} {engine:?}").contains("ann@"));
    }
}

#[tokio::test(start_paused = true)]
async fn password_is_not_sent_if_login_is_disabled() {
    let script = "S: * OK [CAPABILITY IMAP4rev1 LOGINDISABLED STARTTLS] hi";

    let error = login_error(script, settings(), &password()).await;

    assert!(matches!(error, ImapError::Unsupported("it accepts no password without TLS")), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn responses_injected_after_starttls_are_rejected() {
    let settings = ClientSettings::new("mail.example.org", 143, Security::StartTls);
    let injected = "S: * OK [CAPABILITY IMAP4rev1 STARTTLS] hi
        C: A1 STARTTLS
        S~ A1 OK begin\\r\\n* CAPABILITY IMAP4rev1\\r\\n
        WAIT";
    let error = login_error(injected, settings.clone(), &password()).await;
    assert!(matches!(error, ImapError::Protocol("the server sent data without TLS after STARTTLS")), "{error:?}");

    let logged_in = login_error("S: * PREAUTH hi", settings.clone(), &password()).await;
    assert!(matches!(logged_in, ImapError::Protocol(_)), "{logged_in:?}");
    let none = login_error("S: * OK [CAPABILITY IMAP4rev1] hi", settings, &password()).await;
    assert!(matches!(none, ImapError::Unsupported("it does not offer STARTTLS")), "{none:?}");
}

#[tokio::test(start_paused = true)]
async fn greeting_tells_which_protocol_a_server_speaks() {
    let busy = login_error("S: * BYE [ALERT] Too many connections", settings(), &password()).await;
    assert_eq!(busy.refusal().unwrap().class, RefusalClass::Throttled);
    for (said, explained) in [
        ("S: 220 mail.example.org ESMTP", "the greeting of an SMTP or FTP server"),
        ("S: +OK ready", "the greeting of a POP3 server"),
        ("S: HTTP/1.1 400 Bad Request", "a web page"),
        ("S: who are you?", "“who are you?”"),
        ("S~ \\0\\xff", "bytes that are no text: perhaps it wants TLS from the start"),
    ] {
        let error = login_error(said, settings(), &password()).await;
        assert!(matches!(error, ImapError::NotImap(_)), "{said}: {error:?}");
        let sentence = error.explain("h", 25);
        assert_eq!(sentence, format!("the server at h:25 does not speak IMAP: it answered with {explained}"));
    }
    let silent = login_error("WAIT", settings(), &password()).await;
    assert!(matches!(silent, ImapError::Timeout(Step::Greeting)), "{silent:?}");
}
