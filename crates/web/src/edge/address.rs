//! Determines the client address of a request, using the forwarding headers of trusted proxies only.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderMap, HeaderName, header};

use super::settings::TrustedNetwork;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Address of the client: the peer of the connection, or the address that a trusted proxy reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

pub(super) fn of(request: &Request, trusted: &[TrustedNetwork]) -> ClientAddress {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0.ip().to_canonical());
    ClientAddress(client(peer, request.headers(), trusted))
}

/// Each proxy appends the address it saw on the right. So the client is the first address from the right that is not a
/// trusted proxy; everything left of it was written by that client.
fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[TrustedNetwork]) -> IpAddr {
    if !is_trusted(peer, trusted) {
        return peer;
    }
    let forwarded = hops(headers, &header::FORWARDED, named_by_forwarded);
    let x_forwarded = hops(headers, &X_FORWARDED_FOR, |hop| address(hop.trim()));
    match (forwarded.is_empty(), x_forwarded.is_empty()) {
        (true, _) => first_untrusted(peer, x_forwarded, trusted),
        (false, true) => first_untrusted(peer, forwarded, trusted),
        // A proxy writes one of the two headers and passes the other on as the client sent it; which one is unknown.
        (false, false) => {
            let (one, other) = (first_untrusted(peer, forwarded, trusted), first_untrusted(peer, x_forwarded, trusted));
            if one == other { one } else { peer }
        }
    }
}

fn is_trusted(address: IpAddr, trusted: &[TrustedNetwork]) -> bool {
    trusted.iter().any(|network| network.contains(address))
}

/// Walks the hops from right to left, up to the first address that is not a trusted proxy.
fn first_untrusted(peer: IpAddr, hops: Vec<Option<IpAddr>>, trusted: &[TrustedNetwork]) -> IpAddr {
    let mut last = peer;
    for hop in hops.into_iter().rev() {
        // A hop without an address, or with an obfuscated one: nothing left of it can be trusted.
        let Some(hop) = hop else { break };
        last = hop;
        if !is_trusted(hop, trusted) {
            break;
        }
    }
    last
}

/// Returns all hops of a forwarding header in order, across repeated header lines.
fn hops(headers: &HeaderMap, name: &HeaderName, read: impl Fn(&str) -> Option<IpAddr>) -> Vec<Option<IpAddr>> {
    let lines = headers.get_all(name).iter().map(|line| line.to_str().unwrap_or("?"));
    lines.flat_map(|line| line.split(',')).map(read).collect()
}

/// RFC 7239: `for=192.0.2.60;proto=http`, `for="[2001:db8::1]:4711"`, `for=unknown`.
fn named_by_forwarded(hop: &str) -> Option<IpAddr> {
    let mut pairs = hop.split(';').filter_map(|pair| pair.trim().split_once('='));
    let (_, node) = pairs.find(|(name, _)| name.eq_ignore_ascii_case("for"))?;
    address(node.trim_matches('"'))
}

/// Parses an address with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_of(peer: &str, headers: &[(&'static str, &'static str)]) -> String {
        let trusted = ["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap(), "192.0.2.1".parse().unwrap()];
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        client(peer.parse().unwrap(), &map, &trusted).to_string()
    }

    #[test]
    fn only_trusted_proxies_name_the_client() {
        let claim = [("x-forwarded-for", "1.2.3.4"), ("forwarded", "for=1.2.3.4")];
        assert_eq!(client_of("203.0.113.9", &claim), "203.0.113.9");
        assert_eq!(client_of("10.1.1.1", &claim), "1.2.3.4");
        assert_eq!(client_of("192.0.2.1", &claim), "1.2.3.4");
        assert_eq!(client_of("192.0.2.2", &claim), "192.0.2.2");
        assert_eq!(client_of("10.1.1.1", &[]), "10.1.1.1");
    }

    #[test]
    fn hops_written_by_the_client_are_ignored() {
        assert_eq!(client_of("10.1.1.1", &[("x-forwarded-for", "6.6.6.6, 203.0.113.9")]), "203.0.113.9");
        let lines = [("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "203.0.113.9, 10.2.2.2")];
        assert_eq!(client_of("10.1.1.1", &lines), "203.0.113.9");
        assert_eq!(client_of("10.1.1.1", &[("x-forwarded-for", "10.3.3.3, 10.2.2.2")]), "10.3.3.3");
        assert_eq!(client_of("10.1.1.1", &[("x-forwarded-for", "1.2.3.4, nonsense, 10.2.2.2")]), "10.2.2.2");
    }

    #[test]
    fn both_headers_allow_ports_and_brackets() {
        for (value, client) in [
            ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
            ("For=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
            ("proto=https; for=\"192.0.2.60:8080\"", "192.0.2.60"),
            ("for=unknown", "10.1.1.1"),
            ("for=_hidden, for=10.9.9.9", "10.9.9.9"),
            ("proto=https", "10.1.1.1"),
        ] {
            assert_eq!(client_of("10.1.1.1", &[("forwarded", value)]), client, "{value}");
        }
        for (value, client) in [
            ("1.2.3.4:99", "1.2.3.4"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]:9", "2001:db8::1"),
            ("::ffff:1.2.3.4", "1.2.3.4"),
        ] {
            assert_eq!(client_of("fd00::1", &[("x-forwarded-for", value)]), client, "{value}");
        }
    }

    #[test]
    fn contradicting_headers_are_ignored() {
        let differ = [("x-forwarded-for", "203.0.113.9"), ("forwarded", "for=6.6.6.6")];
        assert_eq!(client_of("10.1.1.1", &differ), "10.1.1.1");
    }
}
