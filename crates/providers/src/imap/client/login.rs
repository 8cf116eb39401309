//! Sets up a session: greeting, STARTTLS, capabilities, login, ENABLE, compression.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use domain::Secret;
use tokio::time::{Instant, timeout};

use super::capabilities::Capabilities;
use super::command::Command;
use super::deflate::DeflateStream;
use super::error::{ImapError, ServerText, Step};
use super::exchange::parse;
use super::response::{ServerResponse, StatusCondition};
use super::settings::{ClientSettings, Credentials, Security};
use super::wire::{Duplex, Wire};
use super::{Client, tls};

/// Extensions that the server has enabled for this session.
#[derive(Debug, Clone, Copy, Default)]
pub struct EnabledExtensions {
    pub qresync: bool,
    /// UTF8=ACCEPT: folder names are UTF-8.
    pub utf8: bool,
}

/// Challenges of one login that are answered.
const MAX_SASL_CHALLENGES: usize = 4;

pub async fn secure(plain: Box<dyn Duplex>, settings: &ClientSettings) -> Result<Box<dyn Duplex>, ImapError> {
    let secured = tls::secure(plain, &settings.host, settings.custom_ca.as_deref());
    match timeout(settings.timeouts.connect, secured).await {
        Ok(stream) => Ok(Box::new(stream?)),
        Err(_) => Err(ImapError::Timeout(Step::Tls)),
    }
}

impl Client {
    pub(super) async fn log_in(&mut self, credentials: &Credentials) -> Result<(), ImapError> {
        let is_preauthenticated = self.greeting().await?;
        if self.settings.security == Security::StartTls {
            if is_preauthenticated {
                return Err(ImapError::Protocol(
                    "the server greets with PREAUTH before TLS, which anybody on the line could have sent",
                ));
            }
            self.start_tls().await?;
        }
        self.ensure_capabilities().await?;
        if !is_preauthenticated {
            self.authenticate(credentials).await?;
            self.ensure_capabilities().await?;
        }
        self.enable().await?;
        if self.settings.compress && self.capabilities.has("COMPRESS=DEFLATE") {
            self.compress().await?;
        }
        Ok(())
    }

    /// Reads the greeting. Returns whether it is a PREAUTH.
    async fn greeting(&mut self) -> Result<bool, ImapError> {
        self.begin(Step::Greeting, self.settings.timeouts.command)?;
        let length = match self.wire.read_line(0).await {
            Ok(length) => length,
            Err(error) if self.wire.unread().is_empty() || self.wire.unread().starts_with(b"*") => return Err(error),
            Err(_) => return Err(ImapError::NotImap(ServerText::new(self.wire.unread()))),
        };
        let line = &self.wire.unread()[..length];
        let Some(response @ ServerResponse::Status(status)) = ServerResponse::parse(line) else {
            return Err(ImapError::NotImap(ServerText::new(line)));
        };
        if let Some(refusal) = status.refusal(Step::Greeting) {
            return Err(ImapError::Refused(refusal));
        }
        self.capabilities = capabilities_in(&response).unwrap_or_default();
        let is_preauthenticated = status.condition == StatusCondition::PreAuth;
        self.wire.consume(length);
        self.finish();
        Ok(is_preauthenticated)
    }

    async fn start_tls(&mut self) -> Result<(), ImapError> {
        self.ensure_capabilities().await?;
        if !self.capabilities.has("STARTTLS") {
            return Err(ImapError::Unsupported("it does not offer STARTTLS"));
        }
        self.run(Step::StartTls, Command::new("STARTTLS"), |_| Ok(false)).await?;
        let (stream, unread) = self.take_wire();
        // An attacker on the line could have injected responses that we would take for ones under TLS.
        if !unread.is_empty() {
            return Err(ImapError::Protocol("the server sent data without TLS after STARTTLS"));
        }
        let stream = secure(stream, &self.settings).await?;
        self.wire = Wire::new(stream, self.settings.timeouts, &self.settings.limits);
        self.capabilities = Capabilities::default();
        Ok(())
    }

    fn take_wire(&mut self) -> (Box<dyn Duplex>, Vec<u8>) {
        let nothing = Wire::new(Box::new(tokio::io::empty()), self.settings.timeouts, &self.settings.limits);
        std::mem::replace(&mut self.wire, nothing).into_parts()
    }

    /// Requests the capabilities unless the server has already sent them.
    async fn ensure_capabilities(&mut self) -> Result<(), ImapError> {
        if !self.capabilities.is_empty() {
            return Ok(());
        }
        let mut found = None;
        self.run(Step::Capability, Command::new("CAPABILITY"), |response| Ok(note_capabilities(response, &mut found)))
            .await?;
        self.capabilities = found.unwrap_or_default();
        Ok(())
    }

    async fn authenticate(&mut self, credentials: &Credentials) -> Result<(), ImapError> {
        let (user, secret) = match credentials {
            Credentials::Password { user, password: secret } | Credentials::Token { user, token: secret } => {
                (user.as_str(), secret.expose().as_str())
            }
        };
        if user.contains('\0') || secret.contains('\0') {
            return Err(ImapError::Unsupported("a user name or a password with a NUL in it cannot be sent"));
        }
        let (host, port) = (&self.settings.host, self.settings.port);
        match credentials {
            Credentials::Password { .. } if self.capabilities.has("AUTH=PLAIN") => {
                let message = Secret::new(format!("\0{user}\0{secret}"));
                self.sasl("PLAIN", &message, "*").await
            }
            Credentials::Password { .. } if !self.capabilities.has("LOGINDISABLED") => {
                self.login_command(user, secret).await
            }
            Credentials::Password { .. } if self.settings.security == Security::None => {
                Err(ImapError::Unsupported("it accepts no password without TLS"))
            }
            Credentials::Password { .. } => Err(ImapError::Unsupported("it accepts no passwords, only tokens")),
            // XOAUTH2 first, which the two large providers document; a refusal comes as a challenge, and an empty line ends it.
            Credentials::Token { .. } if self.capabilities.has("AUTH=XOAUTH2") => {
                let message = Secret::new(format!("user={user}\x01auth=Bearer {secret}\x01\x01"));
                self.sasl("XOAUTH2", &message, "").await
            }
            Credentials::Token { .. } if self.capabilities.has("AUTH=OAUTHBEARER") => {
                let name = user.replace('=', "=3D").replace(',', "=2C");
                let message =
                    Secret::new(format!("n,a={name},\x01host={host}\x01port={port}\x01auth=Bearer {secret}\x01\x01"));
                self.sasl("OAUTHBEARER", &message, "AQ==").await
            }
            Credentials::Token { .. } => Err(ImapError::Unsupported("it accepts no tokens (XOAUTH2 or OAUTHBEARER)")),
        }
    }

    async fn login_command(&mut self, user: &str, password: &str) -> Result<(), ImapError> {
        let command = Command::new("LOGIN ").string(user.as_bytes(), &self.capabilities, false).text(" ").string(
            password.as_bytes(),
            &self.capabilities,
            false,
        );
        let mut found = None;
        self.run(Step::Login, command, |response| Ok(note_capabilities(response, &mut found))).await?;
        self.capabilities = found.unwrap_or_default();
        Ok(())
    }

    /// Authenticates by SASL. `on_refusal` answers a challenge that only carries the reason of a refusal.
    async fn sasl(&mut self, method: &str, message: &Secret<String>, on_refusal: &str) -> Result<(), ImapError> {
        self.begin(Step::Login, self.settings.timeouts.command)?;
        let tag = self.next_tag();
        let encoded = Secret::new(BASE64.encode(message.expose()));
        let has_initial_response = self.capabilities.has("SASL-IR");
        let first = Secret::new(if has_initial_response {
            format!("A{tag} AUTHENTICATE {method} {}\r\n", encoded.expose())
        } else {
            format!("A{tag} AUTHENTICATE {method}\r\n")
        });
        self.wire.send(first.expose().as_bytes()).await?;
        let (mut found, mut challenges) = (None, usize::from(has_initial_response));
        loop {
            let length = self.wire.read_response().await?;
            let response = parse(&self.wire.unread()[..length])?;
            let is_solicited = note_capabilities(&response, &mut found);
            let (mut is_challenge, mut refusal) = (false, None);
            match response {
                ServerResponse::Continuation => is_challenge = true,
                ServerResponse::Tagged(done, status) if done == tag => {
                    refusal = status.refusal(Step::Login);
                    if refusal.is_none() {
                        self.capabilities = found.unwrap_or_default();
                        self.wire.consume(length);
                        self.finish();
                        return Ok(());
                    }
                }
                ServerResponse::Tagged(..) => return Err(ImapError::Protocol("a tagged response answers no command")),
                ServerResponse::Status(status) => self.check_bye(&status)?,
                ServerResponse::Numbered(..) | ServerResponse::Data(..) => {}
            }
            self.wire.consume(length);
            self.count_unsolicited(is_solicited || is_challenge)?;
            if let Some(refusal) = refusal {
                self.finish();
                return Err(ImapError::Refused(refusal));
            }
            if is_challenge {
                let reply = if challenges == 0 { encoded.expose() } else { on_refusal };
                let reply = Secret::new(format!("{reply}\r\n"));
                self.wire.send(reply.expose().as_bytes()).await?;
                challenges += 1;
            }
            if challenges > MAX_SASL_CHALLENGES {
                return Err(ImapError::Protocol("the login has too many challenges"));
            }
        }
    }

    /// Identifies us (ID), and enables the extensions that we use. A refusal of either is ignored.
    async fn enable(&mut self) -> Result<(), ImapError> {
        let mut commands = Vec::new();
        if self.capabilities.has("ID") {
            commands.push(Command::new("ID (\"name\" \"Mailroom\")"));
        }
        let changes = if self.capabilities.has("QRESYNC") { "QRESYNC" } else { "CONDSTORE" };
        let wanted = [changes, "UTF8=ACCEPT"].into_iter().filter(|name| self.capabilities.has(name));
        let wanted: Vec<&str> = wanted.collect();
        if self.capabilities.has("ENABLE") && !wanted.is_empty() {
            commands.push(Command::new(&format!("ENABLE {}", wanted.join(" "))));
        }
        let mut enabled = Capabilities::default();
        self.run_pipelined(
            Step::Enable,
            commands,
            |response| {
                if let Some(names) = response.data("ENABLED") {
                    enabled = Capabilities::parse(names.rest());
                }
                Ok(response.data("ENABLED").is_some() || response.data("ID").is_some())
            },
            |_, _| Ok(()),
        )
        .await?;
        self.enabled = EnabledExtensions { qresync: enabled.has("QRESYNC"), utf8: enabled.has("UTF8=ACCEPT") };
        Ok(())
    }

    async fn compress(&mut self) -> Result<(), ImapError> {
        match self.run(Step::Compress, Command::new("COMPRESS DEFLATE"), |_| Ok(false)).await {
            Ok(()) => {}
            // The session goes on without compression.
            Err(ImapError::Refused(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
        let (stream, unread) = self.take_wire();
        let stream = DeflateStream::new(stream, unread);
        self.wire = Wire::new(Box::new(stream), self.settings.timeouts, &self.settings.limits);
        self.wire.begin(Step::Compress, Instant::now());
        Ok(())
    }
}

/// Returns the capabilities of a CAPABILITY response or response code.
fn capabilities_in(response: &ServerResponse<'_>) -> Option<Capabilities> {
    let words = response.data("CAPABILITY").or_else(|| response.code("CAPABILITY"))?;
    Some(Capabilities::parse(words.rest()))
}

/// Keeps the capabilities of a response. Returns whether it has any.
fn note_capabilities(response: &ServerResponse<'_>, found: &mut Option<Capabilities>) -> bool {
    let capabilities_in = capabilities_in(response);
    let is_it = capabilities_in.is_some();
    if is_it {
        *found = capabilities_in;
    }
    is_it
}
