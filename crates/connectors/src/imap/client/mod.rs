//! A client for IMAP (RFC 3501, 9051): what Mailroom asks of a server, and nothing else.
//!
//! Servers are not trusted. Every step has a deadline, everything that is kept has a limit, and a message is handed on
//! as it arrives, so that neither its size nor a lie about it costs memory. Nothing that a server says, and no password,
//! is in an error's text; [`ImapError::explain`] has a sentence for the person who set the mailbox up.
//!
//! A [`Client`] is one connection. After an error that is not a refusal, or when a call was given up in the middle, it
//! is of no more use ([`Client::is_usable`]).

mod answer;
mod bodies;
mod capabilities;
mod command;
mod deflate;
mod error;
mod exchange;
mod fetch;
mod folders;
mod idle;
mod lex;
mod login;
mod name;
mod refusal;
mod search;
mod select;
mod settings;
mod tls;
mod uid_set;
mod utf7;
mod wire;

pub use bodies::{BodyFault, BodySink};
pub use capabilities::Capabilities;
pub use error::{ImapError, ServerText, Step};
pub use fetch::{ChangedSince, Items, Metadata};
pub use folders::{Folder, FolderStatus};
pub use idle::News;
pub use name::WireName;
pub use refusal::{Class, Kind, Refusal};
pub use search::Search;
pub use select::Examined;
pub use settings::{Credentials, Deadlines, Limits, Security, Settings};
pub use tls::TlsFault;
pub use uid_set::UidSet;
pub use wire::Duplex;

use tokio::net::TcpStream;
use tokio::time::Instant;

use login::Enabled;
use wire::{Wire, in_time};

/// One connection, logged in.
#[derive(Debug)]
pub struct Client {
    wire: Wire,
    settings: Settings,
    capabilities: Capabilities,
    enabled: Enabled,
    last_tag: u32,
    /// A command is under way, or was when something went wrong.
    is_busy: bool,
    /// Answers of the present command that nobody asked for.
    unasked: usize,
}

impl Client {
    /// Connects, secures the connection and logs in.
    pub async fn connect(settings: Settings, credentials: &Credentials) -> Result<Self, ImapError> {
        let until = Instant::now() + settings.deadlines.connect;
        let host = settings.host.trim_start_matches('[').trim_end_matches(']');
        let socket = in_time(Step::Connect, until, TcpStream::connect((host, settings.port))).await?;
        // Commands are small, and we wait for their answers.
        let _ = socket.set_nodelay(true);
        Self::over(Box::new(socket), settings, credentials).await
    }

    /// The same over a connection that is there already: a tunnel, or a test.
    pub async fn over(
        stream: Box<dyn Duplex>,
        settings: Settings,
        credentials: &Credentials,
    ) -> Result<Self, ImapError> {
        let stream = match settings.security {
            Security::Implicit => login::secure(stream, &settings).await?,
            Security::StartTls | Security::None => stream,
        };
        let mut client = Self {
            wire: Wire::new(stream, settings.deadlines, &settings.limits),
            settings,
            capabilities: Capabilities::default(),
            enabled: Enabled::default(),
            last_tag: 0,
            is_busy: false,
            unasked: 0,
        };
        client.log_in(credentials).await?;
        Ok(client)
    }

    /// What the server offers to this user.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Changes and disappearances since a moment can be asked for ([`Client::resync`], [`ChangedSince`] with
    /// `vanished`).
    pub fn has_qresync(&self) -> bool {
        self.enabled.qresync
    }

    /// Whether another command may be sent.
    pub fn is_usable(&self) -> bool {
        !self.is_busy
    }

    /// Says goodbye, as far as the server lets us.
    pub async fn log_out(mut self) {
        let _ = self.run(Step::Logout, command::Command::new("LOGOUT"), |_| Ok(true)).await;
    }
}
