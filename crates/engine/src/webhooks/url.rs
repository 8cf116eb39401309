//! What a tenant may give as an address. Where its name leads to is found out when something is sent there.

use std::net::IpAddr;

use reqwest::Url;

use super::address::Policy;

/// Longer ones are cut by proxies and servers.
const LONGEST: usize = 2048;

/// Ports up to here belong to services that are no receivers of webhooks, but for those of HTTP.
const WELL_KNOWN: u16 = 1023;

/// The URL if something may be sent there, or what is wrong with it.
pub fn check(text: &str, policy: &Policy) -> Result<Url, String> {
    if text.len() > LONGEST {
        return Err(format!("it is longer than {LONGEST} bytes"));
    }
    // A parser drops or turns some of these, and others do not; what is sent to must be what was meant.
    if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
        return Err("it has a space, a backslash or a control character in it".to_owned());
    }
    let url = Url::parse(text).map_err(|e| format!("it is not a URL: {e}"))?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err("it must begin with https://".to_owned());
    }
    if authority(text).is_empty() {
        return Err("it names no server after https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() || authority(text).contains('@') {
        return Err("it must not name a user or a password".to_owned());
    }
    if url.fragment().is_some() {
        return Err("it must not have a part after #".to_owned());
    }
    match url.port_or_known_default() {
        Some(80 | 443) => {}
        Some(port) if port > WELL_KNOWN => {}
        _ => return Err(format!("its port must be 80, 443 or more than {WELL_KNOWN}")),
    }
    let is_encrypted = url.scheme() == "https";
    match host_address(&url) {
        Some(address) if !policy.allows(address, is_encrypted) => Err(not_allowed(address, policy)),
        None if !is_encrypted && policy.opens_nothing() => Err("it must begin with https://".to_owned()),
        _ => Ok(url),
    }
}

fn not_allowed(address: IpAddr, policy: &Policy) -> String {
    match policy.allows(address, true) {
        true => "it must begin with https://".to_owned(),
        false => "its address is not one of the open internet; webhooks.allow_networks can open others".to_owned(),
    }
}

/// As it was written: a parser forgives too few slashes, and too many.
fn authority(text: &str) -> &str {
    let after = text.split_once("://").map_or("", |(_, after)| after);
    after.split(['/', '?', '#']).next().unwrap_or_default()
}

/// The address, if that is what stands in the place of a name. However it was written: the parser has turned `0x7f.1`,
/// `2130706433` and the like into what they stand for.
pub(super) fn host_address(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_to_anybody_and_http_to_what_is_opened() {
        let (nothing, some) = (Policy::default(), Policy::new(["127.0.0.0/8".parse().unwrap()]));
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
    fn what_is_no_plain_address_is_refused() {
        let open = Policy::new(["0.0.0.0/0".parse().unwrap()]);
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
        assert!(check(&format!("https://example.com/{}", "x".repeat(LONGEST)), &open).is_err());
    }
}
