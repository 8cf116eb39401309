//! What opens a mailbox: from a file, from a pipe, or typed without being seen.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use domain::Secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::output::tell;

/// What a command names; at most one of them.
#[derive(Debug)]
pub(super) struct SecretFiles {
    pub password: Option<PathBuf>,
    pub token: Option<PathBuf>,
    pub refresh_token: Option<PathBuf>,
}

#[derive(Debug)]
pub(super) struct NewSecret {
    pub value: Secret<String>,
    pub sort: Sort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Password,
    Token,
    RefreshToken,
}

impl SecretFiles {
    pub fn read(&self) -> Result<Option<NewSecret>, Failure> {
        let files =
            [(&self.token, Sort::Token), (&self.refresh_token, Sort::RefreshToken), (&self.password, Sort::Password)];
        let given = files.into_iter().find_map(|(file, sort)| Some((file.as_deref()?, sort)));
        given.map(|(file, sort)| Ok(NewSecret { value: read_secret(file)?, sort })).transpose()
    }
}

pub(super) fn read_secret(file: &Path) -> Result<Secret<String>, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| Failure::problem(format!("cannot read the secret in {} ({e})", file.display())))?;
    without_line_end(text)
        .ok_or_else(|| Failure::problem(format!("{} is empty, but should hold a secret", file.display())))
}

fn without_line_end(text: String) -> Option<Secret<String>> {
    let text = Secret::new(text);
    let line = text.expose().trim_end_matches(['\r', '\n']);
    (!line.is_empty()).then(|| Secret::new(line.to_owned()))
}

/// On a terminal it is asked for and not shown; else it is the first line of standard input.
pub(super) async fn ask_password(user: &str, host: &str) -> Result<Secret<String>, Failure> {
    if !std::io::stdin().is_terminal() {
        let line = read_line()?;
        let none = "there is no password: name a file with --password-file, or write it to standard input";
        return without_line_end(line).ok_or_else(|| Failure::usage(none));
    }
    tell(&format!("Password of {user} at {host} (it is not shown):"));
    let unseen = Unseen::begin()?;
    let (sender, typed) = oneshot::channel();
    // A thread that nobody waits for: whoever interrupts us must not have to press Return for it.
    std::thread::spawn(move || sender.send(read_line()));
    let typed = tokio::select! {
        typed = typed => typed,
        _ = tokio::signal::ctrl_c() => {
            drop(unseen);
            return Err(Failure::problem("nothing was changed"));
        }
    };
    drop(unseen);
    let line = typed.map_err(|_| Failure::problem("the password could not be read"))??;
    without_line_end(line).ok_or_else(|| Failure::problem("no password was typed; nothing was changed"))
}

fn read_line() -> std::io::Result<String> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line)
}

/// The terminal does not show what is typed while this lives.
struct Unseen {
    before: Termios,
}

impl Unseen {
    fn begin() -> Result<Self, Failure> {
        let failed = |e| Failure::problem(format!("the terminal cannot hide a password ({e}); use --password-file"));
        let before = tcgetattr(std::io::stdin()).map_err(failed)?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        // The end of the line is shown, so that what follows begins on a new one.
        hidden.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(std::io::stdin(), OptionalActions::Flush, &hidden).map_err(failed)?;
        Ok(Self { before })
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        // A terminal that is gone is no trouble.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_end_is_no_part_of_a_password_and_nothing_is_none() {
        let read = |text: &str| without_line_end(text.to_owned()).map(|secret| secret.expose().clone());
        assert_eq!(read(" two words \r\n").as_deref(), Some(" two words "));
        assert_eq!(read("\n"), None);
        assert_eq!(read(""), None);
    }
}
