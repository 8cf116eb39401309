//! The demo's server: `mailroom serve` as a process of its own, so that its memory is its own as well.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::place::Place;
use crate::commands::bench_api::process;
use crate::failure::Failure;

/// What runs may wait for its provider longer than somebody who has seen enough. Told a second time, it stops at once.
const ENOUGH: Duration = Duration::from_secs(3);

/// A little longer than it gives itself.
const SHUTDOWN: Duration = Duration::from_secs(35);

const LOOK: Duration = Duration::from_millis(50);

/// Lines of its log that are shown when it ends by itself.
const LAST_WORDS: usize = 5;

pub struct Server {
    child: Child,
    /// It says one line; who closed this would be told that it says no more.
    _stdout: Option<BufReader<ChildStdout>>,
    log: PathBuf,
}

/// Where nobody listens, and soon the server does.
pub fn free(listen: SocketAddr) -> Result<SocketAddr, Failure> {
    let bound = TcpListener::bind(listen).map_err(|e| {
        Failure::problem(format!("cannot listen on {listen} ({e}); choose another address with --listen"))
    })?;
    Ok(bound.local_addr()?)
}

impl Server {
    pub async fn start(place: &Place) -> Result<Self, Failure> {
        let log = place.path("serve.log");
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--config").arg(place.settings()).args(["serve", "--json", "--end-with-parent"]);
        // Settings of whoever tries the demo are for something else, and Ctrl-C is for the demo, which then stops this.
        command.env_clear().process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut server = Self { child: command.spawn()?, _stdout: None, log };
        let mut stdout = server.child.stdout.take().map(BufReader::new);
        let read = move || {
            let mut line = String::new();
            let read = stdout.as_mut().map_or(Ok(0), |stdout| stdout.read_line(&mut line));
            read.map(|_| (line, stdout))
        };
        // On a thread of its own, so that whoever has seen enough before need not wait for it.
        let (line, stdout) = tokio::task::spawn_blocking(read).await.map_err(anyhow::Error::from)??;
        server._stdout = stdout;
        match serde_json::from_str::<Value>(&line) {
            Ok(said) if said["listening"].is_string() => Ok(server),
            _ => Err(server.last_words("did not start")),
        }
    }

    /// Bytes in memory now.
    pub fn memory(&self) -> Option<u64> {
        process::memory(self.child.id())
    }

    /// Fails once it has ended, which it does not do by itself.
    pub fn check(&mut self) -> Result<(), Failure> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(self.last_words(&format!("ended by itself ({status})"))),
        }
    }

    fn last_words(&self, what: &str) -> Failure {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(LAST_WORDS)..].join("; ");
        Failure::problem(format!("the server {what}: {last}"))
    }

    /// As an operator stops it.
    pub async fn stop(mut self) -> Result<(), Failure> {
        self.terminate();
        let (told, mut is_told_twice) = (Instant::now(), false);
        while told.elapsed() < SHUTDOWN {
            match self.child.try_wait()? {
                None if told.elapsed() >= ENOUGH && !is_told_twice => {
                    is_told_twice = true;
                    self.terminate();
                }
                None => tokio::time::sleep(LOOK).await,
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.last_words(&format!("did not stop well ({status})"))),
            }
        }
        Err(self.last_words("does not stop"))
    }

    fn terminate(&self) {
        if let Some(id) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended at this very moment.
            let _ = kill_process(id, Signal::TERM);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it has ended before, unless something went wrong
        let _ = self.child.wait();
    }
}
