//! Every connector keeps the promises of `testkit::contract`, against a simulator that checks every call by the provider's
//! own description: whoever follows a mailbox ends with the truth. What is special to one provider is in its own module.

use sim::imap::CAPABILITIES;
use testkit::contract::directory::{GoogleDirectoryUnderTest, MicrosoftDirectoryUnderTest, check_directory};
use testkit::contract::{ConnectorUnderTest, GmailUnderTest, ImapUnderTest, JmapUnderTest, OutlookUnderTest, check};

use crate::imap::{COMMON_CAPABILITIES, OLD_CAPABILITIES, RESYNC_CAPABILITIES};

#[tokio::test(flavor = "multi_thread")]
async fn gmail_keeps_the_contract() {
    let gmail = GmailUnderTest::new(1_200, 3).await;
    gmail.step(300);
    check(&gmail).await;
}

/// With these, an initial round repeats a message, a folder is new below the deleted items at the end of a step, and one is
/// below an Outbox with a German name.
#[expect(clippy::disallowed_methods, reason = "a failure is repeated with its seed")]
fn outlook_seeds() -> Vec<u64> {
    std::env::var("MAILROOM_TEST_SEED").map_or_else(|_| vec![1, 23, 31], |seed| vec![seed.parse().unwrap()])
}

async fn check_outlook(seed: u64) {
    let outlook = OutlookUnderTest::new(700, seed).await;
    // More than 50 recent changes are listed again for a minute.
    outlook.step(30);
    check(&outlook).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outlook_keeps_the_contract() {
    for seed in outlook_seeds() {
        check_outlook(seed).await;
    }
}

async fn check_imap(capabilities: &str) {
    let imap = ImapUnderTest::new(1_300, 3, capabilities).await;
    imap.step(60);
    check(&imap).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn imap_keeps_the_contract() {
    check_imap(CAPABILITIES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn imap_with_qresync_keeps_the_contract() {
    check_imap(RESYNC_CAPABILITIES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn imap_with_condstore_keeps_the_contract() {
    check_imap(COMMON_CAPABILITIES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn imap_without_extensions_keeps_the_contract() {
    check_imap(OLD_CAPABILITIES).await;
}

/// The seed also says in which order the server lists changes.
async fn check_jmap(messages: usize, seed: u64, max_objects: usize) {
    let jmap = JmapUnderTest::new(messages, seed, max_objects).await;
    jmap.step(60);
    check(&jmap).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jmap_keeps_the_contract() {
    check_jmap(700, 3, 100).await;
}

/// There are more folders than it lists at once.
#[tokio::test(flavor = "multi_thread")]
async fn jmap_with_small_pages_keeps_the_contract() {
    check_jmap(60, 4, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn google_directory_keeps_the_contract() {
    check_directory(&GoogleDirectoryUnderTest::new(1_200).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn microsoft_directory_keeps_the_contract() {
    check_directory(&MicrosoftDirectoryUnderTest::new(2_100).await).await;
}
