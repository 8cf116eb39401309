//! The address policy for URLs that tenants give: public addresses, and networks that the operator allows.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use reqwest::Url;

/// As in `10.0.0.0/8` or `fd00::/8`.
pub use ipnet::IpNet as Network;

/// IPv4 networks that are not public, after IANA's registry of special-purpose addresses.
const NON_PUBLIC_V4: &[(Ipv4Addr, u8)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),        // this network; 0.0.0.0 is this machine
    (Ipv4Addr::new(10, 0, 0, 0), 8),       // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),    // behind a provider's NAT; also some clouds' metadata
    (Ipv4Addr::new(127, 0, 0, 0), 8),      // this machine
    (Ipv4Addr::new(168, 63, 129, 16), 32), // looks public, and is the host of every machine at Azure
    (Ipv4Addr::new(169, 254, 0, 0), 16),   // this link; metadata of most clouds
    (Ipv4Addr::new(172, 16, 0, 0), 12),    // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),     // protocol assignments; metadata of one cloud
    (Ipv4Addr::new(192, 0, 2, 0), 24),     // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24),   // relays to IPv6
    (Ipv4Addr::new(192, 168, 0, 0), 16),   // private
    (Ipv4Addr::new(198, 18, 0, 0), 15),    // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24),  // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),   // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),      // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),      // reserved, and broadcast
];

/// The public IPv6 network. Everything else is refused without being listed: loopback, IPv4 in all its disguises
/// (mapped, compatible, NAT64), unique local, link-local, site-local, multicast.
const PUBLIC_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Networks within it that are not public.
const NON_PUBLIC_V6: &[(Ipv6Addr, u8)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocol assignments: Teredo, benchmarks, ORCHID
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4, which holds any IPv4 address
    (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16), // the testing network of old
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// The class of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressClass {
    /// A public address.
    Public,
    /// Allowed by the operator.
    Allowed,
    Refused,
}

/// Which addresses may be reached. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct AddressPolicy {
    allowed: std::sync::Arc<[Network]>,
}

impl AddressPolicy {
    /// Creates a policy that allows the networks of `webhooks.allow_networks`, and exactly those: an IPv4 network does
    /// not allow the IPv6 addresses that stand for it.
    pub fn new(allowed: impl IntoIterator<Item = Network>) -> Self {
        Self { allowed: allowed.into_iter().collect() }
    }

    pub fn classify(&self, address: IpAddr) -> AddressClass {
        if self.allowed.iter().any(|network| network.contains(&address)) {
            AddressClass::Allowed
        } else if is_public(address) {
            AddressClass::Public
        } else {
            AddressClass::Refused
        }
    }

    /// Returns whether an address may be reached. Without encryption only those that the operator allows.
    pub fn allows(&self, address: IpAddr, is_encrypted: bool) -> bool {
        match self.classify(address) {
            AddressClass::Allowed => true,
            AddressClass::Public => is_encrypted,
            AddressClass::Refused => false,
        }
    }

    pub fn allows_only_public(&self) -> bool {
        self.allowed.is_empty()
    }
}

/// Returns the address if the host is one, however it was written: the parser has turned `0x7f.1`, `2130706433` and the
/// like into what they stand for.
pub fn host_address(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse().ok()
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            !NON_PUBLIC_V4.iter().any(|(first, bits)| Ipv4Net::new_assert(*first, *bits).contains(&address))
        }
        IpAddr::V6(address) => {
            is_within(address, &PUBLIC_V6) && !NON_PUBLIC_V6.iter().any(|network| is_within(address, network))
        }
    }
}

fn is_within(address: Ipv6Addr, (first, bits): &(Ipv6Addr, u8)) -> bool {
    Ipv6Net::new_assert(*first, *bits).contains(&address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn public_address_ranges_end_where_they_should() {
        let nothing = AddressPolicy::default();
        let public = "1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 169.253.255.255
            169.255.0.0 172.15.255.255 172.32.0.0 191.255.255.255 192.0.1.0 192.167.255.255 192.169.0.0 198.17.255.255
            198.20.0.0 223.255.255.255 168.63.129.15 168.63.129.17 2001:200:: 2606:4700:4700::1111 2a00:1450::1 2400::
            2003:: 3ffd::1 3fff:1000::";
        for address in public.split_whitespace() {
            assert_eq!(nothing.classify(ip(address)), AddressClass::Public, "{address}");
            assert!(!nothing.allows(ip(address), false), "{address} without encryption");
        }
        let refused = "0.0.0.0 0.255.255.255 10.0.0.0 10.255.255.255 100.64.0.0 100.127.255.255 100.100.100.200 127.0.0.1
            127.255.255.255 168.63.129.16 169.254.0.0 169.254.169.254 169.254.255.255 172.16.0.0 172.31.255.255 192.0.0.192
            192.0.2.1 192.88.99.1 192.168.0.0 192.168.255.255 198.18.0.0 198.19.255.255 198.51.100.7 203.0.113.7 224.0.0.1
            239.255.255.255 240.0.0.0 255.255.255.255 :: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:8.8.8.8 ::ffff:0:7f00:1
            64:ff9b::7f00:1 64:ff9b::808:808 64:ff9b:1::1 100::1 2001::1 2001:0:53aa::1 2001:2::1 2001:10::1 2001:20::1
            2001:1ff:ffff::1 2001:db8::1 2002:7f00:1:: 2002:808:808::1 3ffe::1 3fff::1 3fff:fff:: 4000:: 5f00::1 fc00::1
            fd00:ec2::254 fdff::1 fe80::1 fe80::a9fe:a9fe febf::1 fec0::1 feff::1 ff02::1 ff0e::1";
        for address in refused.split_whitespace() {
            assert_eq!(nothing.classify(ip(address)), AddressClass::Refused, "{address}");
            assert!(!nothing.allows(ip(address), true), "{address}");
        }
    }

    #[test]
    fn only_configured_networks_are_allowed() {
        let policy =
            AddressPolicy::new(["10.1.0.0/16", "fd00:1::/32", "127.0.0.2/32"].map(|network| network.parse().unwrap()));
        for address in "10.1.0.0 10.1.255.255 fd00:1::1 127.0.0.2".split(' ') {
            assert_eq!(policy.classify(ip(address)), AddressClass::Allowed, "{address}");
            assert!(policy.allows(ip(address), false), "{address}");
        }
        for address in
            "10.0.255.255 10.2.0.0 127.0.0.1 127.0.0.3 fd00:2::1 ::ffff:10.1.0.1 64:ff9b::a01:1 2002:a01:1::".split(' ')
        {
            assert_eq!(policy.classify(ip(address)), AddressClass::Refused, "{address}");
        }
    }
}
