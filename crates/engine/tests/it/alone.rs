//! A test in a process of its own, for failpoints are the process's.

use std::process::Command;

use store::failpoint::VARIABLE;

/// This program once more, with one test and these failpoints.
pub fn alone(test: &str, failpoints: &str) {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args([test, "--exact", "--ignored", "--nocapture"]).env(VARIABLE, failpoints);
    let done = command.output().unwrap();
    let told = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && told.contains("1 passed"), "{failpoints}: {told}");
}
