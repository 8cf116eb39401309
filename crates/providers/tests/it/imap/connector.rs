//! What is special to the IMAP connector. What every connector does is in `testkit::contract`.

use std::time::Duration;

use domain::connector::Cursors;
use domain::{Connector, ConnectorError};
use providers::imap::{Imap, check_connection};
use sim::imap::{CAPABILITIES, ImapOperation};
use testkit::contract::{ConnectorUnderTest, ImapUnderTest, assert_replicated};

use super::{COMMON_CAPABILITIES, OLD_CAPABILITIES, RESYNC_CAPABILITIES};

const ALL_CAPABILITIES: [&str; 4] = [OLD_CAPABILITIES, COMMON_CAPABILITIES, RESYNC_CAPABILITIES, CAPABILITIES];

#[tokio::test]
async fn connection_check_accepts_any_capabilities() {
    for capabilities in ALL_CAPABILITIES {
        let imap = ImapUnderTest::new(3, 3, capabilities).await;

        assert_eq!(check_connection(&imap.account()).await, Ok(()), "{capabilities}");
    }
}

#[tokio::test]
async fn replaced_folder_is_relisted() {
    for capabilities in ALL_CAPABILITIES {
        let imap = ImapUnderTest::new(40, 5, capabilities).await;
        let mut replica = imap.replica();
        replica.begin().await.unwrap();
        imap.apply(ImapOperation::Renumber { folder: "INBOX".to_owned() });
        imap.step(5);

        // The connection that had it open ends, and another one is made.
        while replica.follow().await.is_err() {}
        replica.follow().await.unwrap();

        assert_replicated(&imap, &replica);
    }
}

#[tokio::test]
async fn idle_reports_new_mail() {
    let imap = ImapUnderTest::new(3, 4, CAPABILITIES).await;
    let mut replica = imap.replica();
    replica.begin().await.unwrap();
    let listened = replica.connector.listen(&replica.account, Duration::from_secs(60)).unwrap();
    let mail = async {
        while imap.world.listeners(ImapUnderTest::ADDRESS) == 0 {
            tokio::task::yield_now().await;
        }
        imap.apply(ImapOperation::deliver());
    };

    let (heard, ()) = tokio::join!(listened, mail);

    assert_eq!(heard, Ok(true));
}

#[tokio::test]
async fn changed_password_is_unauthorized() {
    let imap = ImapUnderTest::new(3, 4, CAPABILITIES).await;
    let mut replica = imap.replica();
    replica.begin().await.unwrap();
    imap.world.set_password(ImapUnderTest::ADDRESS, "another");
    imap.world.disconnect(ImapUnderTest::ADDRESS);

    let refused = Imap::default().changes(&replica.account, &Cursors::new()).await.unwrap_err();

    assert!(matches!(refused, ConnectorError::Unauthorized(_)), "{refused}");
}
