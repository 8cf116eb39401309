use std::collections::{HashMap, HashSet};

use sim::mail::{Delivery, demo};

#[test]
fn every_mailbox_of_three_tenants_gets_mail() {
    let mut demo = demo(1, 1_500);
    let tenants = demo.tenants().to_vec();

    let deliveries: Vec<Delivery> = demo.by_ref().collect();

    assert_eq!(tenants.len(), 3);
    assert_eq!(deliveries.len(), 1_500);
    let filled: HashSet<(usize, usize)> = deliveries.iter().map(|d| (d.tenant, d.mailbox)).collect();
    assert_eq!(filled.len(), tenants.iter().map(|tenant| tenant.mailboxes.len()).sum::<usize>());
    for Delivery { tenant, mailbox, message } in &deliveries {
        let owner = &tenants[*tenant].mailboxes[*mailbox].owner;
        let is_sender = message.from == *owner;
        assert_eq!(message.folder == "Sent", is_sender);
        assert!(is_sender || message.to.contains(owner) || message.cc.contains(owner));
    }
}

#[test]
fn colleagues_hold_the_same_bytes_and_tenants_do_not_share_them() {
    let mut copies: HashMap<Vec<u8>, HashSet<(usize, usize)>> = HashMap::new();
    let mut tenants_of: HashMap<String, HashSet<usize>> = HashMap::new();
    for Delivery { tenant, mailbox, message } in demo(2, 1_500) {
        tenants_of.entry(message.message_id).or_default().insert(tenant);
        let is_new = copies.entry(message.raw).or_default().insert((tenant, mailbox));
        assert!(is_new, "a mailbox got the same message twice");
    }

    let shared = copies.values().filter(|holders| holders.len() > 1).count();
    let crossing = tenants_of.values().filter(|tenants| tenants.len() > 1).count();
    assert!(shared > 100, "{shared} messages lie in more than one mailbox");
    assert!(crossing > 30, "{crossing} messages went from one tenant to another");
    for holders in copies.values() {
        assert_eq!(holders.iter().map(|(tenant, _)| tenant).collect::<HashSet<_>>().len(), 1);
    }
}

#[test]
fn a_demo_is_the_same_each_time() {
    let bytes = || demo(3, 100).map(|delivery| delivery.message.raw).collect::<Vec<_>>();

    assert_eq!(bytes(), bytes());
}
