//! IDLE (RFC 2177).

use std::io;

use super::{CommandResult, Session, bad};
use crate::body_damage::BodyDamage;

impl Session {
    pub(super) async fn idle(&mut self) -> io::Result<CommandResult> {
        let Some(user) = self.user.clone() else { return Ok(bad("Log in first.")) };
        let mut changes = user.state.changes.subscribe();
        self.wire.send("+ Waiting.\r\n").await?;
        loop {
            // Changes from before the wait are announced, too.
            if !self.announce_changes() {
                self.wire.send("* BYE The folder that was open is another one now.\r\n").await?;
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            self.flush(BodyDamage::default()).await?;
            tokio::select! {
                line = self.wire.line() => {
                    let line = line?.ok_or(io::ErrorKind::UnexpectedEof)?;
                    return Ok(if line.eq_ignore_ascii_case(b"DONE") { Ok("Done.".to_owned()) } else { bad("IDLE ends with DONE.") });
                }
                _ = changes.changed() => {}
                _ = self.ends.changed() => {
                    self.wire.send("* BYE Disconnected.\r\n").await?;
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            }
        }
    }
}
