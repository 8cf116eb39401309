//! A read-only IMAP client (RFC 3501, 9051) with the commands that Mailroom needs.
//!
//! Servers are not trusted. Every step has a deadline, everything that is kept has a limit, and a message is passed on as
//! it arrives, so that neither its size nor a wrong announcement of it costs memory. No text of a server and no password
//! is in an error's text; [`ImapError::explain`] has a sentence for the person who set the mailbox up.
//!
//! A [`Client`] is one connection. After an error that is not a refusal, or when a call was cancelled, it is no longer
//! usable ([`Client::is_usable`]).

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
mod refusal;
mod response;
mod search;
mod select;
mod settings;
mod tls;
mod uid_set;
mod utf7;
mod wire;
mod wire_name;

pub use bodies::{BodyFault, BodySink};
pub use capabilities::Capabilities;
pub use error::{ImapError, ServerText, Step};
pub use fetch::{ChangedSince, FetchItems, Metadata};
pub use folders::{FolderStatus, ImapFolder};
pub use idle::FolderUpdates;
pub use refusal::{Refusal, RefusalClass, RefusalKind};
pub use search::SearchCriteria;
pub use select::ExaminedFolder;
pub use settings::{ClientSettings, Credentials, ImapTimeouts, ResponseLimits, Security};
pub use tls::TlsFault;
pub use uid_set::UidSet;
pub use wire::Duplex;
pub use wire_name::WireName;

use tokio::net::TcpStream;
use tokio::time::Instant;

use login::EnabledExtensions;
use wire::{Wire, in_time};

/// One connection, logged in.
#[derive(Debug)]
pub struct Client {
    wire: Wire,
    settings: ClientSettings,
    capabilities: Capabilities,
    enabled: EnabledExtensions,
    last_tag: u32,
    /// A command is in progress, or was when an error occurred.
    is_busy: bool,
    /// Unsolicited responses during the present command.
    unsolicited: usize,
}

impl Client {
    /// Connects, secures the connection and logs in.
    pub async fn connect(settings: ClientSettings, credentials: &Credentials) -> Result<Self, ImapError> {
        let until = Instant::now() + settings.timeouts.connect;
        let host = settings.host.trim_start_matches('[').trim_end_matches(']');
        let socket = in_time(Step::Connect, until, TcpStream::connect((host, settings.port))).await?;
        // Commands are small, and we wait for their responses.
        let _ = socket.set_nodelay(true);
        Self::over(Box::new(socket), settings, credentials).await
    }

    /// Logs in over an existing connection: a tunnel, or a test.
    pub async fn over(
        stream: Box<dyn Duplex>,
        settings: ClientSettings,
        credentials: &Credentials,
    ) -> Result<Self, ImapError> {
        let stream = match settings.security {
            Security::Implicit => login::secure(stream, &settings).await?,
            Security::StartTls | Security::None => stream,
        };
        let mut client = Self {
            wire: Wire::new(stream, settings.timeouts, &settings.limits),
            settings,
            capabilities: Capabilities::default(),
            enabled: EnabledExtensions::default(),
            last_tag: 0,
            is_busy: false,
            unsolicited: 0,
        };
        client.log_in(credentials).await?;
        Ok(client)
    }

    /// Returns the capabilities that the server offers to this user.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Returns whether QRESYNC is enabled, for [`Client::resync`] and for [`ChangedSince`] with `vanished`.
    pub fn has_qresync(&self) -> bool {
        self.enabled.qresync
    }

    /// Returns whether another command may be sent.
    pub fn is_usable(&self) -> bool {
        !self.is_busy
    }

    /// Logs out, as far as the server cooperates.
    pub async fn log_out(mut self) {
        let _ = self.run(Step::Logout, command::Command::new("LOGOUT"), |_| Ok(true)).await;
    }
}
