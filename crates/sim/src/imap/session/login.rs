//! LOGIN, AUTHENTICATE and ENABLE.

use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::command_parser::Word;
use super::{CommandResult, Session, bad, no};

fn decode(said: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(said.trim()).ok()?).ok()
}

/// Returns the user that a login command names, if it does so in its first line.
pub fn claimed_user(command: &str, rest: &[Word]) -> Option<String> {
    let user = match command {
        "LOGIN" => rest.first()?.text()?,
        "AUTHENTICATE" => decode(&rest.get(1)?.text()?)?.split('\0').nth(1)?.to_owned(),
        _ => return None,
    };
    Some(user.to_lowercase())
}

impl Session {
    pub(super) fn log_in(&mut self, rest: &[Word]) -> CommandResult {
        if self.world.offers("LOGINDISABLED") {
            return bad("LOGIN is not offered.");
        }
        match rest.iter().map(Word::text).collect::<Vec<_>>().as_slice() {
            [Some(user), Some(password)] => self.authenticate_user(user, password),
            _ => bad("LOGIN takes a name and a password."),
        }
    }

    /// Handles AUTHENTICATE PLAIN (RFC 4616), with or without an initial response.
    pub(super) async fn authenticate(&mut self, rest: &[Word]) -> io::Result<CommandResult> {
        let is_plain = rest.first().is_some_and(|word| word.keyword() == "PLAIN") && self.world.offers("AUTH=PLAIN");
        if !is_plain {
            return Ok(bad("There is no such way to log in."));
        }
        let said = match rest.get(1).and_then(Word::text) {
            Some(_) if !self.world.offers("SASL-IR") => return Ok(bad("Wait until you are asked.")),
            Some(said) => said,
            None => {
                self.wire.send("+ \r\n").await?;
                match self.wire.line().await? {
                    Some(line) => String::from_utf8_lossy(&line).into_owned(),
                    None => return Err(io::ErrorKind::UnexpectedEof.into()),
                }
            }
        };
        let Some(decoded) = decode(&said) else { return Ok(bad("This is no base64.")) };
        Ok(match decoded.split('\0').collect::<Vec<_>>()[..] {
            [as_whom, user, password] if as_whom.is_empty() || as_whom == user => {
                self.authenticate_user(user, password)
            }
            _ => bad("This is not what PLAIN says."),
        })
    }

    fn authenticate_user(&mut self, user: &str, password: &str) -> CommandResult {
        if self.user.is_some() {
            return bad("Somebody is logged in already.");
        }
        match self.world.log_in(user, password) {
            Ok(mailbox) => {
                self.ends = mailbox.state.ends.subscribe();
                self.user = Some(mailbox);
                Ok(format!("[CAPABILITY {}] Logged in.", self.capabilities()))
            }
            Err(why) => no(why),
        }
    }

    pub(super) fn enable(&mut self, rest: &[Word]) -> CommandResult {
        let mut granted = Vec::new();
        for name in rest.iter().map(Word::keyword).filter(|name| self.world.offers(name)) {
            match name.as_str() {
                "CONDSTORE" => self.enabled.condstore = true,
                // QRESYNC implies CONDSTORE (RFC 7162, section 3.2.3).
                "QRESYNC" => (self.enabled.condstore, self.enabled.qresync) = (true, true),
                "UTF8=ACCEPT" => self.enabled.utf8 = true,
                _ => continue,
            }
            granted.push(name);
        }
        self.line(&format!("* ENABLED {}", granted.join(" ")));
        Ok("Done.".to_owned())
    }
}
