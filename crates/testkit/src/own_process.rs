//! A test in a process of its own: failpoints belong to the process.
//!
//! The test starts itself once more, with failpoints, and does its work there:
//!
//! ```ignore
//! #[tokio::test(flavor = "multi_thread")]
//! async fn crash_is_harmless() {
//!     if !own_process::is_child() {
//!         return own_process::run("module::crash_is_harmless", "before:store_token=panic");
//!     }
//!     // what happens at the failpoint
//! }
//! ```

use std::process::Command;

use store::failpoint::VARIABLE;

/// Set for the process that [`run`] starts.
const CHILD_VARIABLE: &str = "TEST_IS_CHILD";

/// Returns whether [`run`] has started this process.
pub fn is_child() -> bool {
    #[expect(clippy::disallowed_methods, reason = "the process that starts this one sets it")]
    let variable = std::env::var_os(CHILD_VARIABLE);
    variable.is_some()
}

/// Runs the test with this full name once more, in a process of its own with these failpoints, and fails if it fails.
pub fn run(test: &str, failpoints: &str) {
    assert!(!is_child(), "{test} starts itself without end");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(CHILD_VARIABLE, "1").env(VARIABLE, failpoints);
    let output = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && stdout.contains("1 passed"), "{failpoints}: {stdout}\n{stderr}");
}
