//! Servers of a test's own, for what the shared ones must not be put through.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use crate::installation::block_on;

pub struct Postgres {
    folder: TempDir,
    /// The URL without a password.
    url: String,
}

impl Postgres {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let started = script("start", &folder.path().join("postgres")).arg("fast").output().unwrap();
        let said = String::from_utf8_lossy(&started.stderr).into_owned();
        assert!(started.status.success(), "no PostgreSQL of our own: {said}");
        Self { url: String::from_utf8(started.stdout).unwrap().trim().to_owned(), folder }
    }

    /// Makes the server require this password.
    pub fn require_password(&self, password: &str) {
        let set = format!("alter role postgres password '{password}'");
        block_on(store::testing::run_sql(&self.url, &set)).unwrap();
        let home = fs::read_to_string(self.folder.path().join("postgres/location")).unwrap();
        let rules = PathBuf::from(home.trim()).join("data/pg_hba.conf");
        fs::write(rules, "host all all 127.0.0.1/32 scram-sha-256\n").unwrap();
        block_on(store::testing::run_sql(&self.url, "select pg_reload_conf()")).unwrap();
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Restarts it, as an administrator does; sessions end.
    pub fn restart(&self) {
        let done = script("restart", &self.folder.path().join("postgres")).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Stops it until it is resumed.
    pub fn halt(&self) {
        let done = script("halt", &self.folder.path().join("postgres")).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    pub fn resume(&self) {
        let done = script("resume", &self.folder.path().join("postgres")).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    pub fn url_with(&self, password: &str) -> String {
        self.url.replace("postgres@", &format!("postgres:{password}@"))
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let _ = script("stop", &self.folder.path().join("postgres")).status();
    }
}

/// A Redis of a test's own. What it held is gone when it comes back.
pub struct Redis {
    folder: TempDir,
    url: String,
}

impl Redis {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = Self::launch(folder.path(), None);
        Self { folder, url }
    }

    fn launch(folder: &Path, port: Option<&str>) -> String {
        let started = service("redis.sh", "start", folder).args(port).output().unwrap();
        assert!(started.status.success(), "no Redis: {}", String::from_utf8_lossy(&started.stderr));
        String::from_utf8(started.stdout).unwrap().trim().to_owned()
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn halt(&self) {
        let _ = service("redis.sh", "stop", self.folder.path()).status();
    }

    pub fn resume(&self) {
        Self::launch(self.folder.path(), self.url.rsplit(':').next());
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.halt();
    }
}

/// A Dovecot of a test's own; any user may log in with the password `pw`.
pub struct Dovecot {
    folder: TempDir,
    port: u16,
}

impl Dovecot {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let started = service("dovecot.sh", "start", &folder.path().join("dovecot")).output().unwrap();
        assert!(started.status.success(), "no Dovecot: {}", String::from_utf8_lossy(&started.stderr));
        let url = String::from_utf8(started.stdout).unwrap();
        let port = url.trim().rsplit(':').next().unwrap().parse().unwrap();
        Self { folder, port }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Restarts it: sessions end, the mail stays.
    pub fn restart(&self) {
        let done = service("dovecot.sh", "restart", &self.folder.path().join("dovecot")).output().unwrap();
        assert!(done.status.success(), "no Dovecot: {}", String::from_utf8_lossy(&done.stderr));
    }
}

impl Drop for Dovecot {
    fn drop(&mut self) {
        let _ = service("dovecot.sh", "stop", &self.folder.path().join("dovecot")).status();
    }
}

fn script(action: &str, folder: &Path) -> Command {
    service("postgres.sh", action, folder)
}

fn service(name: &str, action: &str, folder: &Path) -> Command {
    let path = Path::new("../../scripts/services").join(name);
    let mut command = Command::new("bash");
    command.arg(path).arg(action).arg(folder);
    command
}

/// Returns a loopback port on which nothing listens, below those that systems give to outgoing connections: one of these
/// could be taken by any other test before our server has bound it, and even connect to itself.
pub fn closed_port() -> u16 {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    loop {
        let turn = std::process::id().wrapping_mul(101).wrapping_add(CALLS.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + turn % COUNT).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
