//! Settings of the HTTP server: addresses, trusted proxies, limits, timeouts, OpenID Connect.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use engine::credentials::oidc::OidcSettings;
use jwt::{Algorithm, is_safe_url};
use outbound::limits::{PlanRates, RequestLimits};
use web::{EdgeSettings, Timeouts, TrustedNetwork};

use super::reader::{SettingsReader, invalid_setting};
use super::{ConfigError, ServerConfig, in_memory};

const SECOND: Duration = Duration::from_secs(1);

/// A second is for tests; an hour is longer than any client should take.
const TIMEOUT_RANGE: RangeInclusive<Duration> = SECOND..=Duration::from_secs(3600);

pub(super) fn server(read: &mut SettingsReader) -> Result<ServerConfig, ConfigError> {
    let listen = address(read, "server.listen")?.expect("default.toml has one");
    let metrics_listen = address(read, "server.metrics_listen")?;
    if metrics_listen.is_none() {
        read.show("server.metrics_listen", "as server.listen, for this machine only", &"default");
    }
    Ok(ServerConfig { listen, metrics_listen })
}

fn address(read: &mut SettingsReader, key: &'static str) -> Result<Option<SocketAddr>, ConfigError> {
    let Some((text, origin)) = read.text(key, "an address such as \"127.0.0.1:8025\"")? else { return Ok(None) };
    let Ok(address) = text.parse() else {
        let expected = format!("must be an address and a port such as \"127.0.0.1:8025\" or \"[::]:8025\", not {text}");
        return Err(invalid_setting(key, &origin, &expected));
    };
    read.show(key, text, &origin);
    Ok(Some(address))
}

pub(super) fn edge(read: &mut SettingsReader, listen: SocketAddr) -> Result<EdgeSettings, ConfigError> {
    Ok(EdgeSettings {
        trusted_proxies: trusted_proxies(read)?,
        cors_origins: cors_origins(read)?,
        public_url: public_url(read, listen)?,
        limits: RequestLimits {
            in_flight: read.count("server.max_in_flight", 1..=100_000)?,
            streams: read.count("server.max_streams", 1..=1_000_000)?,
            per_second: PlanRates {
                standard: read.count("limits.requests_standard", 1..=1_000_000)?,
                vip: read.count("limits.requests_vip", 1..=1_000_000)?,
            },
            wrong_keys: read.count("limits.failed_logins", 1..=1_000_000)?,
        },
        timeouts: Timeouts {
            head: read.duration("server.head_timeout", TIMEOUT_RANGE)?,
            body: read.duration("server.body_timeout", TIMEOUT_RANGE)?,
            answer: read.duration("server.answer_timeout", TIMEOUT_RANGE)?,
            stalled: read.duration("server.stall_timeout", TIMEOUT_RANGE)?,
            idle: read.duration("server.idle_timeout", TIMEOUT_RANGE)?,
        },
        // Bodies are held in memory.
        max_body: in_memory(read.size("limits.api_body", 1 << 10..=64 << 20)?),
    })
}

fn trusted_proxies(read: &mut SettingsReader) -> Result<Vec<TrustedNetwork>, ConfigError> {
    const KEY: &str = "server.trusted_proxies";
    let Some((texts, origin)) = read.list(KEY, "networks such as \"10.0.0.0/8\"")? else {
        read.show(KEY, "none", &"default");
        return Ok(Vec::new());
    };
    let networks = texts.iter().map(|text| {
        text.parse().map_err(|()| {
            let expected = format!("must be networks such as \"10.0.0.0/8\" or addresses, not {text}");
            invalid_setting(KEY, &origin, &expected)
        })
    });
    let networks = networks.collect::<Result<_, _>>()?;
    read.show(KEY, texts.join(", "), &origin);
    Ok(networks)
}

fn cors_origins(read: &mut SettingsReader) -> Result<Vec<String>, ConfigError> {
    const KEY: &str = "server.cors_origins";
    const EXPECTED: &str = "origins such as \"https://app.example.com\", without a path";
    let Some((origins, origin)) = read.list(KEY, EXPECTED)? else {
        read.show(KEY, "none", &"default");
        return Ok(Vec::new());
    };
    if let Some(wrong) = origins.iter().find(|text| !is_origin(text)) {
        return Err(invalid_setting(KEY, &origin, &format!("must be {EXPECTED}, or \"*\", not {wrong}")));
    }
    read.show(KEY, origins.join(", "), &origin);
    Ok(origins)
}

fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    text == "*" || host.is_some_and(|host| !host.is_empty() && host.is_ascii() && !host.contains(['/', ' ']))
}

fn public_url(read: &mut SettingsReader, listen: SocketAddr) -> Result<String, ConfigError> {
    const KEY: &str = "server.public_url";
    const EXPECTED: &str = "a URL such as \"https://mail.example.com\"";
    let (url, source) = match read.text(KEY, EXPECTED)? {
        None => (format!("http://{listen}"), "default".to_owned()),
        Some((url, origin)) => {
            let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
            if !rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['?', '#', ' '])) {
                return Err(invalid_setting(KEY, &origin, &format!("must be {EXPECTED}, not {url}")));
            }
            (url.trim_end_matches('/').to_owned(), origin.to_string())
        }
    };
    read.show(KEY, url.clone(), &source);
    Ok(url)
}

/// Returns `None` without an issuer.
pub(super) fn oidc(read: &mut SettingsReader) -> Result<Option<OidcSettings>, ConfigError> {
    const EXPECTED: &str = "the URL of an issuer such as \"https://login.example.com\"";
    let issuer = read.text("auth.oidc.issuer", EXPECTED)?;
    let audience = read.text("auth.oidc.audience", "a name such as \"mailroom\"")?;
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
        return Err(invalid_setting(
            "auth.oidc.issuer",
            &origin,
            &format!("must be {EXPECTED}, or http:// on this machine"),
        ));
    }
    let Some((audience, _)) = audience else {
        let expected = "requires `auth.oidc.audience`: without it, tokens for other programs would be accepted";
        return Err(invalid_setting("auth.oidc.issuer", &origin, expected));
    };
    Ok(Some(OidcSettings { issuer, audience, algorithm, tenant_claim, scope_claim }))
}

fn claim(read: &mut SettingsReader, key: &'static str) -> Result<String, ConfigError> {
    let (name, origin) = read.text(key, "the name of a claim")?.expect("default.toml has one");
    read.show(key, name.clone(), &origin);
    Ok(name)
}
