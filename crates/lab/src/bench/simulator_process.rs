//! `mailroom sim` as a process of its own, so that its work is not measured with ours.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use providers::http::{HttpClient, HttpTimeouts};
use serde_json::Value;
use terminal::Failure;

/// A simulator that ends when this is dropped, and how it is controlled.
pub struct SimulatorProcess {
    child: Child,
    pub control: SimulatorControl,
}

impl Drop for SimulatorProcess {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended by itself
        let _ = self.child.wait();
    }
}

impl SimulatorProcess {
    /// Starts a simulator on a free port, with further arguments, and waits until it listens.
    pub fn start(args: &[&str]) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["sim", "--json", "--listen", "127.0.0.1:0"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let announcement: Value = serde_json::from_str(&line).unwrap_or_default();
        let url = announcement["url"].as_str().ok_or_else(|| Failure::problem("the simulator did not start"))?;
        Ok(Self { child, control: SimulatorControl::new(url)? })
    }
}

/// Client of a simulator's control API.
pub struct SimulatorControl {
    pub url: String,
    http: HttpClient,
}

impl SimulatorControl {
    pub fn new(url: &str) -> Result<Self, Failure> {
        let http = HttpClient::new(HttpTimeouts::default()).map_err(|e| Failure::problem(e.to_string()))?;
        Ok(Self { url: url.to_owned(), http })
    }

    pub async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.http.json(self.http.client.get(self.path(path))).await.map_err(simulator_failure)
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        let request = self.http.client.post(self.path(path)).header("content-type", "application/json");
        self.http.json(request.body(body.to_string())).await.map_err(simulator_failure)
    }

    pub async fn put(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        let request = self.http.client.put(self.path(path)).header("content-type", "application/json");
        self.http.json(request.body(body.to_string())).await.map_err(simulator_failure)
    }

    pub async fn delete(&self, path: &str) -> Result<(), Failure> {
        self.http.client.delete(self.path(path)).send().await.map(drop).map_err(simulator_failure)
    }

    /// Fails if a call or a response was not as the provider's own description has it.
    pub async fn check_violations(&self, provider: &str, name: &str) -> Result<(), Failure> {
        let violations = self.get(&format!("{provider}/violations")).await?;
        if violations["items"].as_array().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        Err(Failure::problem(format!("what was said is not {name}'s API: {violations}")))
    }

    fn path(&self, path: &str) -> String {
        format!("{}/control/{path}", self.url)
    }
}

fn simulator_failure(e: impl std::fmt::Display) -> Failure {
    Failure::problem(format!("the simulator: {e}"))
}
