//! The demo's server: `mailroom serve` as a process of its own, whose memory can be measured.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use terminal::{Failure, process};

use super::folder::DemoFolder;

/// Time until the second signal, which stops the server at once: a job may wait for its provider longer than a person waits
/// for the end.
const SECOND_SIGNAL_DELAY: Duration = Duration::from_secs(3);

/// A little longer than the server allows itself.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(35);

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Lines of its log that are shown when it ends unexpectedly.
const LOG_LINES_SHOWN: usize = 5;

/// A server that is killed when this is dropped.
pub struct DemoServer {
    child: Child,
    /// Kept open: the server prints one line, and writing to a closed pipe would fail.
    _stdout: Option<BufReader<ChildStdout>>,
    log: PathBuf,
}

/// Returns the address for the server, with a free port where the port is 0. Fails if it is in use.
pub fn reserve_address(listen: SocketAddr) -> Result<SocketAddr, Failure> {
    let bound = TcpListener::bind(listen).map_err(|e| {
        Failure::problem(format!("cannot listen on {listen} ({e}); choose another address with --listen"))
    })?;
    Ok(bound.local_addr()?)
}

impl DemoServer {
    pub async fn start(folder: &DemoFolder) -> Result<Self, Failure> {
        let log = folder.path("serve.log");
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--config").arg(folder.settings()).args(["serve", "--json", "--end-with-parent"]);
        // The user's settings are for something else, and Ctrl-C is for the demo, which then stops the server.
        command.env_clear().process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut server = Self { child: command.spawn()?, _stdout: None, log };
        let mut stdout = server.child.stdout.take().map(BufReader::new);
        // On a thread of its own, so that a signal can end the demo meanwhile.
        let reading = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            let read = stdout.as_mut().map_or(Ok(0), |stdout| stdout.read_line(&mut line));
            read.map(|_| (line, stdout))
        });
        let (line, stdout) = reading.await.map_err(anyhow::Error::from)??;
        server._stdout = stdout;
        match serde_json::from_str::<Value>(&line) {
            Ok(announcement) if announcement["listening"].is_string() => Ok(server),
            _ => Err(server.failure_with_log("did not start")),
        }
    }

    /// Returns its resident memory in bytes.
    pub fn memory(&self) -> Option<u64> {
        process::resident_memory(self.child.id())
    }

    /// Fails if the server has ended, which it must not do by itself.
    pub fn check_running(&mut self) -> Result<(), Failure> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(self.failure_with_log(&format!("ended by itself ({status})"))),
        }
    }

    /// Returns a failure with the last lines of the log.
    fn failure_with_log(&self, what: &str) -> Failure {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("; ");
        Failure::problem(format!("the server {what}: {last}"))
    }

    /// Stops the server as an operator does.
    pub async fn stop(mut self) -> Result<(), Failure> {
        self.terminate();
        let (begun, mut is_signalled_twice) = (Instant::now(), false);
        while begun.elapsed() < SHUTDOWN_TIMEOUT {
            match self.child.try_wait()? {
                None if begun.elapsed() >= SECOND_SIGNAL_DELAY && !is_signalled_twice => {
                    is_signalled_twice = true;
                    self.terminate();
                }
                None => tokio::time::sleep(POLL_INTERVAL).await,
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.failure_with_log(&format!("did not stop well ({status})"))),
            }
        }
        Err(self.failure_with_log("does not stop"))
    }

    fn terminate(&self) {
        if let Some(id) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended at this moment.
            let _ = kill_process(id, Signal::TERM);
        }
    }
}

impl Drop for DemoServer {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it has ended before, unless something went wrong
        let _ = self.child.wait();
    }
}
