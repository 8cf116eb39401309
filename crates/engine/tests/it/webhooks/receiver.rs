//! Somebody's server, that answers as it is told and remembers what it was sent.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use store::testing::wait_until;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

#[derive(Debug, Clone)]
pub struct Request {
    pub path: String,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The number of the event that it tells of.
    pub fn seq(&self) -> u64 {
        self.json()["data"]["seq"].as_u64().unwrap()
    }
}

#[derive(Debug, Clone)]
pub enum Reply {
    /// Status, further headers, and a body.
    Status(u16, &'static str, &'static str),
    /// Not before it is let go, and then as this.
    Held(u16),
    /// Bytes without an end.
    Endless,
    Nothing,
}

pub const OK: Reply = Reply::Status(200, "", "thanks");
pub const DOWN: Reply = Reply::Status(500, "", "down");

#[derive(Debug)]
pub struct Receiver {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<Request>,
    /// By path; all others are fine.
    replies: HashMap<String, Reply>,
    let_go: bool,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Receiver {
    pub async fn new() -> Self {
        Self::at("127.0.0.1:0").await
    }

    pub async fn at(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, changed) = (Arc::<Mutex<State>>::default(), Arc::<Notify>::default());
        let connections = Arc::<AtomicUsize>::default();
        let (counted, shared, tell) = (connections.clone(), state.clone(), changed.clone());
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, shared.clone(), tell.clone()));
            }
        });
        Self { address, connections, state, changed, task }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn answer(&self, path: &str, reply: Reply) {
        let mut state = self.state.lock().unwrap();
        state.replies.insert(path.to_owned(), reply);
        state.let_go = false;
    }

    pub fn let_go(&self) {
        self.state.lock().unwrap().let_go = true;
        self.changed.notify_waiters();
    }

    pub fn requests(&self, path: &str) -> Vec<Request> {
        self.state.lock().unwrap().requests.iter().filter(|request| request.path == path).cloned().collect()
    }

    pub async fn wait_for(&self, path: &str, count: usize) -> Vec<Request> {
        wait_until(&format!("{count} have come to {path}"), async || self.requests(path).len() >= count).await;
        self.requests(path)
    }
}

async fn serve(stream: TcpStream, state: Arc<Mutex<State>>, changed: Arc<Notify>) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await {
        let reply = state.lock().unwrap().replies.get(&request.path).cloned().unwrap_or(OK);
        state.lock().unwrap().requests.push(request);
        changed.notify_waiters();
        let (status, headers, body) = match reply {
            Reply::Status(status, headers, body) => (status, headers, body),
            Reply::Held(status) => {
                loop {
                    let told = changed.notified();
                    tokio::pin!(told);
                    told.as_mut().enable();
                    if state.lock().unwrap().let_go {
                        break;
                    }
                    told.await;
                }
                (status, "", "")
            }
            Reply::Endless => {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
                return;
            }
            Reply::Nothing => return std::future::pending().await,
        };
        let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = HashMap::new();
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let mut body = vec![0; headers.get("content-length").map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request { path, headers, body })
}
