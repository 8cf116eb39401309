//! Variables that Kubernetes makes for a Service called mailroom, or mailroom-something, in every pod of its namespace.
//!
//! They begin like our settings. Name and value must both have Kubernetes' shape: a mistyped MAILROOM_DATABASE_URL
//! that were passed over would start an empty SQLite.

use std::net::{IpAddr, SocketAddr};

const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

/// Tells whether Kubernetes made this variable for a Service.
pub(super) fn is_service_variable(name: &str, value: &str) -> bool {
    let Some(rest) = name.strip_prefix("MAILROOM").filter(|rest| is_service_name(rest)) else { return false };
    let is_host = rest.ends_with("_SERVICE_HOST") && is_ip(value);
    // A named port has its name at the end.
    let has_port = rest.ends_with("_SERVICE_PORT") || rest.contains("_SERVICE_PORT_");
    let is_link = rest.ends_with("_PORT") && PROTOCOLS.iter().any(|protocol| is_endpoint(protocol, value));
    is_host || (has_port && is_port(value)) || is_link || is_link_part(rest, value)
}

/// Tells whether Kubernetes could have made this part of a name. Two underscores are ours: they follow a section.
fn is_service_name(rest: &str) -> bool {
    let has_its_letters = rest.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    rest.starts_with('_') && !rest.contains("__") && has_its_letters
}

/// Tells whether this is `…_PORT_<n>_<protocol>`, or such a name with a part of the endpoint at the end.
fn is_link_part(rest: &str, value: &str) -> bool {
    let Some((_, tail)) = rest.rsplit_once("_PORT_") else { return false };
    let words: Vec<&str> = tail.split('_').collect();
    let [port, protocol, part @ ..] = words.as_slice() else { return false };
    let is_named_right = is_port(port) && PROTOCOLS.contains(protocol);
    is_named_right
        && match part {
            [] => is_endpoint(protocol, value),
            ["PROTO"] => value == protocol.to_ascii_lowercase(),
            ["PORT"] => value == *port,
            ["ADDR"] => is_ip(value),
            _ => false,
        }
}

/// Tells whether this is `tcp://10.0.0.7:8025`.
fn is_endpoint(protocol: &str, value: &str) -> bool {
    value.split_once("://").is_some_and(|(scheme, address)| {
        scheme == protocol.to_ascii_lowercase() && address.parse::<SocketAddr>().is_ok()
    })
}

fn is_ip(value: &str) -> bool {
    value.parse::<IpAddr>().is_ok()
}

fn is_port(value: &str) -> bool {
    value.parse::<u16>().is_ok_and(|port| port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubernetes_makes_is_known() {
        for (name, value) in [
            ("MAILROOM_SERVICE_HOST", "10.96.4.7"),
            ("MAILROOM_SERVICE_PORT", "8025"),
            ("MAILROOM_SERVICE_PORT_HTTP_API", "8025"),
            ("MAILROOM_PORT", "tcp://10.96.4.7:8025"),
            ("MAILROOM_PORT", "udp://[fd00::7]:53"),
            // Of a Service called mailroom-service.
            ("MAILROOM_SERVICE_PORT", "tcp://10.96.4.7:8025"),
            ("MAILROOM_PORT_8025_TCP", "tcp://10.96.4.7:8025"),
            ("MAILROOM_PORT_8025_TCP_PROTO", "tcp"),
            ("MAILROOM_PORT_8025_TCP_PORT", "8025"),
            ("MAILROOM_PORT_8025_TCP_ADDR", "10.96.4.7"),
            ("MAILROOM_PORT_53_UDP_ADDR", "fd00::7"),
            ("MAILROOM_POSTGRES_SERVICE_HOST", "10.96.4.8"),
            ("MAILROOM_POSTGRES_SERVICE_PORT_SQL", "5432"),
            ("MAILROOM_POSTGRES_PORT", "tcp://10.96.4.8:5432"),
            ("MAILROOM_POSTGRES_PORT_5432_TCP_ADDR", "10.96.4.8"),
            ("MAILROOM_REDIS_2_PORT_6379_TCP", "tcp://10.96.4.9:6379"),
        ] {
            assert!(is_service_variable(name, value), "{name}={value}");
        }
    }

    #[test]
    fn whatever_else_looks_like_a_setting_is_not() {
        for (name, value) in [
            ("MAILROOM_PORT", "8025"),
            ("MAILROOM_PORT", "http://10.96.4.7:8025"),
            ("MAILROOM_PORT", "tcp://10.96.4.7"),
            ("MAILROOM_PORT", ""),
            ("MAILROOM_SERVICE_HOST", "db.acme.test"),
            ("MAILROOM_SERVICE_PORT", "0"),
            ("MAILROOM_PORT_8025_TCP", "udp://10.96.4.7:8025"),
            ("MAILROOM_PORT_8025_TCP_PORT", "8026"),
            ("MAILROOM_PORT_8025_TCP_NAME", "8025"),
            ("MAILROOM_PORT_X_TCP_ADDR", "10.96.4.7"),
            ("MAILROOM_SERVER__PORT", "tcp://10.96.4.7:8025"),
            ("MAILROOM_SERVER__SERVICE_PORT", "8025"),
            ("MAILROOM_DATABASE_URL", "postgres://10.96.4.8:5432/mail"),
            ("MAILROOM_DATABASE_PORT", "5432"),
            ("MAILROOM_port", "tcp://10.96.4.7:8025"),
            ("MAILROOMS_PORT", "tcp://10.96.4.7:8025"),
        ] {
            assert!(!is_service_variable(name, value), "{name}={value}");
        }
    }
}
