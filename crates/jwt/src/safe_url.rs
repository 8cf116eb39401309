//! URLs from which nobody on the way can replace what is fetched.

/// Returns whether keys may be fetched from a URL: over https, or from this machine, so that they cannot be replaced.
pub fn is_safe_url(url: &str) -> bool {
    if let Some(rest) = url.strip_prefix("https://") {
        return !rest.is_empty();
    }
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse().is_ok_and(|host: std::net::IpAddr| host.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_need_https_or_this_machine() {
        for good in ["https://login.example", "http://127.0.0.1:81/x", "http://localhost", "http://[::1]:9/"] {
            assert!(is_safe_url(good), "{good}");
        }
        for bad in [
            "http://login.example",
            "http://127.0.0.1.evil.example",
            "https://",
            "file:///etc/passwd",
            "http://localhost@evil.example",
            "",
        ] {
            assert!(!is_safe_url(bad), "{bad}");
        }
    }
}
