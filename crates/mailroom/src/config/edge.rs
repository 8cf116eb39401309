//! The door of the HTTP API: what it believes, how much it lets in, and for how long it waits.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use engine::oidc::{Algorithm, OidcSettings, is_safe_url};
use web::{EdgeSettings, Network, Patience, Rate};

use super::read::{Reader, refuse};
use super::{ConfigError, Server, in_memory};

const SECOND: Duration = Duration::from_secs(1);

/// A second is for tests; nobody waits longer than an hour.
const WAITS: RangeInclusive<Duration> = SECOND..=Duration::from_secs(3600);

pub(super) fn server(read: &mut Reader) -> Result<Server, ConfigError> {
    let mut address = |key: &'static str| -> Result<Option<SocketAddr>, ConfigError> {
        let Some((text, origin)) = read.text(key, "an address like \"127.0.0.1:8025\"")? else { return Ok(None) };
        let Ok(address) = text.parse() else {
            let wants = format!("wants an address and a port like \"127.0.0.1:8025\" or \"[::]:8025\", not {text}");
            return Err(refuse(key, &origin, &wants));
        };
        read.show(key, text, &origin);
        Ok(Some(address))
    };
    let listen = address("server.listen")?.expect("default.toml has one");
    let metrics_listen = address("server.metrics_listen")?;
    if metrics_listen.is_none() {
        read.show("server.metrics_listen", "as server.listen, for this machine only", &"default");
    }
    Ok(Server { listen, metrics_listen })
}

pub(super) fn edge(read: &mut Reader, listen: SocketAddr) -> Result<EdgeSettings, ConfigError> {
    Ok(EdgeSettings {
        trusted_proxies: trusted_proxies(read)?,
        cors_origins: cors_origins(read)?,
        public_url: public_url(read, listen)?,
        max_in_flight: read.count("server.max_in_flight", 1..=100_000)?,
        max_streams: read.count("server.max_streams", 1..=1_000_000)?,
        patience: Patience {
            head: read.duration("server.head_timeout", WAITS)?,
            body: read.duration("server.body_timeout", WAITS)?,
            answer: read.duration("server.answer_timeout", WAITS)?,
            stalled: read.duration("server.stall_timeout", WAITS)?,
            idle: read.duration("server.idle_timeout", WAITS)?,
        },
        // Bodies are held in memory.
        max_body: in_memory(read.size("limits.api_body", 1 << 10..=64 << 20)?),
        requests_per_second: Rate {
            standard: read.count("limits.requests_standard", 1..=1_000_000)?,
            vip: read.count("limits.requests_vip", 1..=1_000_000)?,
        },
        failed_logins: read.count("limits.failed_logins", 1..=1_000_000)?,
    })
}

fn trusted_proxies(read: &mut Reader) -> Result<Vec<Network>, ConfigError> {
    const KEY: &str = "server.trusted_proxies";
    let Some((texts, origin)) = read.list(KEY, "networks like \"10.0.0.0/8\"")? else {
        read.show(KEY, "none", &"default");
        return Ok(Vec::new());
    };
    let network = |text: &String| {
        let wants = format!("wants networks like \"10.0.0.0/8\" or addresses, not {text}");
        text.parse().map_err(|()| refuse(KEY, &origin, &wants))
    };
    let networks = texts.iter().map(network).collect::<Result<_, _>>()?;
    read.show(KEY, texts.join(", "), &origin);
    Ok(networks)
}

fn cors_origins(read: &mut Reader) -> Result<Vec<String>, ConfigError> {
    const KEY: &str = "server.cors_origins";
    const WANTS: &str = "origins like \"https://app.example.com\", without a path";
    let Some((origins, origin)) = read.list(KEY, WANTS)? else {
        read.show(KEY, "none", &"default");
        return Ok(Vec::new());
    };
    let is_origin = |text: &&String| {
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        *text == "*" || host.is_some_and(|host| !host.is_empty() && host.is_ascii() && !host.contains(['/', ' ']))
    };
    if let Some(wrong) = origins.iter().find(|text| !is_origin(text)) {
        return Err(refuse(KEY, &origin, &format!("wants {WANTS}, or \"*\", not {wrong}")));
    }
    read.show(KEY, origins.join(", "), &origin);
    Ok(origins)
}

fn public_url(read: &mut Reader, listen: SocketAddr) -> Result<String, ConfigError> {
    const KEY: &str = "server.public_url";
    const WANTS: &str = "a URL like \"https://mail.example.com\"";
    let (url, source) = match read.text(KEY, WANTS)? {
        None => (format!("http://{listen}"), "default".to_owned()),
        Some((url, origin)) => {
            let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
            if !rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['?', '#', ' '])) {
                return Err(refuse(KEY, &origin, &format!("wants {WANTS}, not {url}")));
            }
            (url.trim_end_matches('/').to_owned(), origin.to_string())
        }
    };
    read.show(KEY, url.clone(), &source);
    Ok(url)
}

/// `None` without an issuer, whatever else is said.
pub(super) fn oidc(read: &mut Reader) -> Result<Option<OidcSettings>, ConfigError> {
    const WANTS: &str = "the URL of an issuer like \"https://login.example.com\"";
    let issuer = read.text("auth.oidc.issuer", WANTS)?;
    let audience = read.text("auth.oidc.audience", "a name like \"mailroom\"")?;
    for (key, given) in [("auth.oidc.issuer", &issuer), ("auth.oidc.audience", &audience)] {
        match given {
            Some((text, origin)) => read.show(key, text.clone(), origin),
            None => read.show(key, "none", &"default"),
        }
    }
    let algorithm = read.choice("auth.oidc.algorithm", &Algorithm::ALL)?;
    let tenant_claim = claim(read, "auth.oidc.tenant_claim")?;
    let scope_claim = claim(read, "auth.oidc.scope_claim")?;
    let Some((issuer, origin)) = issuer else { return Ok(None) };
    if !is_safe_url(&issuer) {
        return Err(refuse("auth.oidc.issuer", &origin, &format!("wants {WANTS}, or http:// on this machine")));
    }
    let Some((audience, _)) = audience else {
        let wants = "needs `auth.oidc.audience` beside it: without one, tokens for other programs would do";
        return Err(refuse("auth.oidc.issuer", &origin, wants));
    };
    Ok(Some(OidcSettings { issuer, audience, algorithm, tenant_claim, scope_claim }))
}

fn claim(read: &mut Reader, key: &'static str) -> Result<String, ConfigError> {
    let (name, origin) = read.text(key, "the name of a claim")?.expect("default.toml has one");
    read.show(key, name.clone(), &origin);
    Ok(name)
}
