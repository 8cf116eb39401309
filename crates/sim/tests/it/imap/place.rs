//! A simulated IMAP server of a test's own, and a mail program that says exactly what it is told to.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use sim::imap::{NewAccount, PASSWORD, Server, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{self, Answered};

pub const ANN: &str = "ann@imap.example";

pub struct Place {
    pub server: Server,
    pub world: Arc<World>,
}

impl Place {
    /// With Ann, who has so many messages.
    pub async fn with_ann(messages: usize) -> Self {
        let start: Timestamp = "2026-02-01T12:00:00Z".parse().unwrap();
        let world = Arc::new(World::new(1, 20, Arc::new(move || start)));
        assert!(world.create(&NewAccount { address: "Ann@imap.example".to_owned(), messages, seed: Some(5) }));
        Self { server: Server::start_here(&world).await.unwrap(), world }
    }

    /// A connection, with its greeting read.
    pub async fn connect(&self) -> Program {
        let mut program =
            Program { stream: TcpStream::connect(self.server.imap()).await.unwrap(), unread: Vec::new(), number: 0 };
        assert!(program.line().await.unwrap().starts_with("* OK [CAPABILITY IMAP4rev1"));
        program
    }

    pub async fn log_in(&self) -> Program {
        let mut program = self.connect().await;
        program.ok(&format!("LOGIN {ANN} {PASSWORD}")).await;
        program
    }

    pub async fn control(&self, method: &str, path: &str, body: Value) -> Answered {
        let kind = ("Content-Type", "application/json");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let path = format!("/control/imap/{path}");
        client::send(self.server.control(), method, &path, &[kind], body.as_bytes()).await.unwrap()
    }

    /// What must succeed.
    pub async fn steer(&self, method: &str, path: &str, body: Value) -> Value {
        let answered = self.control(method, path, body).await;
        assert!(matches!(answered.status, 200 | 201), "{method} {path}: {}", answered.text());
        answered.json()
    }
}

pub struct Program {
    stream: TcpStream,
    unread: Vec<u8>,
    number: u32,
}

impl Program {
    pub async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Nothing: the connection has ended.
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

    /// The lines up to the end of the command, and its end without the tag. Nothing: the connection has ended.
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

    /// What must succeed.
    pub async fn ok(&mut self, command: &str) -> Vec<String> {
        let (lines, end) = self.run(command).await.unwrap();
        assert!(end.starts_with("OK"), "{command}: {end}");
        lines
    }

    /// How it ends.
    pub async fn end(&mut self, command: &str) -> String {
        self.run(command).await.unwrap().1
    }
}
