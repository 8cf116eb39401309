//! URLs and names that lead to where nobody outside has any business.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::{Clock, DeliveryId, SystemClock};
use engine::delivery::webhooks::sign::{SigningKey, new_secret};
use engine::delivery::webhooks::{SendOutcome, SendResult, WebhookMessage, WebhookSender, url};
use outbound::http::{AddressPolicy, ResolvedAddresses, Resolver, Url};

use super::receiver::Receiver;

/// Answers with what it is given, the last of it for ever.
#[derive(Debug, Default)]
struct Answers {
    answers: Mutex<VecDeque<Vec<IpAddr>>>,
    lookups: AtomicUsize,
}

impl Answers {
    fn new(answers: &[&str]) -> Arc<Self> {
        let answers =
            answers.iter().map(|answer| answer.split_whitespace().map(|ip| ip.parse().unwrap()).collect()).collect();
        Arc::new(Self { answers: Mutex::new(answers), lookups: AtomicUsize::new(0) })
    }
}

impl Resolver for Answers {
    fn resolve<'a>(&'a self, _: &'a str) -> ResolvedAddresses<'a> {
        self.lookups.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        Box::pin(async { answer.ok_or_else(|| std::io::Error::other("no such name")) })
    }
}

fn sender(policy: &AddressPolicy, resolver: Arc<Answers>) -> WebhookSender {
    WebhookSender::new(policy.clone(), resolver).unwrap().with_timeout(Duration::from_secs(3600))
}

async fn send(sender: &WebhookSender, url: &Url) -> SendResult {
    let keys = [SigningKey::parse(new_secret().unwrap().expose()).unwrap()];
    let message = WebhookMessage { id: DeliveryId::new(&SystemClock), body: b"{}".to_vec() };
    sender.send(url, &keys, SystemClock.now(), message).await
}

fn assert_refused(sent: &SendResult, what: &str) {
    assert_eq!((sent.outcome, sent.status), (SendOutcome::Failed, None), "{what}");
    let why = sent.answer.as_deref().unwrap();
    assert!(why.ends_with("may not be reached") || why.ends_with("that may be reached"), "{what}: {why}");
}

/// Each stands for an address that is not of the open internet.
const HOSTS: &str = "
    127.0.0.1 127.0.0.2 127.255.255.254 127.1 127.0.1 127.0.0.1. 127.000.000.001 2130706433 2130706433. 017700000001 0x7f000001
    0X7F000001 0x7f.1 0x7f.0x0.0x0.0x1 0177.0.0.1 0177.0x0.1 0177.1 0x7F.0.1 1２7.0.0.1 １２７.０.０.１ ①②⑦.⓪.⓪.① 127。0。0。1 127．0．0．1
    127.0.0.%31 %31%32%37.0.0.1 0 0x0 00 0.0.0.0 0.0.0.1 0.1.2.3 10.0.0.1 10.255.255.255 167772161 012.0.0.1 0xa000001 100.64.0.1
    100.100.100.200 100.127.255.254 169.254.169.254 2852039166 0xa9fea9fe 0xA9.0xFE.0xA9.0xFE 0251.0376.0251.0376 169.254.43518
    169.254.170.2 169.254.1.1 168.63.129.16 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1
    192.168.255.255 3232235521 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.250 240.0.0.1
    255.255.255.255 4294967295 0xffffffff [::] [::1] [0:0:0:0:0:0:0:1] [0000::0001] [::0.0.0.1] [::127.0.0.1] [::7f00:1] [::a9fe:a9fe]
    [::ffff:127.0.0.1] [::ffff:7f00:1] [::FFFF:10.0.0.1] [::ffff:169.254.169.254] [::ffff:a9fe:a9fe] [::ffff:0:127.0.0.1]
    [::ffff:8.8.8.8] [64:ff9b::127.0.0.1] [64:ff9b::a9fe:a9fe] [64:ff9b::10.0.0.1] [64:ff9b:1::7f00:1] [64:ff9b:1:ffff::1] [100::1]
    [2001::1] [2001:0:7f00:1::] [2001:2::1] [2001:10::1] [2001:20::1] [2001:db8::1] [2002:7f00:1::] [2002:a9fe:a9fe::1]
    [2002:a00:1::] [3ffe::1] [3fff::1] [5f00::1] [fc00::1] [fd00:ec2::254] [fd12:3456::1] [fe80::1] [fe80::a9fe:a9fe] [febf::1]
    [fec0::1] [ff01::1] [ff02::1] [ff0e::1]";

/// What a name may be answered with. The first ones are reached if anything is, for something listens there.
const ANSWERS: &str = "127.0.0.1,::1,127.0.0.2,0.0.0.0,::,::ffff:127.0.0.1,::127.0.0.1,127.0.0.1 1.1.1.1,1.1.1.1 127.0.0.1,
    2606:4700::1 ::1,1.1.1.1 ::ffff:127.0.0.1,10.0.0.1,10.0.0.1 8.8.8.8,100.64.0.1,100.100.100.200,169.254.169.254,
    8.8.8.8 169.254.169.254,168.63.129.16,172.16.0.1,172.31.0.1,192.0.0.192,192.0.2.1,192.88.99.1,192.168.1.1,198.18.0.1,
    198.51.100.1,203.0.113.1,224.0.0.1,240.0.0.1,255.255.255.255,::ffff:10.0.0.1,::ffff:169.254.169.254,64:ff9b::7f00:1,
    64:ff9b::a9fe:a9fe,64:ff9b:1::1,100::1,2001::1,2001:db8::1,2002:7f00:1::,2002:a9fe:a9fe::,3fff::1,fc00::1,fd00:ec2::254,
    fe80::1,fec0::1,ff02::1,2606:4700::1 fd00::1,";

#[tokio::test]
async fn forbidden_addresses_are_never_connected() {
    let receiver = Receiver::at("0.0.0.0:0").await;
    let port = receiver.address.port();
    // Where there is no IPv6, nothing can connect to it either.
    let second = tokio::net::TcpListener::bind(("::1", port)).await.ok();
    let nothing = AddressPolicy::default();
    let mut tried = 0;
    for host in HOSTS.split_whitespace() {
        for scheme in ["https", "http"] {
            let text = format!("{scheme}://{host}:{port}/x");
            tried += 1;
            assert!(url::check(&text, &nothing).is_err(), "{text}");
            // The sender does not rely on that.
            let parsed = Url::parse(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
            let sent = send(&sender(&nothing, Answers::new(&["127.0.0.1"])), &parsed).await;
            assert_refused(&sent, &text);
        }
    }
    for answer in ANSWERS.split(',') {
        for name in [
            "https://hook.test",
            "http://hook.test",
            "https://localhost",
            "http://LOCALHOST.",
            "https://metadata.google.internal",
        ] {
            let text = format!("{name}:{port}/x");
            tried += 1;
            let sent = send(&sender(&nothing, Answers::new(&[answer])), &Url::parse(&text).unwrap()).await;
            assert_refused(&sent, &format!("{text} at {answer}"));
        }
    }
    // Also not without encryption to where it could go with it.
    for answer in ["1.1.1.1", "2606:4700::1"] {
        let sent = send(&sender(&nothing, Answers::new(&[answer])), &"http://hook.test/".parse().unwrap()).await;
        assert_refused(&sent, answer);
    }
    assert!(tried > 400, "{tried}");
    assert_eq!(receiver.connections.load(Ordering::SeqCst), 0);
    if let Some(second) = second {
        let connected = futures_util::FutureExt::now_or_never(second.accept());
        assert!(connected.is_none(), "{connected:?}");
    }

    // Something does listen there: the same calls connect when they may.
    let open = AddressPolicy::new(["127.0.0.0/8".parse().unwrap()]);
    for (text, connections) in [(format!("http://127.1:{port}/"), 1), (format!("http://hook.test:{port}/"), 2)] {
        let sent = send(&sender(&open, Answers::new(&["127.0.0.1"])), &text.parse().unwrap()).await;
        assert_eq!(sent.outcome, SendOutcome::Delivered, "{text}: {sent:?}");
        assert_eq!(receiver.connections.load(Ordering::SeqCst), connections);
    }
}

#[tokio::test]
async fn only_allowed_networks_are_reached() {
    let receiver = Receiver::at("0.0.0.0:0").await;
    let port = receiver.address.port();
    let open = AddressPolicy::new(["127.0.0.8/30".parse().unwrap()]);
    for (last, is_open) in [(1, false), (7, false), (8, true), (9, true), (11, true), (12, false)] {
        let address = format!("127.0.0.{last}");
        let text = format!("http://{address}:{port}/");
        assert_eq!(url::check(&text, &open).is_ok(), is_open, "{address}");
        let direct = send(&sender(&open, Answers::new(&[])), &text.parse().unwrap()).await;
        let named = format!("http://hook.test:{port}/").parse().unwrap();
        let by_name = send(&sender(&open, Answers::new(&[&address])), &named).await;
        for sent in [direct, by_name] {
            if is_open {
                assert_eq!(sent.outcome, SendOutcome::Delivered, "{address}: {sent:?}");
            } else {
                assert_refused(&sent, &address);
            }
        }
    }
    assert_eq!(receiver.connections.load(Ordering::SeqCst), 6);
}

/// The answer that was looked at is the one that is connected to: between the two there is no second question.
#[tokio::test]
async fn dns_rebinding_gains_nothing() {
    let good = Receiver::at("127.0.0.8:0").await;
    let port = good.address.port();
    let bad = Receiver::at(&format!("127.0.0.1:{port}")).await;
    let open = AddressPolicy::new(["127.0.0.8/32".parse().unwrap()]);
    let url: Url = format!("http://hook.test:{port}/").parse().unwrap();
    for round in 1..=20 {
        let answers = Answers::new(&["127.0.0.8", "127.0.0.1"]);
        let rebound = sender(&open, answers.clone());
        assert_eq!(send(&rebound, &url).await.outcome, SendOutcome::Delivered);
        assert_eq!(answers.lookups.load(Ordering::SeqCst), 1, "asked once");
        assert_eq!(good.connections.load(Ordering::SeqCst), round);
    }
    let answers = Answers::new(&["127.0.0.1", "127.0.0.8"]);
    assert_refused(&send(&sender(&open, answers), &url).await, "the other way round");
    assert_eq!(bad.connections.load(Ordering::SeqCst), 0);
}
