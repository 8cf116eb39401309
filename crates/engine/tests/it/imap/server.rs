//! The owner of the mailbox, with a mail program of their own.
#![expect(clippy::disallowed_methods, reason = "the tests' servers are named in the environment")]

use std::collections::BTreeSet;

use domain::{Secret, Sha256};
use providers::imap::client::{
    BodyFault, BodySink, Client, ClientSettings, Credentials, FetchItems, Metadata, SearchCriteria, Security, UidSet,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

pub fn port() -> u16 {
    let url = std::env::var("MAILROOM_TEST_IMAP_URL")
        .expect("MAILROOM_TEST_IMAP_URL names an IMAP server; see CONTRIBUTING.md");
    url.trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap()
}

pub struct Owner {
    stream: BufReader<TcpStream>,
    pub user: String,
    delimiter: String,
    capabilities: String,
}

/// A message in its place: folder, number and UID, flags, the hash of its bytes.
pub type Thing = (String, String, String, String);

impl Owner {
    pub async fn new(user: &str) -> Self {
        let stream = BufReader::new(TcpStream::connect(("127.0.0.1", port())).await.unwrap());
        let mut owner = Self { stream, user: user.to_owned(), delimiter: String::new(), capabilities: String::new() };
        owner.does(&format!("LOGIN {user} pw")).await;
        let listed = owner.does("LIST \"\" \"\"").await;
        owner.delimiter = listed[0].split('"').nth(1).unwrap().to_owned();
        owner.capabilities = owner.does("CAPABILITY").await.concat();
        owner.create_usual_folders().await;
        owner
    }

    /// What they are for is known to some servers by their names; others are told.
    async fn create_usual_folders(&mut self) {
        let is_told = self.server_has("CREATE-SPECIAL-USE");
        for folder in ["Drafts", "Junk", "Sent", "Trash"] {
            let purpose = if is_told { format!(" (USE (\\{folder}))") } else { String::new() };
            self.does(&format!("CREATE {folder}{purpose}")).await;
        }
    }

    pub fn server_has(&self, capability: &str) -> bool {
        self.capabilities.split_ascii_whitespace().any(|word| word == capability)
    }

    /// A folder in folders, as this server writes it.
    pub fn path(&self, names: &[&str]) -> String {
        names.join(&self.delimiter)
    }

    /// A command that must work; what came before the end of it.
    pub async fn does(&mut self, command: &str) -> Vec<String> {
        self.must(format!("x {command}\r\n").as_bytes(), command).await
    }

    /// A command that a server may refuse, if that is no error in the command; whether it worked.
    pub async fn tries(&mut self, command: &str) -> bool {
        let (_, end) = self.send(format!("x {command}\r\n").as_bytes(), command).await;
        assert!(end.starts_with("x OK") || end.starts_with("x NO"), "{command}: {end}");
        end.starts_with("x OK")
    }

    async fn must(&mut self, bytes: &[u8], what: &str) -> Vec<String> {
        let (lines, end) = self.send(bytes, what).await;
        assert!(end.starts_with("x OK"), "{what}: {end}");
        lines
    }

    async fn send(&mut self, bytes: &[u8], what: &str) -> (Vec<String>, String) {
        self.stream.get_mut().write_all(bytes).await.unwrap();
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert!(self.stream.read_line(&mut line).await.unwrap() > 0, "the server went away at {what}");
            if line.starts_with("x ") {
                return (lines, line);
            }
            lines.push(line);
        }
    }

    pub async fn append(&mut self, folder: &str, flags: &str, message: &str) {
        self.append_bytes(folder, flags, message.replace('\n', "\r\n").as_bytes()).await;
    }

    pub async fn append_bytes(&mut self, folder: &str, flags: &str, message: &[u8]) {
        let mut command = format!("x APPEND \"{folder}\" ({flags}) {{{}+}}\r\n", message.len()).into_bytes();
        command.extend_from_slice(message);
        command.extend_from_slice(b"\r\n");
        self.must(&command, "an append").await;
    }

    /// Flags, deletions and moves by `UID …` in a folder.
    pub async fn in_folder(&mut self, folder: &str, commands: &[&str]) {
        self.does(&format!("SELECT \"{folder}\"")).await;
        for command in commands {
            self.does(command).await;
        }
        self.does("CLOSE").await;
    }

    /// All that is in these folders, straight from the server.
    pub async fn truth(&self, is_wanted: impl Fn(&str) -> bool) -> BTreeSet<Thing> {
        let settings = ClientSettings::new("127.0.0.1", port(), Security::None);
        let credentials = Credentials::Password { user: self.user.clone(), password: Secret::new("pw".to_owned()) };
        let mut client = Client::connect(settings, &credentials).await.unwrap();
        let mut truth = BTreeSet::new();
        for folder in client.list().await.unwrap() {
            if !folder.is_selectable() || !is_wanted(&folder.name) {
                continue;
            }
            let examined = client.examine(&folder.wire).await.unwrap();
            let uids = client.search(&SearchCriteria::default()).await.unwrap();
            let mut flags: std::collections::BTreeMap<u32, String> = std::collections::BTreeMap::new();
            let mut note = |found: &Metadata<'_>| {
                let mut names: Vec<String> = found
                    .flags()
                    .unwrap()
                    .filter(|flag| *flag != "\\Recent")
                    .map(|flag| flag.trim_start_matches('\\').to_ascii_lowercase())
                    .collect();
                names.sort();
                flags.insert(found.uid, names.join(" "));
            };
            if uids.is_empty() {
                continue;
            }
            client.fetch_metadata(&uids, FetchItems::Flags, None, &mut note).await.unwrap();
            let mut bodies = Hashes::default();
            client.fetch_bodies(&[uids.iter().collect::<UidSet>()], &mut bodies).await.unwrap();
            for (uid, hash) in bodies.done {
                let place = format!("{}.{uid}", examined.uid_validity.unwrap_or(0));
                truth.insert((folder.name.clone(), place, flags[&uid].clone(), hash));
            }
        }
        truth
    }
}

#[derive(Default)]
struct Hashes {
    current: (u32, Vec<u8>),
    done: Vec<(u32, String)>,
}

impl BodySink for Hashes {
    fn begin(&mut self, uid: u32, _: u64) {
        self.current = (uid, Vec::new());
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.current.1.extend_from_slice(bytes);
        Ok(())
    }

    fn end(&mut self) -> std::io::Result<()> {
        self.done.push((self.current.0, Sha256::of(&self.current.1).hex()));
        Ok(())
    }

    fn fail(&mut self, uid: u32, fault: BodyFault) {
        panic!("{uid}: {fault:?}");
    }
}
