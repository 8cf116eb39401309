//! From a connection to one that is logged in.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use domain::Secret;
use tokio::time::{Instant, timeout};

use super::answer::{Answer, Word};
use super::capabilities::Capabilities;
use super::command::Command;
use super::deflate::Deflated;
use super::error::{ImapError, ServerText, Step};
use super::exchange::parse;
use super::settings::{Credentials, Security, Settings};
use super::wire::{Duplex, Wire};
use super::{Client, tls};

/// What was asked for and granted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Enabled {
    pub qresync: bool,
    /// Names of folders are UTF-8.
    pub utf8: bool,
}

/// How often a server may ask for more during one login.
const CHALLENGES: usize = 4;

pub async fn secure(plain: Box<dyn Duplex>, settings: &Settings) -> Result<Box<dyn Duplex>, ImapError> {
    let secured = tls::secure(plain, &settings.host, settings.own_authority.as_deref());
    match timeout(settings.deadlines.connect, secured).await {
        Ok(stream) => Ok(Box::new(stream?)),
        Err(_) => Err(ImapError::Timeout(Step::Tls)),
    }
}

impl Client {
    pub(super) async fn log_in(&mut self, credentials: &Credentials) -> Result<(), ImapError> {
        let is_in_already = self.greeting().await?;
        if self.settings.security == Security::StartTls {
            if is_in_already {
                return Err(ImapError::Protocol("the server logs us in before TLS, where anybody could have done so"));
            }
            self.start_tls().await?;
        }
        self.learn_capabilities().await?;
        if !is_in_already {
            self.authenticate(credentials).await?;
            self.learn_capabilities().await?;
        }
        self.enable().await?;
        if self.settings.compress && self.capabilities.has("COMPRESS=DEFLATE") {
            self.compress().await?;
        }
        Ok(())
    }

    /// Whether we are logged in already.
    async fn greeting(&mut self) -> Result<bool, ImapError> {
        self.begin(Step::Greeting, self.settings.deadlines.command)?;
        let length = match self.wire.line(0).await {
            Ok(length) => length,
            Err(error) if self.wire.unread().is_empty() || self.wire.unread().starts_with(b"*") => return Err(error),
            Err(_) => return Err(ImapError::NotImap(ServerText::new(self.wire.unread()))),
        };
        let line = &self.wire.unread()[..length];
        let Some(answer @ Answer::Status(status)) = Answer::parse(line) else {
            return Err(ImapError::NotImap(ServerText::new(line)));
        };
        if let Some(refusal) = status.refusal(Step::Greeting) {
            return Err(ImapError::Refused(refusal));
        }
        self.capabilities = offered(&answer).unwrap_or_default();
        let is_in_already = status.word == Word::PreAuth;
        self.wire.consume(length);
        self.finish();
        Ok(is_in_already)
    }

    async fn start_tls(&mut self) -> Result<(), ImapError> {
        self.learn_capabilities().await?;
        if !self.capabilities.has("STARTTLS") {
            return Err(ImapError::Unsupported("it does not offer STARTTLS"));
        }
        self.run(Step::StartTls, Command::new("STARTTLS"), |_| Ok(false)).await?;
        let (stream, unread) = self.take_wire();
        // Whoever sits on the line could have put answers there that we would take for ones under TLS.
        if !unread.is_empty() {
            return Err(ImapError::Protocol("bytes without TLS behind the answer to STARTTLS"));
        }
        let stream = secure(stream, &self.settings).await?;
        self.wire = Wire::new(stream, self.settings.deadlines, &self.settings.limits);
        self.capabilities = Capabilities::default();
        Ok(())
    }

    fn take_wire(&mut self) -> (Box<dyn Duplex>, Vec<u8>) {
        let nothing = Wire::new(Box::new(tokio::io::empty()), self.settings.deadlines, &self.settings.limits);
        std::mem::replace(&mut self.wire, nothing).into_parts()
    }

    /// Asks what is offered, unless we were told already.
    async fn learn_capabilities(&mut self) -> Result<(), ImapError> {
        if !self.capabilities.is_empty() {
            return Ok(());
        }
        let mut found = None;
        self.run(Step::Capability, Command::new("CAPABILITY"), |answer| Ok(note(answer, &mut found))).await?;
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
        let offers = |name| self.capabilities.has(name);
        let (host, port) = (&self.settings.host, self.settings.port);
        match credentials {
            Credentials::Password { .. } if offers("AUTH=PLAIN") => {
                let message = Secret::new(format!("\0{user}\0{secret}"));
                self.sasl("PLAIN", &message, "*").await
            }
            Credentials::Password { .. } if !offers("LOGINDISABLED") => self.plain_login(user, secret).await,
            Credentials::Password { .. } if self.settings.security == Security::None => {
                Err(ImapError::Unsupported("it takes no password without TLS"))
            }
            Credentials::Password { .. } => Err(ImapError::Unsupported("it takes no passwords, only tokens")),
            // First what the two large providers document; a refusal comes as a challenge, and an empty line ends it.
            Credentials::Token { .. } if offers("AUTH=XOAUTH2") => {
                let message = Secret::new(format!("user={user}\x01auth=Bearer {secret}\x01\x01"));
                self.sasl("XOAUTH2", &message, "").await
            }
            Credentials::Token { .. } if offers("AUTH=OAUTHBEARER") => {
                let name = user.replace('=', "=3D").replace(',', "=2C");
                let message =
                    Secret::new(format!("n,a={name},\x01host={host}\x01port={port}\x01auth=Bearer {secret}\x01\x01"));
                self.sasl("OAUTHBEARER", &message, "AQ==").await
            }
            Credentials::Token { .. } => Err(ImapError::Unsupported("it takes no tokens (XOAUTH2 or OAUTHBEARER)")),
        }
    }

    async fn plain_login(&mut self, user: &str, password: &str) -> Result<(), ImapError> {
        let command = Command::new("LOGIN ").string(user.as_bytes(), &self.capabilities, false).text(" ").string(
            password.as_bytes(),
            &self.capabilities,
            false,
        );
        let mut found = None;
        self.run(Step::Login, command, |answer| Ok(note(answer, &mut found))).await?;
        self.capabilities = found.unwrap_or_default();
        Ok(())
    }

    /// `on_refusal` answers a challenge that only brings the reason of a refusal.
    async fn sasl(&mut self, method: &str, message: &Secret<String>, on_refusal: &str) -> Result<(), ImapError> {
        self.begin(Step::Login, self.settings.deadlines.command)?;
        let tag = self.take_tag();
        let encoded = Secret::new(BASE64.encode(message.expose()));
        let is_sent_at_once = self.capabilities.has("SASL-IR");
        let first = match is_sent_at_once {
            true => Secret::new(format!("A{tag} AUTHENTICATE {method} {}\r\n", encoded.expose())),
            false => Secret::new(format!("A{tag} AUTHENTICATE {method}\r\n")),
        };
        self.wire.send(first.expose().as_bytes()).await?;
        let (mut found, mut challenges) = (None, usize::from(is_sent_at_once));
        loop {
            let length = self.wire.answer().await?;
            let answer = parse(&self.wire.unread()[..length])?;
            let is_asked = note(&answer, &mut found);
            let (mut is_challenge, mut refusal) = (false, None);
            match answer {
                Answer::Continue => is_challenge = true,
                Answer::Done(done, status) if done == tag => {
                    refusal = status.refusal(Step::Login);
                    if refusal.is_none() {
                        self.capabilities = found.unwrap_or_default();
                        self.wire.consume(length);
                        self.finish();
                        return Ok(());
                    }
                }
                Answer::Done(..) => return Err(ImapError::Protocol("an end of a command that was not sent")),
                Answer::Status(status) => self.look_at(&status)?,
                Answer::Numbered(..) | Answer::Data(..) => {}
            }
            self.wire.consume(length);
            self.count(is_asked || is_challenge)?;
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
            if challenges > CHALLENGES {
                return Err(ImapError::Protocol("a login that does not end"));
            }
        }
    }

    /// Says who we are, for servers that want to know, and turns on what we use. A refusal of either costs only that.
    async fn enable(&mut self) -> Result<(), ImapError> {
        let mut commands = Vec::new();
        if self.capabilities.has("ID") {
            commands.push(Command::new("ID (\"name\" \"Mailroom\")"));
        }
        let wanted: Vec<&str> = match self.capabilities.has("QRESYNC") {
            true => ["QRESYNC", "UTF8=ACCEPT"].into_iter().filter(|name| self.capabilities.has(name)).collect(),
            false => ["CONDSTORE", "UTF8=ACCEPT"].into_iter().filter(|name| self.capabilities.has(name)).collect(),
        };
        if self.capabilities.has("ENABLE") && !wanted.is_empty() {
            commands.push(Command::new(&format!("ENABLE {}", wanted.join(" "))));
        }
        let mut granted = Capabilities::default();
        let each = |answer: &Answer<'_>| {
            if let Some(words) = answer.data("ENABLED") {
                granted = Capabilities::parse(words.rest());
            }
            Ok(answer.data("ENABLED").is_some() || answer.data("ID").is_some())
        };
        self.run_all(Step::Enable, commands, each, |_, _| Ok(())).await?;
        self.enabled = Enabled { qresync: granted.has("QRESYNC"), utf8: granted.has("UTF8=ACCEPT") };
        Ok(())
    }

    async fn compress(&mut self) -> Result<(), ImapError> {
        match self.run(Step::Compress, Command::new("COMPRESS DEFLATE"), |_| Ok(false)).await {
            Ok(()) => {}
            // Then without.
            Err(ImapError::Refused(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
        let (stream, unread) = self.take_wire();
        let stream = Deflated::new(stream, unread);
        self.wire = Wire::new(Box::new(stream), self.settings.deadlines, &self.settings.limits);
        self.wire.begin(Step::Compress, Instant::now());
        Ok(())
    }
}

/// What is offered, if the answer says so in either of the two ways.
fn offered(answer: &Answer<'_>) -> Option<Capabilities> {
    let words = answer.data("CAPABILITY").or_else(|| answer.code("CAPABILITY"))?;
    Some(Capabilities::parse(words.rest()))
}

fn note(answer: &Answer<'_>, found: &mut Option<Capabilities>) -> bool {
    let offered = offered(answer);
    let is_it = offered.is_some();
    if is_it {
        *found = offered;
    }
    is_it
}
