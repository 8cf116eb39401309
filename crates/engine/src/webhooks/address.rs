//! Which addresses a tenant may have us send something to: those of the open internet, and what the operator opened.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// As in `10.0.0.0/8` or `fd00::/8`.
pub use ipnet::IpNet as Network;

/// IPv4 that is not of the open internet, after IANA's registry of special addresses.
const REFUSED_V4: &[(Ipv4Addr, u8)] = &[
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

/// What is public in IPv6. Everything else is refused without being named: loopback, IPv4 in all its disguises (mapped,
/// compatible, NAT64), unique local, link-local, site-local, multicast.
const PUBLIC_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// And what is not, within that.
const REFUSED_V6: &[(Ipv6Addr, u8)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocol assignments: Teredo, benchmarks, ORCHID
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4, which holds any IPv4 address
    (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16), // the testing network of old
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// What an address is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Of the open internet.
    Public,
    /// The operator opened it.
    Opened,
    Refused,
}

/// Which addresses may be reached. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    opened: std::sync::Arc<[Network]>,
}

impl Policy {
    /// What `webhooks.allow_networks` names is open, and exactly that: a network of IPv4 addresses does not open the IPv6
    /// addresses that stand for them.
    pub fn new(opened: impl IntoIterator<Item = Network>) -> Self {
        Self { opened: opened.into_iter().collect() }
    }

    pub fn standing(&self, address: IpAddr) -> Standing {
        if self.opened.iter().any(|network| network.contains(&address)) {
            Standing::Opened
        } else if is_public(address) {
            Standing::Public
        } else {
            Standing::Refused
        }
    }

    /// Without encryption only what the operator opened is reached.
    pub fn allows(&self, address: IpAddr, is_encrypted: bool) -> bool {
        match self.standing(address) {
            Standing::Opened => true,
            Standing::Public => is_encrypted,
            Standing::Refused => false,
        }
    }

    pub fn opens_nothing(&self) -> bool {
        self.opened.is_empty()
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            !REFUSED_V4.iter().any(|(first, bits)| Ipv4Net::new_assert(*first, *bits).contains(&address))
        }
        IpAddr::V6(address) => {
            let within = |(first, bits): &(Ipv6Addr, u8)| Ipv6Net::new_assert(*first, *bits).contains(&address);
            within(&PUBLIC_V6) && !REFUSED_V6.iter().any(within)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_open_internet_is_public_and_ends_where_it_ends() {
        let nothing = Policy::default();
        let public = "1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 169.253.255.255
            169.255.0.0 172.15.255.255 172.32.0.0 191.255.255.255 192.0.1.0 192.167.255.255 192.169.0.0 198.17.255.255
            198.20.0.0 223.255.255.255 168.63.129.15 168.63.129.17 2001:200:: 2606:4700:4700::1111 2a00:1450::1 2400::
            2003:: 3ffd::1 3fff:1000::";
        for address in public.split_whitespace() {
            assert_eq!(nothing.standing(ip(address)), Standing::Public, "{address}");
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
            assert_eq!(nothing.standing(ip(address)), Standing::Refused, "{address}");
            assert!(!nothing.allows(ip(address), true), "{address}");
        }
    }

    #[test]
    fn what_the_operator_opens_is_open_and_nothing_beside_it() {
        let policy =
            Policy::new(["10.1.0.0/16", "fd00:1::/32", "127.0.0.2/32"].map(|network| network.parse().unwrap()));
        for address in "10.1.0.0 10.1.255.255 fd00:1::1 127.0.0.2".split(' ') {
            assert_eq!(policy.standing(ip(address)), Standing::Opened, "{address}");
            assert!(policy.allows(ip(address), false), "{address}");
        }
        for address in
            "10.0.255.255 10.2.0.0 127.0.0.1 127.0.0.3 fd00:2::1 ::ffff:10.1.0.1 64:ff9b::a01:1 2002:a01:1::".split(' ')
        {
            assert_eq!(policy.standing(ip(address)), Standing::Refused, "{address}");
        }
    }
}
