//! Reads passwords and tokens: from a file, from a pipe, or typed without echo.

use std::io::IsTerminal;
use std::path::Path;

use domain::Secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use terminal::{Failure, note};
use tokio::sync::oneshot;

pub(in crate::commands) fn read_secret(file: &Path) -> Result<Secret<String>, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| Failure::problem(format!("cannot read the secret in {} ({e})", file.display())))?;
    without_line_end(text)
        .ok_or_else(|| Failure::problem(format!("{} is empty, but must contain a secret", file.display())))
}

fn without_line_end(text: String) -> Option<Secret<String>> {
    let text = Secret::new(text);
    let line = text.expose().trim_end_matches(['\r', '\n']);
    (!line.is_empty()).then(|| Secret::new(line.to_owned()))
}

/// Asks for the password on a terminal without echo; else reads the first line of standard input.
pub(super) async fn ask_password(prompt: &str) -> Result<Secret<String>, Failure> {
    if !std::io::stdin().is_terminal() {
        let line = read_line()?;
        let none = "a password is required; name a file with --password-file, or write it to standard input";
        return without_line_end(line).ok_or_else(|| Failure::usage(none));
    }
    note(prompt);
    let hidden_input = HiddenInput::begin()?;
    let (sender, typed) = oneshot::channel();
    // A detached thread: after Ctrl-C the process must not wait for Return.
    std::thread::spawn(move || sender.send(read_line()));
    let typed = tokio::select! {
        typed = typed => typed,
        _ = tokio::signal::ctrl_c() => {
            drop(hidden_input);
            return Err(Failure::problem("nothing was changed"));
        }
    };
    drop(hidden_input);
    let line = typed.map_err(|_| Failure::problem("the password could not be read"))??;
    without_line_end(line).ok_or_else(|| Failure::problem("no password was typed; nothing was changed"))
}

fn read_line() -> std::io::Result<String> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line)
}

/// Disables the echo of the terminal until dropped.
struct HiddenInput {
    before: Termios,
}

impl HiddenInput {
    fn begin() -> Result<Self, Failure> {
        let before = tcgetattr(std::io::stdin()).map_err(cannot_hide)?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        // The end of the line is shown, so that what follows begins on a new one.
        hidden.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(std::io::stdin(), OptionalActions::Flush, &hidden).map_err(cannot_hide)?;
        Ok(Self { before })
    }
}

fn cannot_hide(e: rustix::io::Errno) -> Failure {
    Failure::problem(format!("the terminal cannot hide a password ({e}); use --password-file"))
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<String> {
        without_line_end(text.to_owned()).map(|secret| secret.expose().clone())
    }

    #[test]
    fn line_end_is_not_part_of_a_password() {
        assert_eq!(read(" two words \r\n").as_deref(), Some(" two words "));
        assert_eq!(read("\n"), None);
        assert_eq!(read(""), None);
    }
}
