//! Waiting for what happens in the open folder (RFC 2177).

use std::io;

use super::wire::Spoilt;
use super::{Done, Session, bad};

impl Session {
    pub(super) async fn idle(&mut self) -> io::Result<Done> {
        let Some(user) = self.user.clone() else { return Ok(bad("Log in first.")) };
        let mut changes = user.changes.subscribe();
        self.wire.send("+ Waiting.\r\n").await?;
        loop {
            // What happened before anybody waited is news as well.
            if !self.tell_news() {
                self.wire.send("* BYE The folder that was open is another one now.\r\n").await?;
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            self.flush(Spoilt::default()).await?;
            tokio::select! {
                line = self.wire.line() => {
                    let line = line?.ok_or(io::ErrorKind::UnexpectedEof)?;
                    return Ok(match line.eq_ignore_ascii_case(b"DONE") {
                        true => Ok("Done.".to_owned()),
                        false => bad("IDLE ends with DONE."),
                    });
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
