//! A simulated IMAP server for one test, and a raw IMAP client.

use std::ops::Deref;
use std::sync::Arc;

use jiff::Timestamp;
use sim::imap::{AccountSpec, ImapServer, ImapWorld, PASSWORD};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::HttpHarness;

pub const ANN: &str = "ann@imap.example";

pub struct ImapHarness {
    pub server: ImapServer,
    pub world: Arc<ImapWorld>,
    http: HttpHarness,
}

impl Deref for ImapHarness {
    type Target = HttpHarness;

    fn deref(&self) -> &HttpHarness {
        &self.http
    }
}

impl ImapHarness {
    /// Starts a server with Ann, who has `messages` messages.
    pub async fn with_ann(messages: usize) -> Self {
        let start: Timestamp = "2026-02-01T12:00:00Z".parse().unwrap();
        let world = Arc::new(ImapWorld::new(1, 20, Arc::new(move || start)));
        assert!(world.create(&AccountSpec { address: "Ann@imap.example".to_owned(), messages, seed: Some(5) }));
        let server = ImapServer::start_here(&world).await.unwrap();
        Self { http: HttpHarness::new(server.control(), "/control/imap"), server, world }
    }

    /// Connects and reads the greeting.
    pub async fn connect(&self) -> ImapClient {
        let mut program =
            ImapClient { stream: TcpStream::connect(self.server.imap()).await.unwrap(), unread: Vec::new(), number: 0 };
        assert!(program.line().await.unwrap().starts_with("* OK [CAPABILITY IMAP4rev1"));
        program
    }

    pub async fn log_in(&self) -> ImapClient {
        let mut program = self.connect().await;
        program.ok(&format!("LOGIN {ANN} {PASSWORD}")).await;
        program
    }
}

pub struct ImapClient {
    stream: TcpStream,
    unread: Vec<u8>,
    number: u32,
}

impl ImapClient {
    pub async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads a line. Returns `None` at the end of the connection.
    pub async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.unread.drain(..end + 2).collect();
                return Some(String::from_utf8(line[..end].to_vec()).unwrap());
            }
            if self.stream.read_buf(&mut self.unread).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// Runs a command. Returns its untagged lines and its completion, or `None` at the end of the connection.
    pub async fn run(&mut self, command: &str) -> Option<(Vec<String>, String)> {
        self.number += 1;
        let tag = format!("t{}", self.number);
        self.send(&format!("{tag} {command}\r\n")).await;
        let mut lines = Vec::new();
        loop {
            let line = self.line().await?;
            match line.strip_prefix(&format!("{tag} ")) {
                Some(end) => return Some((lines, end.to_owned())),
                None => lines.push(line),
            }
        }
    }

    /// Runs a command that must end with OK, and returns its untagged lines.
    pub async fn ok(&mut self, command: &str) -> Vec<String> {
        let (lines, end) = self.run(command).await.unwrap();
        assert!(end.starts_with("OK"), "{command}: {end}");
        lines
    }

    /// Runs a command and returns its completion.
    pub async fn end(&mut self, command: &str) -> String {
        self.run(command).await.unwrap().1
    }
}
