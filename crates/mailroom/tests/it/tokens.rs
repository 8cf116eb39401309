//! Tokens of an issuer in place of keys, which the server asks for its keys over HTTP.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use testkit::signed_tokens::TokenIssuer;

use crate::http::{Answer, ask, serve_with};
use crate::installation::on_each_database;

/// Serves the documents of an issuer until the test process ends.
fn start_issuer() -> Arc<TokenIssuer> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let issuer = Arc::new(TokenIssuer::new(format!("http://{}", listener.local_addr().unwrap())));
    let served = issuer.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let body = served.document(first.split(' ').nth(1).unwrap_or_default()).to_string();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all((head + &body).as_bytes());
        }
    });
    issuer
}

#[test]
fn tokens_of_the_configured_issuer_are_accepted() {
    let issuer = start_issuer();
    on_each_database(|place| {
        place.ok(&["tenant", "create", "acme"]);
        let settings = [
            ("MAILROOM_AUTH__OIDC__ISSUER", issuer.url.as_str()),
            ("MAILROOM_AUTH__OIDC__AUDIENCE", "mailroom"),
            ("MAILROOM_AUTH__OIDC__ALGORITHM", "ES256"),
        ];
        let (_server, address) = serve_with(place, &settings);
        let good = issuer.good_token();
        assert_eq!(get_emails(address, &good).status, 200);
        let (signed, _) = good.rsplit_once('.').unwrap();
        get_emails(address, &format!("{signed}.AAAA")).assert_problem(401, "signature");
    });
}

fn get_emails(address: SocketAddr, token: &str) -> Answer {
    ask(address, "GET", "/v1/emails", &[("Authorization", &format!("Bearer {token}"))])
}
