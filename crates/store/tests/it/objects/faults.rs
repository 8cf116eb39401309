//! Failing stores: transient faults are retried, others are reported in time, and no wrong byte is accepted.

use std::io::Cursor;
use std::time::Duration;

use domain::Sha256;
use futures_util::TryStreamExt;
use store::StoreError;
use store::blobs::{BlobEncoding, Blobs, PackMember, RemoteKind};
use store::testing::object_stores;

use super::contract::{assert_unreadable, location};
use super::proxy::{FaultProxy, StoreFault};
use super::{REMOTE, noise};

const BUSY: StoreFault = StoreFault::Status(503, "<Error><Code>SlowDown</Code></Error>");
const BROKEN: StoreFault = StoreFault::Status(500, "");

/// A store behind a proxy.
async fn behind_a_proxy(kind: RemoteKind, retry_for: Duration) -> (FaultProxy, Blobs) {
    let proxy = FaultProxy::start(&object_stores::url(kind)).await;
    let blobs = Blobs::remote(&object_stores::settings(kind, &proxy.url, retry_for)).unwrap();
    (proxy, blobs)
}

/// For faults that pass.
const LONG_RETRY: Duration = Duration::from_secs(30);

/// For faults that stay.
const SHORT_RETRY: Duration = Duration::from_secs(1);

/// For faults that stay and are answered.
const ANSWERED_RETRY: Duration = Duration::from_secs(5);

/// Far longer than any patience here: reaching it means waiting for ever.
async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), work).await.expect("an answer or an error, in time")
}

fn is_down(e: &StoreError) -> bool {
    matches!(e, StoreError::BlobsUnavailable(_))
}

fn whole(content: &[u8]) -> PackMember {
    let size = content.len() as u64;
    PackMember {
        sha256: Sha256::of(content),
        offset: 0,
        stored_bytes: size,
        size_bytes: size,
        encoding: BlobEncoding::Identity,
    }
}

#[tokio::test]
async fn transient_store_faults_are_retried() {
    for kind in REMOTE {
        let (proxy, blobs) = behind_a_proxy(kind, LONG_RETRY).await;
        let content = noise(100_000);
        let at = location("acme/packs/00/a", &whole(&content));

        proxy.plan(&[BUSY, BROKEN], StoreFault::None);
        blobs.write(&at.object_key, content.clone()).await.unwrap();
        proxy.plan(&[BROKEN, BUSY], StoreFault::None);
        assert!(blobs.read(&at).await.unwrap() == content);
        proxy.plan(&[BUSY], StoreFault::None);
        assert_eq!(blobs.object_size(&at.object_key).await.unwrap(), Some(100_000));
        proxy.plan(&[BUSY, BUSY], StoreFault::None);
        assert_eq!(blobs.list("acme").try_collect::<Vec<_>>().await.unwrap().len(), 1);

        // A body that ends too early is asked for again, from where it broke off.
        proxy.plan(&[StoreFault::Cut, StoreFault::Cut], StoreFault::None);
        assert!(blobs.read(&at).await.unwrap() == content);
        assert_eq!(proxy.requests(), 3);
        proxy.plan(&[StoreFault::Cut], StoreFault::None);
        assert!(blobs.read_to(&at, Vec::new()).await.unwrap() == content);

        proxy.plan(&[BUSY], StoreFault::None);
        blobs.delete(&at.object_key).await.unwrap();
        assert_eq!(blobs.object_size(&at.object_key).await.unwrap(), None);
    }
}

#[tokio::test]
async fn lost_answer_neither_fails_nor_repeats_a_write() {
    for kind in REMOTE {
        let (proxy, blobs) = behind_a_proxy(kind, LONG_RETRY).await;

        proxy.plan(&[StoreFault::LoseAnswer], StoreFault::None);
        blobs.write("acme/packs/00/a", b"once".to_vec()).await.unwrap();
        assert!(proxy.requests() > 1, "the proxy was not in the way");
        proxy.plan(&[], StoreFault::None);

        assert_eq!(blobs.read_range("acme/packs/00/a", 0..4).await.unwrap().as_ref(), b"once");
        let refused = blobs.write("acme/packs/00/a", b"more".to_vec()).await.unwrap_err();
        assert!(matches!(refused, StoreError::Refused(_)), "{refused:?}");
    }
}

#[tokio::test]
async fn large_upload_survives_faults_or_leaves_no_object() {
    let content = noise(17 << 20);
    for kind in REMOTE {
        let (proxy, blobs) = behind_a_proxy(kind, LONG_RETRY).await;

        proxy.plan(&[StoreFault::None, BUSY, StoreFault::None, BROKEN, BUSY, StoreFault::None, BUSY], StoreFault::None);
        let member = blobs.write_stream("acme/packs/00/a", Cursor::new(content.clone())).await.unwrap();
        assert!(proxy.requests() > 7, "the faults were not met");
        assert!(blobs.read_to(&location("acme/packs/00/a", &member), Vec::new()).await.unwrap() == content);

        // Completion may have worked though its answer was lost.
        let before = proxy.requests();
        proxy.plan(&[], StoreFault::None);
        blobs.write_stream("acme/packs/00/b", Cursor::new(content.clone())).await.unwrap();
        let requests = proxy.requests();
        assert!(requests < before, "without faults there are fewer requests");
        let lost: Vec<StoreFault> = (1..requests).map(|_| StoreFault::None).chain([StoreFault::LoseAnswer]).collect();
        proxy.plan(&lost, StoreFault::None);
        blobs.write_stream("acme/packs/00/c", Cursor::new(content.clone())).await.unwrap();
        assert_eq!(blobs.object_size("acme/packs/00/c").await.unwrap(), Some(content.len() as u64));

        let (proxy, blobs) = behind_a_proxy(kind, SHORT_RETRY).await;
        proxy.plan(&[StoreFault::None, StoreFault::None, StoreFault::None], BROKEN);
        let failed = in_time(blobs.write_stream("acme/packs/00/d", Cursor::new(content.clone()))).await.unwrap_err();
        assert!(is_down(&failed), "{failed:?}");
        proxy.plan(&[], StoreFault::None);
        assert_eq!(blobs.object_size("acme/packs/00/d").await.unwrap(), None);
    }
}

#[tokio::test]
async fn dead_store_is_reported_in_time() {
    let faults = [(BUSY, "503"), (BROKEN, "500"), (StoreFault::Hang, "")];
    let stores = REMOTE.into_iter().flat_map(|kind| faults.map(|(fault, says)| stays_down(kind, fault, says)));
    futures_util::future::join_all(stores).await;
}

async fn stays_down(kind: RemoteKind, fault: StoreFault, says: &str) {
    // Long enough for the first answer on a busy machine, which the error then quotes.
    let retry = if matches!(fault, StoreFault::Hang) { SHORT_RETRY } else { ANSWERED_RETRY };
    let (proxy, blobs) = behind_a_proxy(kind, retry).await;
    let at = location("acme/packs/00/a", &whole(b"x"));
    proxy.plan(&[], fault);

    let written = in_time(blobs.write("acme/packs/00/b", b"x".to_vec())).await.unwrap_err();
    assert!(is_down(&written) && written.to_string().contains(says), "{fault:?}: {written}");
    assert!(written.to_string().contains("check that it is up and that blobs.url is right"), "{written}");
    let (size, deleted, listed, ()) = in_time(async {
        let listed = blobs.list("").try_collect::<Vec<_>>();
        tokio::join!(blobs.object_size("a"), blobs.delete("a"), listed, assert_unreadable(&blobs, &at, is_down))
    })
    .await;
    for failed in [size.map(drop), deleted, listed.map(drop)] {
        assert!(failed.as_ref().is_err_and(is_down), "{fault:?}: {failed:?}");
    }
}

#[tokio::test]
async fn slow_store_is_reported_in_time() {
    for kind in REMOTE {
        let (proxy, blobs) = behind_a_proxy(kind, SHORT_RETRY).await;
        let content = noise(100_000);
        let at = location("acme/packs/00/a", &whole(&content));
        blobs.write(&at.object_key, content.clone()).await.unwrap();

        proxy.plan(&[], StoreFault::Drip);
        assert!(is_down(&in_time(blobs.read(&at)).await.unwrap_err()));

        // With more patience it comes through.
        let (proxy, blobs) = behind_a_proxy(kind, LONG_RETRY).await;
        let at = location("acme/packs/00/b", &whole(b"slow but sure"));
        blobs.write(&at.object_key, b"slow but sure".to_vec()).await.unwrap();
        proxy.plan(&[], StoreFault::Drip);
        assert_eq!(in_time(blobs.read_to(&at, Vec::new())).await.unwrap(), b"slow but sure");
    }
}

#[tokio::test]
async fn truncated_or_altered_body_is_rejected() {
    for kind in REMOTE {
        let (proxy, blobs) = behind_a_proxy(kind, SHORT_RETRY).await;
        let content = noise(10_000);
        let at = location("acme/packs/00/a", &whole(&content));
        blobs.write(&at.object_key, content.clone()).await.unwrap();

        proxy.plan(&[], StoreFault::Flip);
        assert_unreadable(&blobs, &at, |e| matches!(e, StoreError::Corrupt(_))).await;
        // Half of the rest each time never reaches the end.
        proxy.plan(&[], StoreFault::Cut);
        in_time(assert_unreadable(&blobs, &at, is_down)).await;
        proxy.plan(&[], StoreFault::None);
        assert!(blobs.read(&at).await.unwrap() == content);
    }
}

#[tokio::test]
async fn permanent_refusals_are_not_retried() {
    let (proxy, blobs) = behind_a_proxy(RemoteKind::S3, LONG_RETRY).await;
    for (answer, says) in [
        (
            StoreFault::Status(403, "<Error><Code>InvalidAccessKeyId</Code></Error>"),
            "(403 Forbidden, InvalidAccessKeyId)",
        ),
        (StoreFault::Status(403, "<Error><Code>SignatureDoesNotMatch</Code></Error>"), "check AWS_ACCESS_KEY_ID"),
        (StoreFault::Status(403, "<Error><Code>RequestTimeTooSkewed</Code></Error>"), "clock is wrong"),
        (StoreFault::Status(301, ""), "set AWS_REGION"),
    ] {
        proxy.plan(&[], answer);

        let refused = blobs.write("a", b"x".to_vec()).await.unwrap_err();

        assert!(matches!(refused, StoreError::Misconfigured(_) | StoreError::Refused(_)), "{refused:?}");
        assert!(refused.to_string().contains(says), "{refused}");
        assert_eq!(proxy.requests(), 1);
    }
}

#[tokio::test]
async fn refused_connection_is_reported() {
    let url = {
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}", closed.local_addr().unwrap())
    };
    // Google's too, though there is no server to test it against.
    for kind in [RemoteKind::S3, RemoteKind::Azure, RemoteKind::Gcs] {
        let blobs = Blobs::remote(&object_stores::settings(kind, &url, SHORT_RETRY)).unwrap();

        let down = in_time(blobs.check()).await.unwrap_err();

        assert!(is_down(&down), "{down:?}");
        assert!(down.to_string().contains("Connection refused"), "{down}");
    }
}
