//! Programs that run beside the test, started, watched and stopped, or as somebody else.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::place::{Done, PROGRAM, Place};

/// Far longer than anything here takes on a busy machine; only a hang gets there.
pub const DEADLINE: Duration = Duration::from_secs(120);

const BREATH: Duration = Duration::from_millis(20);

/// Ends with the test, whatever becomes of it.
pub struct Running {
    child: Option<Child>,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Self::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// What it says goes where the command says; a pipe that nobody reads stops whoever says much.
    pub fn spawn(command: &mut Command) -> Self {
        Self { child: Some(command.spawn().unwrap()) }
    }

    pub fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    pub fn finish(mut self) -> Done {
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        Done::new(output.status.code(), output.stdout, &output.stderr)
    }

    /// The exit code and standard error of one that is meant to panic.
    pub fn finish_by_panic(mut self) -> (Option<i32>, String) {
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// As `kill -9` does it.
    pub fn kill(mut self) -> Done {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        Done::new(output.status.code(), output.stdout, &output.stderr)
    }

    /// As an operator stops a service.
    pub fn terminate(&self) {
        signal("TERM", self.id());
    }

    /// Stops it where it is; it has stopped when this returns. `false` when it has ended before.
    pub fn pause(&mut self) -> bool {
        signal("STOP", self.id());
        wait_until("a process stops", || self.has_ended() || self.state() == Some('T'));
        !self.has_ended()
    }

    /// Stopped by a signal, and not going on by itself.
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

impl Drop for Running {
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

/// Looks again and again, with a breath in between: looking often costs a command, and the time of those who are awaited.
pub fn wait_until(what: &str, is_true: impl FnMut() -> bool) {
    look_until(what, is_true, || std::thread::sleep(BREATH));
}

/// The same without a breath, to meet a moment that passes at once; for what is looked at without effort.
pub fn watch_until(what: &str, is_true: impl FnMut() -> bool) {
    look_until(what, is_true, std::thread::yield_now);
}

fn look_until(what: &str, mut is_true: impl FnMut() -> bool, pause: impl Fn()) {
    let started = Instant::now();
    while !is_true() {
        assert!(started.elapsed() < DEADLINE, "waited too long until {what}");
        pause();
    }
}

/// Somebody without rights: another user when we are root, ourselves otherwise.
pub struct Nobody {
    program: String,
    is_another: bool,
}

impl Nobody {
    pub fn new(place: &Place) -> Self {
        fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
        if !is_root() {
            return Self { program: PROGRAM.to_owned(), is_another: false };
        }
        // Where it is built may be closed to others.
        let program = place.path("mailroom").into_os_string().into_string().unwrap();
        fs::copy(PROGRAM, &program).unwrap();
        Self { program, is_another: true }
    }

    pub fn owns(&self, folder: &Path) {
        if self.is_another {
            let done = Done::of(Command::new("chown").arg("-R").arg("65534:65534").arg(folder));
            assert_eq!(done.code, Some(0), "{done}");
        }
    }

    pub fn run(&self, place: &Place, args: &[&str]) -> Done {
        Done::of(&mut self.command(place, args))
    }

    pub fn command(&self, place: &Place, args: &[&str]) -> Command {
        if !self.is_another {
            return place.command(PROGRAM, args);
        }
        let become_nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", &self.program];
        place.command("setpriv", &[&become_nobody[..], args].concat())
    }
}

fn is_root() -> bool {
    Done::of(Command::new("id").arg("-u")).text().trim() == "0"
}
