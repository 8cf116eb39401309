//! An installation for a test: a folder and a database of its own, and the program as a process.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use store::{scratch, testing};
use tempfile::TempDir;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_mailroom");

/// No output may ever show it.
pub const PASSWORD: &str = "hunter2";

/// A Mailroom with a folder and a database of its own, which go with it.
pub struct TestInstallation {
    folder: TempDir,
    url: Option<String>,
}

/// The exit code and output of a command.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

/// Runs a test on a fresh installation on SQLite, then on one on PostgreSQL.
pub fn on_each_database(test: impl Fn(&TestInstallation)) {
    test(&TestInstallation::sqlite());
    let postgres = TestInstallation::postgres();
    test(&postgres);
    block_on(testing::drop_postgres(postgres.url().expect("it is on PostgreSQL")));
}

pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

impl TestInstallation {
    pub fn sqlite() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), url: None }
    }

    /// Creates one on PostgreSQL with the current schema, which commands do not create by themselves.
    pub fn postgres() -> Self {
        let url = block_on(testing::migrated_postgres_url());
        Self { folder: tempfile::tempdir().unwrap(), url: Some(url) }
    }

    pub fn empty_postgres() -> Self {
        let url = block_on(testing::fresh_postgres_url());
        Self { folder: tempfile::tempdir().unwrap(), url: Some(url) }
    }

    /// Creates one with the current schema on a PostgreSQL of the test's own.
    pub fn on_server(url: &str) -> Self {
        let mailroom = Self::on_empty_server(url);
        mailroom.ok(&["migrate"]);
        mailroom
    }

    pub fn on_empty_server(url: &str) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), url: Some(url.to_owned()) }
    }

    pub fn is_sqlite(&self) -> bool {
        self.url.is_none()
    }

    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn data_dir(&self) -> PathBuf {
        self.path("data")
    }

    /// Writes a file and returns its path, as an argument.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path.into_os_string().into_string().unwrap()
    }

    /// Returns a command with no environment but this installation's. Backtraces are on, so that none can hide.
    pub fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.folder.path()).stdin(Stdio::null()).env_clear();
        command.envs(self.environment());
        command
    }

    pub fn environment(&self) -> BTreeMap<String, String> {
        #[expect(clippy::disallowed_methods, reason = "the program under test finds its tools where we find ours")]
        let path = std::env::var("PATH").unwrap_or_default();
        let data_dir = self.data_dir().into_os_string().into_string().unwrap();
        let mut environment = BTreeMap::from([
            ("PATH".to_owned(), path),
            ("RUST_BACKTRACE".to_owned(), "1".to_owned()),
            ("MAILROOM_DATA_DIR".to_owned(), data_dir),
        ]);
        environment.extend(self.url.clone().map(|url| ("MAILROOM_DATABASE__URL".to_owned(), url)));
        environment
    }

    pub fn run(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::of(&mut self.command(PROGRAM, args))
    }

    pub fn run_with(&self, variables: &[(&str, &str)], args: &[&str]) -> CommandOutput {
        CommandOutput::of(self.command(PROGRAM, args).envs(variables.iter().copied()))
    }

    pub fn ok(&self, args: &[&str]) -> CommandOutput {
        let done = self.run(args);
        assert_eq!(done.code, Some(0), "mailroom {args:?}: {done}");
        done
    }

    /// Runs a command that must succeed, and returns the objects that it prints.
    pub fn objects(&self, args: &[&str]) -> Vec<Value> {
        self.ok(&[args, &["--json"]].concat()).objects()
    }

    /// Runs a command, and returns the objects that it prints, however it ends.
    pub fn objects_of(&self, args: &[&str]) -> Vec<Value> {
        self.run(&[args, &["--json"]].concat()).objects()
    }

    /// Runs a command that must succeed, and returns the one object that it prints.
    pub fn object(&self, args: &[&str]) -> Value {
        let mut objects = self.objects(args);
        assert_eq!(objects.len(), 1, "mailroom {args:?}");
        objects.remove(0)
    }

    /// Runs an import into tenant `acme` that may fail.
    pub fn try_import(&self, path: &str) -> CommandOutput {
        self.run(&["import", path, "--tenant", "acme", "--mailbox", "me@acme.test", "--json"])
    }

    /// Imports into tenant `acme`, and returns the summary.
    pub fn import(&self, path: &str) -> Value {
        self.object(&["import", path, "--tenant", "acme", "--mailbox", "me@acme.test"])
    }

    pub fn emails(&self, tenant: &str) -> Vec<Value> {
        self.objects(&["search", "", "--tenant", tenant, "--full"])
    }

    pub fn tenants(&self) -> Vec<Value> {
        self.objects(&["tenant", "list"])
    }

    /// Reads every byte back, and fails unless all is well.
    pub fn assert_whole(&self) {
        for report in self.objects(&["verify", "--deep"]) {
            assert_eq!(report["ok"], true, "{report}");
        }
    }

    pub fn sql(&self, sql: &str) {
        self.try_sql(sql).unwrap();
    }

    /// Runs statements that the database may refuse.
    pub fn try_sql(&self, sql: &str) -> Result<(), String> {
        match &self.url {
            None => self.open_sqlite().execute_batch(sql).map_err(|e| e.to_string()),
            Some(url) => block_on(testing::run_sql(url, sql)).map_err(|e| e.to_string()),
        }
    }

    /// Returns the first column of each row, which must be text.
    pub fn select(&self, sql: &str) -> Vec<String> {
        match &self.url {
            None => {
                let database = self.open_sqlite();
                let mut statement = database.prepare(sql).unwrap();
                let rows = statement.query_map([], |row| row.get(0)).unwrap();
                rows.collect::<Result<_, _>>().unwrap()
            }
            Some(url) => block_on(async {
                let (client, connection) =
                    tokio_postgres::connect(&testing::admin_url(url), tokio_postgres::NoTls).await.unwrap();
                tokio::spawn(connection);
                client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
            }),
        }
    }

    fn open_sqlite(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.data_dir().join("mailroom.db")).unwrap()
    }

    /// Returns the pack files, finished or not.
    pub fn packs(&self) -> Vec<PathBuf> {
        files_below(&self.data_dir().join("blobs"))
    }
}

impl Drop for TestInstallation {
    fn drop(&mut self) {
        if let Some(url) = &self.url {
            // A failed test has something better to say.
            let _ = block_on(scratch::drop_database(&testing::server_url(), url));
        }
    }
}

pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    // A running import makes and renames things meanwhile.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files
}

impl CommandOutput {
    pub fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        Self::new(output.status.code(), output.stdout, &output.stderr)
    }

    pub fn new(code: Option<i32>, stdout: Vec<u8>, stderr: &[u8]) -> Self {
        let done = Self { code, stdout, stderr: String::from_utf8_lossy(stderr).into_owned() };
        let said = format!("{}{}", done.stderr, done.text());
        for never in ["panicked", "stack backtrace", "RUST_BACKTRACE", PASSWORD] {
            assert!(!said.contains(never), "{said}");
        }
        done
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn objects(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Fails unless the command ended with this code and one plain sentence that says these things.
    pub fn assert_refused(&self, code: i32, says: &[&str]) {
        assert_eq!(self.code, Some(code), "{self}");
        assert_eq!(self.text(), "", "{self}");
        self.assert_one_sentence("error: ", says);
    }

    pub fn assert_tells(&self, part: &str) {
        assert!(self.stderr.contains(part), "{part:?} is not in {self}");
    }

    pub fn assert_one_sentence(&self, start: &str, says: &[&str]) {
        assert_eq!(self.stderr.lines().count(), 1, "{self}");
        assert!(self.stderr.starts_with(start), "{self}");
        for part in says {
            assert!(self.stderr.contains(part), "{part:?} is not in {self}");
        }
        // A cause told twice is not a plain sentence.
        let words: Vec<&str> = self.stderr.split_whitespace().collect();
        let tail = words[words.len().saturating_sub(4)..].join(" ");
        assert_eq!(self.stderr.split_whitespace().collect::<Vec<_>>().join(" ").matches(&tail).count(), 1, "{self}");
    }
}

impl std::fmt::Display for CommandOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.text();
        let shown: String = text.chars().take(2000).collect();
        write!(f, "exit code {:?}\nstdout: {shown}\nstderr: {}", self.code, self.stderr)
    }
}
