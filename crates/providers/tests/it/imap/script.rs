//! A server in memory that follows a script: `C:` is a line that the client must send, `S:` one that it gets, `S~` one
//! without its end. What lies in memory has no delays, so time can stand still and deadlines pass at once.

use domain::Secret;
use providers::imap::client::{BodyFault, BodySink, Client, ClientSettings, Credentials, ImapError, Security};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::task::JoinHandle;

pub struct ScriptServer {
    task: JoinHandle<()>,
}

impl ScriptServer {
    /// All that the client sent was what the script says.
    pub async fn was_followed(self) {
        self.task.await.unwrap();
    }
}

pub fn password() -> Credentials {
    Credentials::Password { user: "ann".to_owned(), password: Secret::new("pw".to_owned()) }
}

pub fn token() -> Credentials {
    Credentials::Token { user: "a,n=n".to_owned(), token: Secret::new("tok".to_owned()) }
}

pub fn settings() -> ClientSettings {
    ClientSettings::new("mail.example.org", 993, Security::None)
}

/// A server with this script, and the client's end of the connection.
pub fn serve(script: &str) -> (ScriptServer, DuplexStream) {
    let (near, far) = tokio::io::duplex(1 << 20);
    let script = script.to_owned();
    (ScriptServer { task: tokio::spawn(async move { play(far, &script).await }) }, near)
}

async fn play(stream: DuplexStream, script: &str) {
    let (read, mut write) = tokio::io::split(stream);
    let mut read = BufReader::new(read);
    for line in script.lines().map(str::trim_start).filter(|line| !line.is_empty()) {
        if let Some(expected) = line.strip_prefix("C: ") {
            let mut got = Vec::new();
            read.read_until(b'\n', &mut got).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&got).trim_end_matches(['\r', '\n']), expected);
        } else if let Some(said) = line.strip_prefix("S: ") {
            write.write_all(&[&unescaped(said)[..], b"\r\n"].concat()).await.unwrap();
        } else if let Some(said) = line.strip_prefix("S~ ") {
            write.write_all(&unescaped(said)).await.unwrap();
        } else if line == "WAIT" {
            std::future::pending::<()>().await;
        } else {
            panic!("no line of a script: {line}");
        }
    }
}

/// `\r`, `\n`, `\0` and `\xff`; another backslash stands for itself.
pub fn unescaped(text: &str) -> Vec<u8> {
    let text = text.replace("\\r", "\r").replace("\\n", "\n").replace("\\0", "\0");
    let mut bytes = Vec::new();
    for (at, piece) in text.split("\\xff").enumerate() {
        if at > 0 {
            bytes.push(0xff);
        }
        bytes.extend_from_slice(piece.as_bytes());
    }
    bytes
}

/// Logged in at a server that offers this, the rest of the script before us.
pub async fn logged_in(offers: &str, script: &str) -> (ScriptServer, Client) {
    let (server, stream) = serve(&format!(
        "S: * PREAUTH [CAPABILITY IMAP4rev1 {offers}] hello\n{}{script}",
        if offers.contains("QRESYNC") { "C: A1 ENABLE QRESYNC\nS: * ENABLED QRESYNC\nS: A1 OK\n" } else { "" }
    ));
    (server, Client::over(Box::new(stream), settings(), &password()).await.unwrap())
}

/// A client whose login went wrong, as it should.
pub async fn login_error(script: &str, settings: ClientSettings, credentials: &Credentials) -> ImapError {
    let (_server, stream) = serve(script);
    Client::over(Box::new(stream), settings, credentials).await.unwrap_err()
}

/// Keeps what it gets, up to some bytes.
#[derive(Debug, Default)]
pub struct BodyCollector {
    pub whole: Vec<(u32, Vec<u8>)>,
    pub failed: Vec<(u32, BodyFault)>,
    open: Option<(u32, Vec<u8>)>,
}

impl BodySink for BodyCollector {
    fn begin(&mut self, uid: u32, _length: u64) {
        assert!(self.open.is_none());
        self.open = Some((uid, Vec::new()));
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.open.as_mut().unwrap().1.extend_from_slice(bytes);
        Ok(())
    }

    fn end(&mut self) -> std::io::Result<()> {
        self.whole.push(self.open.take().unwrap());
        Ok(())
    }

    fn fail(&mut self, uid: u32, fault: BodyFault) {
        assert!(self.open.take().is_none_or(|(open, _)| open == uid));
        self.failed.push((uid, fault));
    }
}
