//! The owner of a mailbox, who changes it all the time: mail comes, is copied, moved, marked and removed, folders too.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use domain::Sha256;

use super::super::compare::imap_line;
use crate::crash::SeededRandom;

/// Folders that owners make, rename and remove beside the inbox. The last one is out of scope.
const FOLDERS: [&str; 5] = ["INBOX", "Work", "Private", "Lists", "Trash"];

/// Longer than most mail, so that some is cut in the middle.
const MAX_LETTER_BYTES: u64 = 40_000;

/// A connection of the owner's mail program, straight to the server.
pub struct MailboxOwner {
    pub user: String,
    stream: BufReader<TcpStream>,
    letters: u64,
}

/// An untagged response, with the literal in it.
type UntaggedResponse = (String, Vec<u8>);

impl MailboxOwner {
    /// Logs in; `None` while the server is away.
    pub fn log_in(user: &str, port: u16) -> Option<Self> {
        let stream = BufReader::new(TcpStream::connect(("127.0.0.1", port)).ok()?);
        let mut owner = Self { user: user.to_owned(), stream, letters: 0 };
        owner.command(&format!("LOGIN {user} pw"))?;
        Some(owner)
    }

    /// Sends a command and returns its responses; `None` if it was refused or the server went away.
    fn command(&mut self, command: &str) -> Option<Vec<UntaggedResponse>> {
        self.stream.get_mut().write_all(format!("x {command}\r\n").as_bytes()).ok()?;
        let mut responses = Vec::new();
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line.starts_with("x ") {
                return line.starts_with("x OK").then_some(responses);
            }
            let length = line.trim_end().strip_suffix('}').and_then(|line| line.rsplit_once('{')?.1.parse().ok());
            let mut literal = vec![0; length.unwrap_or(0)];
            self.stream.read_exact(&mut literal).ok()?;
            responses.push((line, literal));
        }
    }

    /// Makes a random change; some are refused, as when a folder does not exist.
    pub fn change_something(&mut self, random: &mut SeededRandom) {
        let (folder, other) = (random_folder(random), random_folder(random));
        match random.below(20) {
            0..=8 => self.receive(if random.below(2) == 0 { "INBOX" } else { folder }, random),
            9 => self.with_one(folder, random, |uid| vec![format!("UID COPY {uid} {other}")]),
            10..=11 => self.with_one(folder, random, |uid| vec![format!("UID MOVE {uid} {other}")]),
            12..=14 => {
                let flag =
                    ["\\Seen", "\\Flagged", "\\Answered", "$Forwarded"][usize::try_from(random.below(4)).unwrap()];
                let sign = if random.below(3) == 0 { '-' } else { '+' };
                self.with_one(folder, random, |uid| vec![format!("UID STORE {uid} {sign}FLAGS ({flag})")]);
            }
            15..=16 => self.with_one(folder, random, |uid| {
                vec![format!("UID STORE {uid} +FLAGS (\\Deleted)"), format!("UID EXPUNGE {uid}")]
            }),
            17 => drop(self.command(&format!("CREATE {folder}"))),
            18 if folder != "INBOX" && other != "INBOX" => drop(self.command(&format!("RENAME {folder} {other}"))),
            19 if folder != "INBOX" && random.below(3) == 0 => drop(self.command(&format!("DELETE {folder}"))),
            _ => {}
        }
    }

    pub fn receive(&mut self, folder: &str, random: &mut SeededRandom) {
        // Some letters come twice, byte for byte.
        if random.below(10) > 0 {
            self.letters += 1;
        }
        let (number, user) = (self.letters, &self.user);
        let mut letter = format!(
            "From: ann@acme.test\r\nTo: {user}@acme.test\r\nSubject: letter {number}\r\nMessage-ID: <{number}.{user}>\r\n\r\n"
        );
        let length = number.wrapping_mul(7919) % MAX_LETTER_BYTES;
        while (letter.len() as u64) < length {
            letter.push_str("All work and no play makes a mailbox full of mail.\r\n");
        }
        self.command(&format!("APPEND {folder} {{{}+}}\r\n{letter}", letter.len()));
    }

    fn with_one(&mut self, folder: &str, random: &mut SeededRandom, commands: impl FnOnce(u32) -> Vec<String>) {
        if self.command(&format!("SELECT {folder}")).is_none() {
            return;
        }
        let uids: Vec<u32> =
            self.command("UID SEARCH ALL").iter().flatten().flat_map(|(line, _)| numbers(line)).collect();
        if !uids.is_empty() {
            let uid = uids[usize::try_from(random.below(uids.len() as u64)).unwrap()];
            commands(uid).iter().for_each(|command| drop(self.command(command)));
        }
        self.command("UNSELECT");
    }

    /// Returns the line of every message that is in scope.
    pub fn truth(&mut self) -> BTreeSet<String> {
        let mut truth = BTreeSet::new();
        for folder in FOLDERS.into_iter().filter(|folder| *folder != "Trash") {
            let Some(selected) = self.command(&format!("EXAMINE {folder}")) else { continue };
            let validity =
                selected.iter().find_map(|(line, _)| line.split_once("[UIDVALIDITY ")).expect("Dovecot has one");
            let validity = validity.1.split(']').next().unwrap().to_owned();
            for (line, bytes) in self.command("UID FETCH 1:* (FLAGS BODY.PEEK[])").unwrap() {
                let Some((_, uid)) = line.split_once("(UID ") else { continue };
                let uid = uid.split(' ').next().unwrap();
                let flags = line.split_once("FLAGS (").unwrap().1.split(')').next().unwrap();
                let mut flags: Vec<String> = flags
                    .split_ascii_whitespace()
                    .filter(|flag| *flag != "\\Recent")
                    .map(|flag| flag.trim_start_matches('\\').to_lowercase())
                    .collect();
                flags.sort();
                let hash = Sha256::of(&bytes).hex();
                truth.insert(imap_line(
                    &format!("{}@acme.test", self.user),
                    folder,
                    &format!("{validity}.{uid}"),
                    &flags,
                    &hash,
                ));
            }
        }
        truth
    }
}

fn random_folder(random: &mut SeededRandom) -> &'static str {
    FOLDERS[usize::try_from(random.below(FOLDERS.len() as u64)).unwrap()]
}

fn numbers(line: &str) -> Vec<u32> {
    let found = line.trim_start_matches("* SEARCH").split_ascii_whitespace();
    found.map_while(|number| number.parse().ok()).collect()
}
