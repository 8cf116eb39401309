//! Validates the URL of a webhook. The addresses of its host are checked when something is sent.

use std::net::IpAddr;

use outbound::http::{AddressPolicy, Url, host_address};

/// Longer URLs are truncated by proxies and servers.
const MAX_URL_BYTES: usize = 2048;

/// Ports up to this one belong to other services, except those of HTTP.
const MAX_WELL_KNOWN_PORT: u16 = 1023;

/// Returns the URL if something may be sent there, or what is wrong with it.
pub fn check(text: &str, policy: &AddressPolicy) -> Result<Url, String> {
    if text.len() > MAX_URL_BYTES {
        return Err(format!("must not be longer than {MAX_URL_BYTES} bytes"));
    }
    // Some parsers drop or change these, and others do not; the target must be the one that was meant.
    if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
        return Err("must not contain a space, a backslash or a control character".to_owned());
    }
    let url = Url::parse(text).map_err(|e| format!("is not a URL: {e}"))?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err("must begin with https://".to_owned());
    }
    if authority(text).is_empty() {
        return Err("must name a server after https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() || authority(text).contains('@') {
        return Err("must not contain a user or a password".to_owned());
    }
    if url.fragment().is_some() {
        return Err("must not have a fragment after #".to_owned());
    }
    match url.port_or_known_default() {
        Some(80 | 443) => {}
        Some(port) if port > MAX_WELL_KNOWN_PORT => {}
        _ => return Err(format!("must use the port 80, 443 or one above {MAX_WELL_KNOWN_PORT}")),
    }
    let is_encrypted = url.scheme() == "https";
    match host_address(&url) {
        Some(address) if !policy.allows(address, is_encrypted) => Err(not_allowed(address, policy)),
        None if !is_encrypted && policy.allows_only_public() => Err("must begin with https://".to_owned()),
        _ => Ok(url),
    }
}

fn not_allowed(address: IpAddr, policy: &AddressPolicy) -> String {
    if policy.allows(address, true) {
        "must begin with https://".to_owned()
    } else {
        "must lead to a public address; webhooks.allow_networks can allow others".to_owned()
    }
}

/// Returns the authority as it was written: a parser forgives too few slashes, and too many.
fn authority(text: &str) -> &str {
    let after = text.split_once("://").map_or("", |(_, after)| after);
    after.split(['/', '?', '#']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_needs_an_allowed_network() {
        let (nothing, some) = (AddressPolicy::default(), AddressPolicy::new(["127.0.0.0/8".parse().unwrap()]));
        for good in
            ["https://example.com", "https://example.com:8443/a?b=c", "https://1.1.1.1/x", "https://[2606:4700::1]/"]
        {
            assert!(check(good, &nothing).is_ok(), "{good}");
        }
        for (url, with_nothing, with_some) in [
            ("http://example.com/", false, true), // where it leads is found out later
            ("http://127.0.0.1:8080/", false, true),
            ("https://127.0.0.1:8443/", false, true),
            ("http://1.1.1.1/", false, false),
            ("http://[::1]:8080/", false, false),
        ] {
            assert_eq!((check(url, &nothing).is_ok(), check(url, &some).is_ok()), (with_nothing, with_some), "{url}");
        }
    }

    #[test]
    fn unusual_urls_are_refused() {
        let open = AddressPolicy::new(["0.0.0.0/0".parse().unwrap()]);
        for bad in [
            "",
            "example.com",
            "//example.com",
            "ftp://example.com/",
            "file:///etc/passwd",
            "gopher://example.com/",
            "data:,x",
            "https://",
            "https:///path",
            "https:example.com/path",
            "https:/example.com/path",
            "https://user@example.com/",
            "https://user:pass@example.com/",
            "https://@example.com/",
            "https://example.com@evil.test/",
            "https://example.com/#part",
            "https://example.com:22/",
            "https://example.com:0/",
            "https://example.com:25/",
            "https://exa mple.com/",
            " https://example.com/",
            "https://example.com/\n",
            "https://example.com\\@evil.test/",
            "https://example.com/\0",
            "https://[::1",
            "https://exa<mple.com/",
            "https://256.256.256.256/",
            "javascript:alert(1)",
        ] {
            assert!(check(bad, &open).is_err(), "{bad}");
        }
        assert!(check(&format!("https://example.com/{}", "x".repeat(MAX_URL_BYTES)), &open).is_err());
    }
}
