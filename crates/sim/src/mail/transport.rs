//! The header fields that servers add on delivery.

use jiff::{SignedDuration, Timestamp};

use super::dates;
use super::mime::Headers;
use super::rng::Rng;

/// Names of invented mail servers.
const SOFTWARE: [&str; 4] = ["Postgate 4.2", "Ferry SMTP 11", "Mailwright 3.8.1", "Stagecoach 2.0"];

/// A message's route from its sender to one company.
#[derive(Debug)]
pub struct TransportTrace<'a> {
    /// Empty for delivery reports.
    pub return_path: &'a str,
    pub from_domain: &'a str,
    pub to_domain: &'a str,
    /// The recipient named in the last hop, if there is only one.
    pub only_recipient: Option<&'a str>,
    pub received_at: Timestamp,
}

impl TransportTrace<'_> {
    /// Renders Return-Path, two to four Received fields, the receiving server's verdict and the sender's signature.
    pub fn fields(&self, rng: &mut Rng) -> String {
        let mut headers = Headers::default();
        headers.text.reserve(2_048);
        headers.field("Return-Path", &format!("<{}>", self.return_path));
        let is_internal = self.from_domain == self.to_domain;
        self.append_hops(&mut headers.text, is_internal, rng);
        headers.field("Authentication-Results", &self.verdict(is_internal));
        if !is_internal {
            headers.field("DKIM-Signature", &self.signature(rng));
        }
        headers.field("X-Screening-Score", &format!("-{}.{} / 7.0", rng.below(4), rng.below(10)));
        headers.text
    }

    /// Appends one Received field per server, the last on top.
    fn append_hops(&self, out: &mut String, is_internal: bool, rng: &mut Rng) {
        let mut hosts = vec![format!("mx1.{}", self.to_domain)];
        if !is_internal {
            hosts.push(format!("out{}.{}", rng.between(1, 4), self.from_domain));
            if rng.percent(50) {
                hosts.push(format!("filter.{}", self.from_domain));
            }
        }
        hosts.push(format!("smtp.{}", self.from_domain));
        for (hop, by) in hosts.iter().enumerate() {
            let address = format!("{}.{}", rng.pick(&["192.0.2", "198.51.100", "203.0.113"]), rng.between(1, 254));
            let (from, protocol) = match hosts.get(hop + 1) {
                Some(host) => (format!("{host} ({host} [{address}])"), "ESMTPS"),
                None => (format!("[{address}] (unknown [{address}])"), "ESMTPSA"),
            };
            let target = match self.only_recipient {
                Some(recipient) if hop == 0 => format!("\r\n\tfor <{recipient}>"),
                _ => String::new(),
            };
            let at = self.received_at - SignedDuration::from_secs(2 * hop as i64);
            out.push_str(&format!(
                "Received: from {from}\r\n\tby {by} ({}) with {protocol} id {}{target};\r\n\t{}\r\n",
                rng.pick(&SOFTWARE),
                rng.token(14),
                dates::rfc5322(at, 0)
            ));
        }
    }

    fn verdict(&self, is_internal: bool) -> String {
        let Self { return_path, from_domain, to_domain, .. } = self;
        if is_internal {
            return format!("mx1.{to_domain}; auth=pass smtp.helo=smtp.{from_domain}");
        }
        format!(
            "mx1.{to_domain}; dkim=pass header.d={from_domain} header.s=mail2024; spf=pass \
             smtp.mailfrom={return_path}; dmarc=pass (p=quarantine) header.from={from_domain}"
        )
    }

    /// Builds a DKIM-like signature; no key exists that verifies it.
    fn signature(&self, rng: &mut Rng) -> String {
        let mut value = format!(
            "v=1; a=rsa-sha256; c=relaxed/relaxed; d={}; s=mail2024; t={}; \
             h=from:to:cc:subject:date:message-id:mime-version:content-type; bh={}=; b=",
            self.from_domain,
            self.received_at.as_second(),
            rng.token(43)
        );
        for piece in 0..5 {
            if piece > 0 {
                value.push(' ');
            }
            value.push_str(&rng.token(64));
        }
        value.push_str("==");
        value
    }
}
