//! From where a request came.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::extract::{ConnectInfo, Request};

/// Who is at the other end, as far as it can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

pub(super) fn of(request: &Request) -> ClientAddress {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    ClientAddress(peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0.ip().to_canonical()))
}
