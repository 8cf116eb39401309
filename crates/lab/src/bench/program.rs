//! Runs this program again as a process of its own, as a user would.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use terminal::Failure;

/// Runs a command of this program with a data folder, and a database if it is not the folder's own. Returns the object that
/// it prints.
pub fn run_program(data_dir: &Path, database: Option<&str>, args: &[&str]) -> Result<Value, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(args).arg("--json").env("MAILROOM_DATA_DIR", data_dir);
    if let Some(url) = database {
        command.env("MAILROOM_DATABASE__URL", url);
    }
    read_last_object(&mut command)
}

/// Runs a program to its end and reads the object on the last line that it prints.
pub fn read_last_object(command: &mut Command) -> Result<Value, Failure> {
    let done = command.output()?;
    let text = String::from_utf8_lossy(&done.stdout);
    let last = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
    match last {
        Some(object) if done.status.success() => Ok(object),
        _ => Err(Failure::problem(format!("a measured program failed: {}", String::from_utf8_lossy(&done.stderr)))),
    }
}
