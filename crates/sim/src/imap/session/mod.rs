//! One connection, from the greeting to the end.

mod change;
mod fetch;
mod folders;
mod idle;
mod login;
mod search;
mod select;
mod sets;
mod wire;
mod words;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::faults::{Kind, Route};
use super::world::{Mailbox, World};
use crate::spec::Side;
use select::Selected;
use wire::{Spoilt, Wire};
use words::Word;

pub struct Session {
    world: Arc<World>,
    wire: Wire,
    user: Option<Arc<Mailbox>>,
    /// Whether somebody ends all connections of the user.
    ends: watch::Receiver<u64>,
    /// Of the command under way.
    tag: String,
    selected: Option<Selected>,
    enabled: Enabled,
    /// What is to be sent.
    out: Vec<Bytes>,
}

/// What the other side has asked for.
#[derive(Debug, Clone, Copy, Default)]
struct Enabled {
    condstore: bool,
    qresync: bool,
    utf8: bool,
}

/// How a command ends.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// With a code in brackets, if there is one.
    Ok(String),
    No(String),
    /// It is no command, or not one that was offered.
    Bad(String),
}

type Done = Result<String, End>;

fn bad<T>(why: &str) -> Result<T, End> {
    Err(End::Bad(why.to_owned()))
}

fn no<T>(why: &str) -> Result<T, End> {
    Err(End::No(why.to_owned()))
}

/// Whether the connection goes on.
type GoesOn = io::Result<bool>;

impl Session {
    pub async fn run(stream: TcpStream, world: Arc<World>) {
        let wire = Wire::new(stream);
        let mut session = Self {
            world,
            wire,
            user: None,
            ends: watch::Sender::new(0).subscribe(),
            tag: String::new(),
            selected: None,
            enabled: Enabled::default(),
            out: Vec::new(),
        };
        // The outcome is nobody's business: programs go away, and we cut them off on purpose.
        let _ = session.talk().await;
    }

    async fn talk(&mut self) -> io::Result<()> {
        self.world.wait().await;
        let faults = self.world.faults.draw("", Route::Greeting);
        if let Some(fault) = faults.iter().find(|fault| crate::faults::Failing::is_answer(*fault)) {
            self.fail("", fault).await?;
            return Ok(());
        }
        self.line(&format!("* OK [CAPABILITY {}] Simulated.", self.capabilities()));
        if !self.flush(spoilt(&faults)).await? {
            return Ok(());
        }
        while let Some(line) = self.next_line().await? {
            if !self.command(line).await? {
                break;
            }
        }
        Ok(())
    }

    /// The next command, unless somebody ends the connection meanwhile.
    async fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.user.is_none() {
            return self.wire.line().await;
        }
        tokio::select! {
            line = self.wire.line() => line,
            _ = self.ends.changed() => {
                self.wire.send("* BYE Disconnected.\r\n").await?;
                Ok(None)
            }
        }
    }

    async fn command(&mut self, line: Vec<u8>) -> GoesOn {
        let Some(pieces) = self.wire.rest(line, self.world.offers("LITERAL+")).await? else { return Ok(false) };
        let words = words::read(&pieces).unwrap_or_default();
        let (Some(tag), Some(name)) = (words.first().and_then(Word::text), words.get(1)) else {
            self.world.violations.add(Side::Request, "command", "this is no command");
            self.wire.send("* BAD This is no command.\r\n").await?;
            return Ok(true);
        };
        let mut rest = &words[2..];
        let mut name = name.keyword();
        if let ("UID", Some(of)) = (name.as_str(), rest.first()) {
            name = format!("UID {}", of.keyword());
            rest = &rest[1..];
        }
        self.tag.clone_from(&tag);
        self.world.wait().await;
        let route = route(&name, rest);
        let account = match &self.user {
            Some(user) => user.address.clone(),
            None => login::named(&name, rest).unwrap_or_default(),
        };
        let faults = self.world.faults.draw(&account, route);
        if let Some(fault) = faults.iter().find(|fault| crate::faults::Failing::is_answer(*fault)) {
            let status = match fault {
                Kind::No { .. } => NO,
                Kind::Bad => BAD,
                _ => 0,
            };
            self.world.requests.add(&name, route, &account, status, false);
            return self.fail(&tag, fault).await;
        }
        let end = match self.answer(&name, rest).await? {
            Ok(text) => End::Ok(text),
            Err(end) => end,
        };
        // Whoever has just logged in is who it was.
        let account = self.user.as_ref().map_or(account, |user| user.address.clone());
        let (status, told) = match &end {
            End::Ok(text) => (OK, format!("{tag} OK {text}")),
            End::No(text) => (NO, format!("{tag} NO {text}")),
            End::Bad(text) => {
                self.world.violations.add(Side::Request, &name, text);
                (BAD, format!("{tag} BAD {text}"))
            }
        };
        self.world.requests.add(&name, route, &account, status, false);
        // What it was told numbers of must not move while it uses them.
        let is_still_there = matches!(name.as_str(), "FETCH" | "STORE" | "SEARCH") || self.tell_news();
        self.line(&told);
        if !is_still_there {
            self.line("* BYE The folder that was open is another one now.");
        }
        Ok(self.flush(spoilt(&faults)).await? && is_still_there && name != "LOGOUT")
    }

    async fn answer(&mut self, name: &str, rest: &[Word]) -> io::Result<Done> {
        Ok(match name {
            "CAPABILITY" => {
                self.line(&format!("* CAPABILITY {}", self.capabilities()));
                Ok("Done.".to_owned())
            }
            "NOOP" | "CHECK" => Ok("Done.".to_owned()),
            "LOGOUT" => {
                self.line("* BYE Logging out.");
                Ok("Done.".to_owned())
            }
            "ID" if self.world.offers("ID") => {
                self.line("* ID (\"name\" \"Simulated\")");
                Ok("Done.".to_owned())
            }
            "LOGIN" => self.log_in(rest),
            "AUTHENTICATE" => return self.authenticate(rest).await,
            _ if self.user.is_none() => bad("Log in first."),
            "IDLE" if self.world.offers("IDLE") => return self.idle().await,
            _ => self.answer_from_mailbox(name, rest),
        })
    }

    fn answer_from_mailbox(&mut self, name: &str, rest: &[Word]) -> Done {
        match name {
            "ENABLE" if self.world.offers("ENABLE") => self.enable(rest),
            "NAMESPACE" if self.world.offers("NAMESPACE") => {
                self.line("* NAMESPACE ((\"\" \"/\")) NIL NIL");
                Ok("Done.".to_owned())
            }
            "LIST" | "LSUB" => self.list(name, rest),
            "STATUS" => self.status(rest),
            "CREATE" | "DELETE" | "RENAME" => self.change_folders(name, rest),
            "SUBSCRIBE" | "UNSUBSCRIBE" => Ok("Done.".to_owned()),
            "SELECT" | "EXAMINE" => self.select(name == "EXAMINE", rest),
            "APPEND" => self.append(rest),
            "CLOSE" => self.close(true),
            "UNSELECT" if self.world.offers("UNSELECT") => self.close(false),
            _ if self.selected.is_none() => bad("There is no such command, or no folder is open."),
            "FETCH" | "UID FETCH" => self.fetch(name == "UID FETCH", rest),
            "SEARCH" | "UID SEARCH" => self.search(name == "UID SEARCH", rest),
            "STORE" | "UID STORE" => self.store(name == "UID STORE", rest),
            "COPY" | "UID COPY" => self.copy(name == "UID COPY", rest, false),
            "MOVE" | "UID MOVE" if self.world.offers("MOVE") => self.copy(name == "UID MOVE", rest, true),
            "EXPUNGE" => self.expunge(None),
            "UID EXPUNGE" if self.world.offers("UIDPLUS") => self.expunge(rest.first()),
            _ => bad("There is no such command, or it is not offered."),
        }
    }

    /// In place of an answer. Whether the connection goes on.
    async fn fail(&mut self, tag: &str, fault: &Kind) -> GoesOn {
        match fault {
            Kind::No { code, text } => {
                let code = code.as_ref().map(|code| format!("[{code}] ")).unwrap_or_default();
                self.wire.send(&format!("{tag} NO {code}{text}\r\n")).await?;
                return Ok(true);
            }
            Kind::Bad => {
                self.wire.send(&format!("{tag} BAD Scripted\r\n")).await?;
                return Ok(true);
            }
            Kind::Bye { text } => self.wire.send(&format!("* BYE {text}\r\n")).await?,
            Kind::Hang { ms } => {
                tokio::time::sleep(Duration::from_millis(*ms)).await;
                self.wire.send("* BYE It took too long.\r\n").await?;
            }
            Kind::Garbage => self.wire.send("<html><body>It works!</body></html>\r\n").await?,
            Kind::Reset => self.wire.reset(),
            Kind::Cut | Kind::CutBody | Kind::Slow { .. } => {}
        }
        Ok(false)
    }

    fn capabilities(&self) -> String {
        let all = self.world.capabilities();
        // Ways to log in are of no use to whoever is in.
        let is_of_use = |word: &&str| self.user.is_none() || !word.starts_with("AUTH=");
        all.split(' ').filter(is_of_use).collect::<Vec<_>>().join(" ")
    }

    fn line(&mut self, text: &str) {
        self.out.push(Bytes::from(format!("{text}\r\n")));
    }

    async fn flush(&mut self, spoilt: Spoilt) -> GoesOn {
        let out = std::mem::take(&mut self.out);
        self.wire.send_all(out, spoilt).await
    }

    /// The mailbox; whoever gets here has logged in.
    fn mailbox(&self) -> Result<Arc<Mailbox>, End> {
        self.user.clone().ok_or_else(|| End::Bad("Log in first.".to_owned()))
    }
}

/// How the log of requests tells the end of a command.
const OK: u16 = 200;
const NO: u16 = 403;
const BAD: u16 = 400;

fn spoilt(faults: &[Kind]) -> Spoilt {
    let mut spoilt = Spoilt::default();
    for fault in faults {
        match fault {
            Kind::CutBody => spoilt.is_cut = true,
            Kind::Slow { bytes, ms } => spoilt.slow = Some((*bytes, Duration::from_millis(*ms))),
            _ => {}
        }
    }
    spoilt
}

fn route(name: &str, rest: &[Word]) -> Route {
    match name.trim_start_matches("UID ") {
        "LOGIN" | "AUTHENTICATE" => Route::Login,
        "LIST" | "LSUB" => Route::List,
        "STATUS" => Route::Status,
        "SELECT" | "EXAMINE" => Route::Select,
        "FETCH" if format!("{rest:?}").contains("BODY") => Route::Body,
        "FETCH" => Route::Fetch,
        "SEARCH" => Route::Search,
        "IDLE" => Route::Idle,
        "STORE" | "COPY" | "MOVE" | "EXPUNGE" | "APPEND" | "CREATE" | "DELETE" | "RENAME" => Route::Change,
        _ => Route::Other,
    }
}
