//! As much of a browser as a consent needs: cookies, and following where it is sent.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use super::scene::Scene;
use super::site::Site;
use crate::http::{self, Answer};

#[derive(Default)]
pub struct Browser {
    pub cookies: BTreeMap<String, String>,
}

impl Browser {
    fn cookie(&self) -> String {
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        cookies.join("; ")
    }

    /// Asks, and does not wait for the answer. Dropped, the page is closed.
    pub fn begin_to_open(&self, address: SocketAddr, path: &str) -> TcpStream {
        let mut connection = TcpStream::connect(address).unwrap();
        let cookie = self.cookie();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n\r\n");
        connection.write_all(request.as_bytes()).unwrap();
        connection
    }

    pub fn open(&mut self, address: SocketAddr, path: &str) -> Answer {
        let mut headers = vec![("Accept", "text/html,*/*;q=0.8")];
        let cookies = self.cookie();
        if !cookies.is_empty() {
            headers.push(("Cookie", &cookies));
        }
        let answer = http::ask(address, "GET", path, &headers);
        if let Some(cookie) = answer.headers.get("set-cookie") {
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            match value.is_empty() {
                true => drop(self.cookies.remove(name)),
                false => drop(self.cookies.insert(name.to_owned(), value.to_owned())),
            }
        }
        answer
    }

    /// Opens a link of ours, is sent to the provider, decides there, and is sent back: to which path of ours.
    pub fn consent<S: Site>(&mut self, scene: &Scene<'_, S>, link: &str) -> String {
        let sent = self.open(scene.address, link);
        assert_eq!(sent.status, 302, "{sent:?}");
        decide(scene, &sent.headers["location"])
    }
}

/// A person is at the provider and does what people do; to which path of ours they are sent back.
pub fn decide<S: Site>(scene: &Scene<'_, S>, url: &str) -> String {
    let (_, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let decided = http::ask(scene.site.address(), "GET", &format!("/{path}"), &[]);
    assert_eq!(decided.status, 302, "{decided:?}");
    scene.path(&decided.headers["location"])
}

/// A page for people, with this on it.
pub fn says(answer: &Answer, status: u16, text: &str) {
    let body = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, status, "{body}");
    assert!(body.contains(text), "{text:?} is not in {body}");
    assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8");
    assert!(answer.headers["content-security-policy"].starts_with("default-src 'none'"));
    assert!(!body.contains("<script") && !body.contains("<style"));
    assert_eq!((&*answer.headers["cache-control"], &*answer.headers["referrer-policy"]), ("no-store", "no-referrer"));
}

/// A value of a query, as it is written there.
pub fn parameter(url: &str, name: &str) -> Option<String> {
    let (_, query) = url.split_once('?')?;
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
}

/// The same address without this parameter.
pub fn without(url: &str, name: &str) -> String {
    let (path, query) = url.split_once('?').unwrap();
    let kept: Vec<&str> = query.split('&').filter(|pair| pair.split('=').next() != Some(name)).collect();
    format!("{path}?{}", kept.join("&"))
}
