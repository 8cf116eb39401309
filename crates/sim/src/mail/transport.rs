//! The header fields that servers put on top of a message on its way.

use jiff::{SignedDuration, Timestamp};

use super::dates;
use super::mime::Headers;
use super::rng::Rng;

/// Invented server programs.
const SOFTWARE: [&str; 4] = ["Postgate 4.2", "Ferry SMTP 11", "Mailwright 3.8.1", "Stagecoach 2.0"];

/// A message's way from its sender to one company.
#[derive(Debug)]
pub struct Route<'a> {
    pub from_address: &'a str,
    pub from_domain: &'a str,
    pub to_domain: &'a str,
    /// Named in the last hop when there is only one recipient, as servers do.
    pub only_recipient: Option<&'a str>,
    pub received_at: Timestamp,
}

impl Route<'_> {
    /// Return-Path, two to four Received fields, the verdict of the receiving server and the sender's signature.
    pub fn fields(&self, rng: &mut Rng) -> String {
        let mut headers = Headers::default();
        headers.field("Return-Path", &format!("<{}>", self.from_address));
        let is_internal = self.from_domain == self.to_domain;
        let hops = if is_internal { 2 } else { rng.between(3, 4) };
        for hop in 0..hops {
            headers.field("Received", &self.hop(hop, hops, rng));
        }
        headers.field("Authentication-Results", &self.verdict(is_internal));
        if !is_internal {
            headers.field("DKIM-Signature", &self.signature(rng));
        }
        headers.field("X-Screening-Score", &format!("-{}.{} / 7.0", rng.below(4), rng.below(10)));
        headers.text
    }

    /// Hop 0 is the last server, which wrote on top.
    fn hop(&self, hop: usize, hops: usize, rng: &mut Rng) -> String {
        let address = format!("{}.{}", rng.pick(&["192.0.2", "198.51.100", "203.0.113"]), rng.between(1, 254));
        let software = rng.pick(&SOFTWARE);
        let (by, from) = match hop {
            0 => (format!("mx1.{}", self.to_domain), format!("out{}.{}", rng.between(1, 4), self.from_domain)),
            _ if hop + 1 == hops => (format!("smtp.{}", self.from_domain), format!("[{address}]")),
            _ => (format!("relay{hop}.{}", self.from_domain), format!("filter{}.{}", hop, self.from_domain)),
        };
        let target = match self.only_recipient {
            Some(recipient) if hop == 0 => format!(" for <{recipient}>"),
            _ => String::new(),
        };
        let protocol = if hop + 1 == hops { "ESMTPSA" } else { "ESMTPS" };
        let at = self.received_at - SignedDuration::from_secs(2 * hop as i64);
        format!(
            "from {from} ({from} [{address}]) by {by} ({software}) with {protocol} id {}{target}; {}",
            rng.token(14),
            dates::rfc5322(at, 0)
        )
    }

    fn verdict(&self, is_internal: bool) -> String {
        let Self { from_address, from_domain, to_domain, .. } = self;
        if is_internal {
            return format!("mx1.{to_domain}; auth=pass smtp.auth={from_address}");
        }
        format!(
            "mx1.{to_domain}; dkim=pass header.d={from_domain} header.s=mail2024; spf=pass \
             smtp.mailfrom={from_address}; dmarc=pass (p=quarantine) header.from={from_domain}"
        )
    }

    /// Shaped like a signature; it verifies nowhere, since no key exists.
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
