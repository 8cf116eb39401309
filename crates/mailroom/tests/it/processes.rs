//! Processes beside the test: started, watched, paused and killed, or run as another user.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub use store::testing::WAIT_DEADLINE;
pub use store::testing::wait::blocking::{wait_until, watch_until};

use crate::installation::{CommandOutput, PROGRAM, TestInstallation};

/// A process that ends with the test.
pub struct RunningProcess {
    child: Option<Child>,
}

impl RunningProcess {
    pub fn start(command: &mut Command) -> Self {
        Self::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// Starts it with the output of the command: a pipe that is not read blocks a process that prints much.
    pub fn spawn(command: &mut Command) -> Self {
        Self { child: Some(command.spawn().unwrap()) }
    }

    pub fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    pub fn finish(mut self) -> CommandOutput {
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        CommandOutput::new(output.status.code(), output.stdout, &output.stderr)
    }

    /// Waits for its end by a panic, and returns its exit code and standard error.
    pub fn finish_by_panic(mut self) -> (Option<i32>, String) {
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// Kills it with SIGKILL.
    pub fn kill(mut self) -> CommandOutput {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        CommandOutput::new(output.status.code(), output.stdout, &output.stderr)
    }

    /// Sends SIGTERM, as an operator stops a service.
    pub fn terminate(&self) {
        signal("TERM", self.id());
    }

    /// Sends SIGSTOP and waits until it has stopped. Returns `false` if it has ended before.
    pub fn pause(&mut self) -> bool {
        signal("STOP", self.id());
        wait_until("a process stops", || self.has_ended() || self.state() == Some('T'));
        !self.has_ended()
    }

    /// Returns whether a signal has stopped it.
    pub fn is_stopped(&self) -> bool {
        self.state() == Some('T')
    }

    pub fn resume(&self) {
        signal("CONT", self.id());
    }

    fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).ok()?;
        stat.rsplit(") ").next()?.chars().next()
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn signal(name: &str, id: u32) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {id}")]).stderr(Stdio::null()).status();
    sent.unwrap(); // it may have ended meanwhile, which the caller sees
}

/// A user without rights: another one if the test runs as root, otherwise its own.
pub struct UnprivilegedUser {
    program: String,
    is_another: bool,
}

impl UnprivilegedUser {
    pub fn new(mailroom: &TestInstallation) -> Self {
        fs::set_permissions(mailroom.path(""), Permissions::from_mode(0o755)).unwrap();
        if !is_root() {
            return Self { program: PROGRAM.to_owned(), is_another: false };
        }
        // Where it is built may be closed to others.
        let program = mailroom.path("mailroom").into_os_string().into_string().unwrap();
        fs::copy(PROGRAM, &program).unwrap();
        Self { program, is_another: true }
    }

    pub fn owns(&self, folder: &Path) {
        if self.is_another {
            let done = CommandOutput::of(Command::new("chown").arg("-R").arg("65534:65534").arg(folder));
            assert_eq!(done.code, Some(0), "{done}");
        }
    }

    pub fn run(&self, mailroom: &TestInstallation, args: &[&str]) -> CommandOutput {
        CommandOutput::of(&mut self.command(mailroom, args))
    }

    pub fn command(&self, mailroom: &TestInstallation, args: &[&str]) -> Command {
        if !self.is_another {
            return mailroom.command(PROGRAM, args);
        }
        let become_nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", &self.program];
        mailroom.command("setpriv", &[&become_nobody[..], args].concat())
    }
}

fn is_root() -> bool {
    CommandOutput::of(Command::new("id").arg("-u")).text().trim() == "0"
}
