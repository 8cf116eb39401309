//! Settings of the HTTP server: limits, timeouts, trusted proxies.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use outbound::limits::RequestLimits;

#[derive(Debug, Clone)]
pub struct EdgeSettings {
    /// Proxies whose `Forwarded` and `X-Forwarded-For` headers are trusted.
    pub trusted_proxies: Vec<TrustedNetwork>,
    /// Origins whose pages may call the API; `*` for all.
    pub cors_origins: Vec<String>,
    /// URL under which clients reach this server, without a trailing slash.
    pub public_url: String,
    pub limits: RequestLimits,
    /// Maximum size of a request body in bytes.
    pub max_body: usize,
    pub timeouts: Timeouts,
}

/// Timeouts of a connection and its requests.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Until the head of a request has arrived.
    pub head: Duration,
    /// Until the body of a request has arrived.
    pub body: Duration,
    /// Until the response starts.
    pub answer: Duration,
    /// For a client that reads nothing of its response.
    pub stalled: Duration,
    /// Until the next request on an idle connection.
    pub idle: Duration,
}

/// Network such as `10.0.0.0/8`, or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustedNetwork(IpNet);

impl TrustedNetwork {
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

impl FromStr for TrustedNetwork {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let network = text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        network.map(Self).ok_or(())
    }
}

/// The defaults of `config/default.toml`, which has the reasons.
impl Default for EdgeSettings {
    fn default() -> Self {
        Self {
            trusted_proxies: Vec::new(),
            cors_origins: Vec::new(),
            public_url: "http://127.0.0.1:8025".to_owned(),
            limits: RequestLimits::default(),
            max_body: 1 << 20,
            timeouts: Timeouts::default(),
        }
    }
}

impl Default for Timeouts {
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
