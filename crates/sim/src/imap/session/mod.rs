//! One IMAP connection: reads commands, applies faults, answers.

mod change;
mod command_parser;
mod fetch;
mod folders;
mod idle;
mod login;
mod search;
mod select;
mod sequence_set;
mod wire;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::faults::{ImapFaultKind, ImapRoute};
use super::world::{ImapMailbox, ImapWorld};
use crate::body_damage::BodyDamage;
use crate::spec::Side;
use command_parser::Word;
use select::SelectedFolder;
use wire::Wire;

pub struct Session {
    world: Arc<ImapWorld>,
    wire: Wire,
    user: Option<Arc<ImapMailbox>>,
    /// Signals that all connections of the user are to end.
    ends: watch::Receiver<u64>,
    /// The tag of the current command.
    tag: String,
    selected: Option<SelectedFolder>,
    enabled: EnabledExtensions,
    /// The output buffer.
    out: Vec<Bytes>,
}

/// The extensions that the client has enabled.
#[derive(Debug, Clone, Copy, Default)]
struct EnabledExtensions {
    condstore: bool,
    qresync: bool,
    utf8: bool,
}

/// The completion of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CommandEnd {
    /// Text, with a response code in brackets if there is one.
    Ok(String),
    No(String),
    /// The command is invalid, or was not offered.
    Bad(String),
}

type CommandResult = Result<String, CommandEnd>;

fn bad<T>(why: &str) -> Result<T, CommandEnd> {
    Err(CommandEnd::Bad(why.to_owned()))
}

fn no<T>(why: &str) -> Result<T, CommandEnd> {
    Err(CommandEnd::No(why.to_owned()))
}

impl Session {
    pub async fn run(stream: TcpStream, world: Arc<ImapWorld>) {
        let wire = Wire::new(stream);
        let mut session = Self {
            world,
            wire,
            user: None,
            ends: watch::Sender::new(0).subscribe(),
            tag: String::new(),
            selected: None,
            enabled: EnabledExtensions::default(),
            out: Vec::new(),
        };
        // Errors are expected: clients disconnect, and connections are cut on purpose.
        let _ = session.serve().await;
    }

    async fn serve(&mut self) -> io::Result<()> {
        self.world.wait().await;
        let faults = self.world.faults.draw("", ImapRoute::Greeting);
        if let Some(fault) = faults.iter().find(|fault| crate::faults::FaultKind::replaces_response(*fault)) {
            self.fail("", fault).await?;
            return Ok(());
        }
        self.line(&format!("* OK [CAPABILITY {}] Simulated.", self.capabilities()));
        if !self.flush(damage_of(&faults)).await? {
            return Ok(());
        }
        while let Some(line) = self.next_line().await? {
            if !self.command(line).await? {
                break;
            }
        }
        Ok(())
    }

    /// Reads the next command line, unless the connection is ended meanwhile.
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

    async fn command(&mut self, line: Vec<u8>) -> io::Result<bool> {
        let Some(pieces) = self.wire.rest(line, self.world.offers("LITERAL+")).await? else { return Ok(false) };
        let words = command_parser::read(&pieces).unwrap_or_default();
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
            None => login::claimed_user(&name, rest).unwrap_or_default(),
        };
        let faults = self.world.faults.draw(&account, route);
        if let Some(fault) = faults.iter().find(|fault| crate::faults::FaultKind::replaces_response(*fault)) {
            let status = match fault {
                ImapFaultKind::No { .. } => STATUS_NO,
                ImapFaultKind::Bad => STATUS_BAD,
                _ => 0,
            };
            self.world.requests.add(&name, route, &account, status, false);
            return self.fail(&tag, fault).await;
        }
        let end = match self.answer(&name, rest).await? {
            Ok(text) => CommandEnd::Ok(text),
            Err(end) => end,
        };
        // A login is logged under the account that it opened.
        let account = self.user.as_ref().map_or(account, |user| user.address.clone());
        let (status, completion) = match &end {
            CommandEnd::Ok(text) => (STATUS_OK, format!("{tag} OK {text}")),
            CommandEnd::No(text) => (STATUS_NO, format!("{tag} NO {text}")),
            CommandEnd::Bad(text) => {
                self.world.violations.add(Side::Request, &name, text);
                (STATUS_BAD, format!("{tag} BAD {text}"))
            }
        };
        self.world.requests.add(&name, route, &account, status, false);
        // These commands use sequence numbers, which must not change under the client.
        let is_still_there = matches!(name.as_str(), "FETCH" | "STORE" | "SEARCH") || self.announce_changes();
        if faults.contains(&ImapFaultKind::UnknownResponses) {
            self.add_unknown_responses();
        }
        self.line(&completion);
        if !is_still_there {
            self.line("* BYE The folder that was open is another one now.");
        }
        Ok(self.flush(damage_of(&faults)).await? && is_still_there && name != "LOGOUT")
    }

    async fn answer(&mut self, name: &str, rest: &[Word]) -> io::Result<CommandResult> {
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

    fn answer_from_mailbox(&mut self, name: &str, rest: &[Word]) -> CommandResult {
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

    /// Commits a fault instead of answering. Returns whether the connection stays open.
    async fn fail(&mut self, tag: &str, fault: &ImapFaultKind) -> io::Result<bool> {
        match fault {
            ImapFaultKind::No { code, text } => {
                let code = code.as_ref().map(|code| format!("[{code}] ")).unwrap_or_default();
                self.wire.send(&format!("{tag} NO {code}{text}\r\n")).await?;
                return Ok(true);
            }
            ImapFaultKind::Bad => {
                self.wire.send(&format!("{tag} BAD Scripted\r\n")).await?;
                return Ok(true);
            }
            ImapFaultKind::Bye { text } => self.wire.send(&format!("* BYE {text}\r\n")).await?,
            ImapFaultKind::Hang { ms } => {
                tokio::time::sleep(Duration::from_millis(*ms)).await;
                self.wire.send("* BYE It took too long.\r\n").await?;
            }
            ImapFaultKind::Garbage => self.wire.send("<html><body>It works!</body></html>\r\n").await?,
            ImapFaultKind::Reset => self.wire.reset(),
            ImapFaultKind::Cut
            | ImapFaultKind::CutBody
            | ImapFaultKind::Slow { .. }
            | ImapFaultKind::UnknownResponses => {}
        }
        Ok(false)
    }

    fn capabilities(&self) -> String {
        let all = self.world.capabilities();
        // Login mechanisms are not offered after login.
        all.split(' ').filter(|word| self.user.is_none() || !word.starts_with("AUTH=")).collect::<Vec<_>>().join(" ")
    }

    fn line(&mut self, text: &str) {
        self.out.push(Bytes::from(format!("{text}\r\n")));
    }

    /// Adds what RFC 9051 lets a server send at any time, and a client has to ignore.
    fn add_unknown_responses(&mut self) {
        self.line("* OK [XNEWS 1 (2 \"three\")] Something that was added later.");
        self.line("* XADDED {6}\r\n* 1 OK (NIL \"quoted \\\" text\" [x])");
        if self.selected.as_ref().is_some_and(|selected| !selected.uids.is_empty()) {
            self.line("* 1 FETCH (X-ADDED.LATER (1 {2}\r\n)) NIL))");
        }
    }

    async fn flush(&mut self, damage: BodyDamage) -> io::Result<bool> {
        let out = std::mem::take(&mut self.out);
        self.wire.send_all(out, damage).await
    }

    /// Returns the user's mailbox.
    fn mailbox(&self) -> Result<Arc<ImapMailbox>, CommandEnd> {
        self.user.clone().ok_or_else(|| CommandEnd::Bad("Log in first.".to_owned()))
    }
}

/// The statuses under which the request log records completions.
const STATUS_OK: u16 = 200;
const STATUS_NO: u16 = 403;
const STATUS_BAD: u16 = 400;

fn damage_of(faults: &[ImapFaultKind]) -> BodyDamage {
    let mut damage = BodyDamage::default();
    for fault in faults {
        match fault {
            ImapFaultKind::CutBody => damage.is_cut = true,
            ImapFaultKind::Slow { bytes, ms } => damage.slow = Some((*bytes, Duration::from_millis(*ms))),
            _ => {}
        }
    }
    damage
}

fn route(name: &str, rest: &[Word]) -> ImapRoute {
    match name.trim_start_matches("UID ") {
        "LOGIN" | "AUTHENTICATE" => ImapRoute::Login,
        "LIST" | "LSUB" => ImapRoute::List,
        "STATUS" => ImapRoute::Status,
        "SELECT" | "EXAMINE" => ImapRoute::Select,
        "FETCH" if format!("{rest:?}").contains("BODY") => ImapRoute::Body,
        "FETCH" => ImapRoute::Fetch,
        "SEARCH" => ImapRoute::Search,
        "IDLE" => ImapRoute::Idle,
        "STORE" | "COPY" | "MOVE" | "EXPUNGE" | "APPEND" | "CREATE" | "DELETE" | "RENAME" => ImapRoute::Change,
        _ => ImapRoute::Other,
    }
}
