//! As much of a browser as a consent needs: cookies, and following redirects.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use axum::body::Body;
use axum::http::Request;
use testkit::{HttpReply, TestApp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::consent_app::{ConsentApp, local_path};
use super::provider_site::ProviderSite;

#[derive(Default)]
pub struct Browser {
    pub cookies: BTreeMap<String, String>,
}

impl Browser {
    pub fn request(&self, path: &str) -> Request<Body> {
        let mut request = testkit::http::request("GET", path, None, None);
        request.headers_mut().insert("accept", "text/html,*/*;q=0.8".parse().unwrap());
        if !self.cookies.is_empty() {
            let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            request.headers_mut().insert("cookie", cookies.join("; ").parse().unwrap());
        }
        request
    }

    pub async fn open(&mut self, app: &TestApp, path: &str) -> HttpReply {
        let reply = app.send(self.request(path)).await;
        if let Some(cookie) = reply.find_header("set-cookie") {
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            if value.is_empty() {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        reply
    }

    /// Opens a link of ours, is sent to the provider, decides there, and is sent back: to which path of ours.
    pub async fn consent<S: ProviderSite>(&mut self, app: &ConsentApp<S>, link: &str) -> String {
        let sent = self.open(app, link).await;
        decide(app, sent.expect(302).header("location")).await
    }
}

/// A person is at the provider and does what people do; to which path of ours they are sent back.
pub async fn decide<S: ProviderSite>(app: &ConsentApp<S>, url: &str) -> String {
    let (_, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    local_path(&redirect(app.site.address(), &format!("/{path}")).await)
}

/// Where the provider redirects the person to.
async fn redirect(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 302"), "{response}");
    let location = response.lines().find_map(|line| line.strip_prefix("location: "));
    location.unwrap_or_else(|| panic!("{response}")).to_owned()
}

/// A page for people, with this on it.
#[track_caller]
pub fn assert_page(reply: &HttpReply, status: u16, says: &str) {
    let page = reply.expect(status).text();
    assert!(page.contains(says), "{says:?} is not in {page}");
    assert_eq!(reply.header("content-type"), "text/html; charset=utf-8");
    assert!(reply.header("content-security-policy").starts_with("default-src 'none'"));
    assert!(!page.contains("<script") && !page.contains("<style"));
    assert_eq!((reply.header("cache-control"), reply.header("referrer-policy")), ("no-store", "no-referrer"));
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
