//! Stores that fail: what can be retried is, the rest is told in time, and no wrong byte passes as good.

use std::io::Cursor;
use std::time::Duration;

use domain::Sha256;
use futures_util::TryStreamExt;
use store::StoreError;
use store::blobs::{Blobs, Encoding, Member, RemoteKind};
use store::testing::object_stores;

use super::contract::{assert_unreadable, place};
use super::proxy::{Fault, Proxy};
use super::{REMOTE, noise};

const BUSY: Fault = Fault::Status(503, "<Error><Code>SlowDown</Code></Error>");
const BROKEN: Fault = Fault::Status(500, "");

/// A store behind a proxy.
async fn behind_a_proxy(kind: RemoteKind, patience: Duration) -> (Proxy, Blobs) {
    let proxy = Proxy::start(&object_stores::url(kind)).await;
    let blobs = Blobs::remote(&object_stores::settings(kind, &proxy.url, patience)).unwrap();
    (proxy, blobs)
}

/// For faults that pass.
const PATIENT: Duration = Duration::from_secs(30);

/// For faults that stay.
const IMPATIENT: Duration = Duration::from_secs(1);

/// Far longer than any patience here: reaching it means waiting for ever.
async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), work).await.expect("an answer or an error, in time")
}

fn is_down(e: &StoreError) -> bool {
    matches!(e, StoreError::BlobsUnavailable(_))
}

fn whole(content: &[u8]) -> Member {
    let size = content.len() as u64;
    Member {
        sha256: Sha256::of(content),
        offset: 0,
        stored_bytes: size,
        size_bytes: size,
        encoding: Encoding::Identity,
    }
}

#[tokio::test]
async fn a_store_that_stumbles_is_asked_again() {
    for kind in REMOTE {
        let (proxy, blobs) = behind_a_proxy(kind, PATIENT).await;
        let content = noise(100_000);
        let at = place("acme/packs/00/a", &whole(&content));

        proxy.plan(&[BUSY, BROKEN], Fault::None);
        blobs.write(&at.object_key, content.clone()).await.unwrap();
        proxy.plan(&[BROKEN, BUSY], Fault::None);
        assert!(blobs.read(&at).await.unwrap() == content);
        proxy.plan(&[BUSY], Fault::None);
        assert_eq!(blobs.object_size(&at.object_key).await.unwrap(), Some(100_000));
        proxy.plan(&[BUSY, BUSY], Fault::None);
        assert_eq!(blobs.list("acme").try_collect::<Vec<_>>().await.unwrap().len(), 1);

        // A body that ends too early is asked for again, from where it broke off.
        proxy.plan(&[Fault::Cut, Fault::Cut], Fault::None);
        assert!(blobs.read(&at).await.unwrap() == content);
        assert_eq!(proxy.requests(), 3);
        proxy.plan(&[Fault::Cut], Fault::None);
        assert!(blobs.read_to(&at, Vec::new()).await.unwrap() == content);

        proxy.plan(&[BUSY], Fault::None);
        blobs.delete(&at.object_key).await.unwrap();
        assert_eq!(blobs.object_size(&at.object_key).await.unwrap(), None);
    }
}

#[tokio::test]
async fn an_answer_that_is_lost_does_not_make_a_write_fail_or_happen_twice() {
    for kind in REMOTE {
        let (proxy, blobs) = behind_a_proxy(kind, PATIENT).await;

        proxy.plan(&[Fault::LoseAnswer], Fault::None);
        blobs.write("acme/packs/00/a", b"once".to_vec()).await.unwrap();
        assert!(proxy.requests() > 1, "the proxy was not in the way");
        proxy.plan(&[], Fault::None);

        assert_eq!(blobs.read_range("acme/packs/00/a", 0..4).await.unwrap().as_ref(), b"once");
        let refused = blobs.write("acme/packs/00/a", b"more".to_vec()).await.unwrap_err();
        assert!(matches!(refused, StoreError::Refused(_)), "{refused:?}");
    }
}

#[tokio::test]
async fn a_large_blob_survives_faults_in_the_middle_and_a_dead_store_leaves_no_object() {
    let content = noise(17 << 20);
    for kind in REMOTE {
        let (proxy, blobs) = behind_a_proxy(kind, PATIENT).await;

        proxy.plan(&[Fault::None, BUSY, Fault::None, BROKEN, BUSY, Fault::None, BUSY], Fault::None);
        let member = blobs.write_stream("acme/packs/00/a", Cursor::new(content.clone())).await.unwrap();
        assert!(proxy.requests() > 7, "the faults were not met");
        assert!(blobs.read_to(&place("acme/packs/00/a", &member), Vec::new()).await.unwrap() == content);

        // Finishing may have worked though nobody said so.
        let before = proxy.requests();
        proxy.plan(&[], Fault::None);
        blobs.write_stream("acme/packs/00/b", Cursor::new(content.clone())).await.unwrap();
        let requests = proxy.requests();
        assert!(requests < before, "without faults there are fewer requests");
        let lost: Vec<Fault> = (1..requests).map(|_| Fault::None).chain([Fault::LoseAnswer]).collect();
        proxy.plan(&lost, Fault::None);
        blobs.write_stream("acme/packs/00/c", Cursor::new(content.clone())).await.unwrap();
        assert_eq!(blobs.object_size("acme/packs/00/c").await.unwrap(), Some(content.len() as u64));

        let (proxy, blobs) = behind_a_proxy(kind, IMPATIENT).await;
        proxy.plan(&[Fault::None, Fault::None, Fault::None], BROKEN);
        let failed = in_time(blobs.write_stream("acme/packs/00/d", Cursor::new(content.clone()))).await.unwrap_err();
        assert!(is_down(&failed), "{failed:?}");
        proxy.plan(&[], Fault::None);
        assert_eq!(blobs.object_size("acme/packs/00/d").await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_store_that_stays_down_is_told_in_time() {
    let faults = [(BUSY, "503"), (BROKEN, "500"), (Fault::Hang, "")];
    let stores = REMOTE.into_iter().flat_map(|kind| faults.map(|(fault, says)| stays_down(kind, fault, says)));
    futures_util::future::join_all(stores).await;
}

async fn stays_down(kind: RemoteKind, fault: Fault, says: &str) {
    let (proxy, blobs) = behind_a_proxy(kind, IMPATIENT).await;
    let at = place("acme/packs/00/a", &whole(b"x"));
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
async fn a_store_that_is_too_slow_is_told_in_time() {
    for kind in REMOTE {
        let (proxy, blobs) = behind_a_proxy(kind, IMPATIENT).await;
        let content = noise(100_000);
        let at = place("acme/packs/00/a", &whole(&content));
        blobs.write(&at.object_key, content.clone()).await.unwrap();

        proxy.plan(&[], Fault::Drip);
        assert!(is_down(&in_time(blobs.read(&at)).await.unwrap_err()));

        // With more patience it comes through.
        let (proxy, blobs) = behind_a_proxy(kind, PATIENT).await;
        let at = place("acme/packs/00/b", &whole(b"slow but sure"));
        blobs.write(&at.object_key, b"slow but sure".to_vec()).await.unwrap();
        proxy.plan(&[], Fault::Drip);
        assert_eq!(in_time(blobs.read_to(&at, Vec::new())).await.unwrap(), b"slow but sure");
    }
}

#[tokio::test]
async fn a_body_that_is_cut_or_altered_never_passes_as_good() {
    for kind in REMOTE {
        let (proxy, blobs) = behind_a_proxy(kind, IMPATIENT).await;
        let content = noise(10_000);
        let at = place("acme/packs/00/a", &whole(&content));
        blobs.write(&at.object_key, content.clone()).await.unwrap();

        proxy.plan(&[], Fault::Flip);
        assert_unreadable(&blobs, &at, |e| matches!(e, StoreError::Corrupt(_))).await;
        // Half of the rest each time never reaches the end.
        proxy.plan(&[], Fault::Cut);
        in_time(assert_unreadable(&blobs, &at, is_down)).await;
        proxy.plan(&[], Fault::None);
        assert!(blobs.read(&at).await.unwrap() == content);
    }
}

#[tokio::test]
async fn refusals_that_time_does_not_heal_are_not_retried() {
    let (proxy, blobs) = behind_a_proxy(RemoteKind::S3, PATIENT).await;
    for (answer, says) in [
        (Fault::Status(403, "<Error><Code>InvalidAccessKeyId</Code></Error>"), "(403 Forbidden, InvalidAccessKeyId)"),
        (Fault::Status(403, "<Error><Code>SignatureDoesNotMatch</Code></Error>"), "check AWS_ACCESS_KEY_ID"),
        (Fault::Status(403, "<Error><Code>RequestTimeTooSkewed</Code></Error>"), "clock is wrong"),
        (Fault::Status(301, ""), "set AWS_REGION"),
    ] {
        proxy.plan(&[], answer);

        let refused = blobs.write("a", b"x".to_vec()).await.unwrap_err();

        assert!(matches!(refused, StoreError::Misconfigured(_) | StoreError::Refused(_)), "{refused:?}");
        assert!(refused.to_string().contains(says), "{refused}");
        assert_eq!(proxy.requests(), 1);
    }
}

#[tokio::test]
async fn nobody_listens() {
    let url = {
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}", closed.local_addr().unwrap())
    };
    // Google's too, though there is no server to test it against.
    for kind in [RemoteKind::S3, RemoteKind::Azure, RemoteKind::Gcs] {
        let blobs = Blobs::remote(&object_stores::settings(kind, &url, IMPATIENT)).unwrap();

        let down = in_time(blobs.check()).await.unwrap_err();

        assert!(is_down(&down), "{down:?}");
        assert!(down.to_string().contains("Connection refused"), "{down}");
    }
}
