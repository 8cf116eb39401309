//! A server between us and a store that misbehaves on demand, and a client that knows nothing of stores.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreFault {
    None,
    /// Answers so without asking the store.
    Status(u16, &'static str),
    /// Takes the request and never answers.
    Hang,
    /// Lets the store do its work and hangs up without a word of it.
    LoseAnswer,
    /// Passes the answer on a byte at a time.
    Drip,
    /// Hangs up in the middle of the body.
    Cut,
    /// Changes the last byte of the body.
    Flip,
}

/// Stops when it is dropped.
pub struct FaultProxy {
    pub url: String,
    faults: Arc<Mutex<FaultPlan>>,
    listening: JoinHandle<()>,
}

#[derive(Debug)]
struct FaultPlan {
    next: VecDeque<StoreFault>,
    then: StoreFault,
    requests: usize,
}

impl FaultProxy {
    /// In front of a URL, whose path it keeps.
    pub async fn start(upstream: &str) -> Self {
        let rest = upstream.strip_prefix("http://").unwrap();
        let (host, path) =
            rest.split_once('/').map_or((rest, String::new()), |(host, path)| (host, format!("/{path}")));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}{path}", listener.local_addr().unwrap());
        let faults = Arc::new(Mutex::new(FaultPlan { next: VecDeque::new(), then: StoreFault::None, requests: 0 }));
        let (host, shared) = (host.to_owned(), faults.clone());
        let listening = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (host, faults) = (host.clone(), shared.clone());
                tokio::spawn(async move { serve(client, &host, &faults).await });
            }
        });
        Self { url, faults, listening }
    }

    /// What happens to the next requests, and to all after them.
    pub fn plan(&self, next: &[StoreFault], then: StoreFault) {
        let mut faults = self.faults.lock().unwrap();
        *faults = FaultPlan { next: next.iter().copied().collect(), then, requests: 0 };
    }

    /// Since the last plan.
    pub fn requests(&self) -> usize {
        self.faults.lock().unwrap().requests
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// One request per connection, which keeps this simple.
async fn serve(mut client: TcpStream, host: &str, faults: &Mutex<FaultPlan>) -> Option<()> {
    let request = read_request(&mut client).await?;
    let fault = {
        let mut faults = faults.lock().unwrap();
        faults.requests += 1;
        let then = faults.then;
        faults.next.pop_front().unwrap_or(then)
    };
    match fault {
        StoreFault::Status(status, body) => {
            let head =
                format!("HTTP/1.1 {status} Fault\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            client.write_all(format!("{head}{body}").as_bytes()).await.ok()?;
            return client.shutdown().await.ok();
        }
        StoreFault::Hang => {
            // Until the client gives up.
            let _ = client.read_to_end(&mut Vec::new()).await;
            return None;
        }
        _ => {}
    }
    let mut answer = forward(host, &request).await?;
    match fault {
        StoreFault::LoseAnswer => return None,
        StoreFault::Cut => answer.truncate(head_length(&answer)? + (answer.len() - head_length(&answer)?) / 2),
        StoreFault::Flip => *answer.last_mut()? ^= 1,
        _ => {}
    }
    match fault {
        StoreFault::Drip => {
            for byte in answer {
                client.write_all(&[byte]).await.ok()?;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        _ => client.write_all(&answer).await.ok()?,
    }
    client.shutdown().await.ok()
}

async fn read_request(client: &mut TcpStream) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    loop {
        if let Some(head) = head_length(&request)
            && request.len() >= head + content_length(&request[..head])
        {
            // After the answer the store hangs up, so that we see its end.
            let line_end = request.windows(2).position(|pair| pair == b"\r\n")? + 2;
            request.splice(line_end..line_end, *b"Connection: close\r\n");
            return Some(request);
        }
        if client.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    }
}

fn head_length(message: &[u8]) -> Option<usize> {
    message.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

fn content_length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    head.lines().find_map(|line| line.strip_prefix("content-length:")).map_or(0, |value| value.trim().parse().unwrap())
}

async fn forward(host: &str, request: &[u8]) -> Option<Vec<u8>> {
    let mut store = TcpStream::connect(host).await.ok()?;
    store.write_all(request).await.ok()?;
    let mut answer = Vec::new();
    store.read_to_end(&mut answer).await.ok()?;
    Some(answer)
}

/// Status and body of a plain GET.
pub async fn fetch(url: &str) -> (u16, Vec<u8>) {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let answer = forward(host, request.as_bytes()).await.unwrap();
    let head = head_length(&answer).unwrap();
    let status = String::from_utf8_lossy(&answer[9..12]).parse().unwrap();
    (status, answer[head..].to_vec())
}
