//! A test in a process of its own: failpoints belong to the process.

use std::process::Command;

use store::failpoint::VARIABLE;

/// Runs one `#[ignore]`d test of this program in a process of its own, with these failpoints, and fails if it fails.
pub fn run_with_failpoints(test: &str, failpoints: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]).env(VARIABLE, failpoints);
    let output = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && stdout.contains("1 passed"), "{failpoints}: {stdout}\n{stderr}");
}
