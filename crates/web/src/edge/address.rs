//! From where a request came, as far as it can be believed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderMap, HeaderName, header};

use super::settings::Network;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Who is at the other end: the peer of the connection, or whom a trusted proxy names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

pub(super) fn of(request: &Request, trusted: &[Network]) -> ClientAddress {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0.ip().to_canonical());
    ClientAddress(client(peer, request.headers(), trusted))
}

/// Each proxy adds on the right whom it saw. So the client is the first from the right who is not one of ours; what
/// stands further left is what that one says.
fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    if !is_trusted(peer) {
        return peer;
    }
    let along = |hops: Vec<Option<IpAddr>>| {
        let mut last = peer;
        for hop in hops.into_iter().rev() {
            // One without an address, or with a hidden one: nobody before it can be known.
            let Some(hop) = hop else { break };
            last = hop;
            if !is_trusted(hop) {
                break;
            }
        }
        last
    };
    let forwarded = hops(headers, &header::FORWARDED, named_by_forwarded);
    let x_forwarded = hops(headers, &X_FORWARDED_FOR, |hop| address(hop.trim()));
    match (forwarded.is_empty(), x_forwarded.is_empty()) {
        (true, _) => along(x_forwarded),
        (false, true) => along(forwarded),
        // A proxy writes one of them and passes the other as the client sent it. Which one, it does not say.
        (false, false) => {
            let (one, other) = (along(forwarded), along(x_forwarded));
            if one == other { one } else { peer }
        }
    }
}

/// All of them, in the order of the lines.
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

/// With or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(peer: &str, headers: &[(&'static str, &'static str)]) -> String {
        let trusted = ["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap(), "192.0.2.1".parse().unwrap()];
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        client(peer.parse().unwrap(), &map, &trusted).to_string()
    }

    #[test]
    fn only_a_trusted_proxy_says_who_the_client_is() {
        let claim = [("x-forwarded-for", "1.2.3.4"), ("forwarded", "for=1.2.3.4")];
        assert_eq!(found("203.0.113.9", &claim), "203.0.113.9");
        assert_eq!(found("10.1.1.1", &claim), "1.2.3.4");
        assert_eq!(found("192.0.2.1", &claim), "1.2.3.4");
        assert_eq!(found("192.0.2.2", &claim), "192.0.2.2");
        assert_eq!(found("10.1.1.1", &[]), "10.1.1.1");
    }

    #[test]
    fn what_the_client_wrote_itself_stands_on_the_left_and_is_not_believed() {
        assert_eq!(found("10.1.1.1", &[("x-forwarded-for", "6.6.6.6, 203.0.113.9")]), "203.0.113.9");
        let lines = [("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "203.0.113.9, 10.2.2.2")];
        assert_eq!(found("10.1.1.1", &lines), "203.0.113.9");
        assert_eq!(found("10.1.1.1", &[("x-forwarded-for", "10.3.3.3, 10.2.2.2")]), "10.3.3.3");
        assert_eq!(found("10.1.1.1", &[("x-forwarded-for", "1.2.3.4, nonsense, 10.2.2.2")]), "10.2.2.2");
    }

    #[test]
    fn both_spellings_are_read_with_ports_and_brackets() {
        for (value, client) in [
            ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
            ("For=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
            ("proto=https; for=\"192.0.2.60:8080\"", "192.0.2.60"),
            ("for=unknown", "10.1.1.1"),
            ("for=_hidden, for=10.9.9.9", "10.9.9.9"),
            ("proto=https", "10.1.1.1"),
        ] {
            assert_eq!(found("10.1.1.1", &[("forwarded", value)]), client, "{value}");
        }
        for (value, client) in [
            ("1.2.3.4:99", "1.2.3.4"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]:9", "2001:db8::1"),
            ("::ffff:1.2.3.4", "1.2.3.4"),
        ] {
            assert_eq!(found("fd00::1", &[("x-forwarded-for", value)]), client, "{value}");
        }
    }

    #[test]
    fn two_stories_are_none() {
        let differ = [("x-forwarded-for", "203.0.113.9"), ("forwarded", "for=6.6.6.6")];
        assert_eq!(found("10.1.1.1", &differ), "10.1.1.1");
    }
}
