//! A token endpoint with a fixed response.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use domain::connector::{ConnectorAccount, NoApiAccess};
use domain::{ConnectorError, MailboxId, Secret, SystemClock, TenantId};
use serde_json::Value;

/// Sends the same response to every request, and records the requests.
pub struct TokenEndpoint {
    pub url: String,
    pub asked: Arc<Mutex<Vec<String>>>,
}

impl TokenEndpoint {
    pub fn responding(answer: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (answer, heard) = (answer.to_owned(), asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut request = Vec::new();
                let mut buffer = [0; 4096];
                while !is_whole(&request) {
                    match stream.read(&mut buffer) {
                        Ok(0) | Err(_) => break,
                        Ok(count) => request.extend_from_slice(&buffer[..count]),
                    }
                }
                heard.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { url, asked }
    }

    pub fn json(status: &str, body: &Value) -> Self {
        Self::with(status, "", &body.to_string())
    }

    pub fn with(status: &str, headers: &str, body: &str) -> Self {
        let length = body.len();
        Self::responding(&format!(
            "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        ))
    }

    pub fn asked(&self) -> String {
        self.asked.lock().unwrap().concat()
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
    length.is_none_or(|length| body.len() >= length.trim().parse::<usize>().unwrap())
}

/// An account with its owner's consent, or an app-only one.
pub fn account(address: &str, settings: &Value) -> ConnectorAccount {
    ConnectorAccount {
        tenant: TenantId::new(&SystemClock),
        mailbox: MailboxId::new(&SystemClock),
        address: address.to_owned(),
        settings: settings.to_string(),
        secret: (settings["app_only"] != true).then(|| Secret::new("1//refresh".to_owned())),
        folders: Vec::new(),
        sweep_since: None,
        access: Arc::new(NoApiAccess),
    }
}

/// An id token with these claims and no valid signature, which is not checked because it comes over TLS.
pub fn id_token(claims: &Value) -> String {
    use base64::Engine as _;
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(claims.to_string());
    format!("e30.{claims}.c2ln")
}

/// Checks that an error has no secret and no personal data.
pub fn assert_private(e: &ConnectorError) {
    let told = format!("{e} {e:?}");
    for private in ["hunter2", "1//refresh", "secret detail", "ann@"] {
        assert!(!told.contains(private), "{told}");
    }
}
