//! What the operator may choose about the door.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;

#[derive(Debug, Clone)]
pub struct EdgeSettings {
    /// Whose word counts about where a request came from.
    pub trusted_proxies: Vec<Network>,
    /// Whose pages may ask; `*` for all.
    pub cors_origins: Vec<String>,
    /// Where others reach us, without a slash at the end.
    pub public_url: String,
    /// Requests at the same time, until their answers begin.
    pub max_in_flight: usize,
    /// Answers at the same time that go on: followers, and downloads.
    pub max_streams: usize,
    /// Bytes of a request's body.
    pub max_body: usize,
    pub patience: Patience,
    pub requests_per_second: Rate,
    /// Wrong keys a minute from one address.
    pub failed_logins: usize,
}

/// For how long we wait for somebody.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Until the head of a request is complete.
    pub head: Duration,
    /// Until its body is.
    pub body: Duration,
    /// Until its answer begins.
    pub answer: Duration,
    /// For one who takes nothing of what we send.
    pub stalled: Duration,
    /// For the next request on a connection.
    pub idle: Duration,
}

/// Of a tenant, by its plan.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    pub standard: usize,
    pub vip: usize,
}

/// Addresses, like `10.0.0.0/8`, or a single one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network(IpNet);

impl Network {
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

impl FromStr for Network {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let single = || text.parse::<IpAddr>().ok().map(IpNet::from);
        text.parse().ok().or_else(single).map(Self).ok_or(())
    }
}

/// As it is without a word from anybody; `config/default.toml` has the reasons.
impl Default for EdgeSettings {
    fn default() -> Self {
        Self {
            trusted_proxies: Vec::new(),
            cors_origins: Vec::new(),
            public_url: "http://127.0.0.1:8025".to_owned(),
            max_in_flight: 256,
            max_streams: 10_000,
            max_body: 1 << 20,
            patience: Patience::default(),
            requests_per_second: Rate { standard: 100, vip: 1000 },
            failed_logins: 20,
        }
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            answer: Duration::from_secs(60),
            stalled: Duration::from_secs(60),
            idle: Duration::from_secs(75),
        }
    }
}
