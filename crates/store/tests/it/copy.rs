//! Whole objects from one blob store to another.

use domain::Sha256;
use store::StoreError;
use store::blobs::{Blobs, CopyError, ExpectedObject};

/// Pieces are 8 MB: nothing, one, exactly one, exactly two, and a rest.
const SIZES: [usize; 6] = [0, 1000, 8 << 20, 16 << 20, (16 << 20) + 1, 20 << 20];

fn bytes(size: usize) -> Vec<u8> {
    (0..size).map(|n| (n * 31 + n / 251) as u8).collect()
}

fn two_folders() -> (tempfile::TempDir, Blobs, Blobs) {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| Blobs::local(&folder.path().join(name)).unwrap();
    let (from, to) = (open("from"), open("to"));
    (folder, from, to)
}

#[tokio::test]
async fn copied_object_of_any_size_is_complete() {
    let (folder, from, to) = two_folders();
    for size in SIZES {
        let (key, bytes) = (format!("tenant/packs/00/{size}"), bytes(size));
        from.write(&key, bytes.clone()).await.unwrap();

        let sha256 = from.copy_to(&to, &key, ExpectedObject { size_bytes: size as u64, sha256: None }).await.unwrap();

        assert_eq!(sha256, Sha256::of(&bytes), "{size}");
        assert!(std::fs::read(folder.path().join("to").join(&key)).unwrap() == bytes, "{size}");
        assert_eq!(to.measure(&key).await.unwrap(), (size as u64, sha256));
    }
}

#[tokio::test]
async fn unexpected_object_is_not_copied() {
    let (_folder, from, to) = two_folders();
    for size in SIZES {
        let key = format!("tenant/packs/00/{size}");
        from.write(&key, bytes(size)).await.unwrap();
        let size_bytes = size as u64;
        for expected in [
            ExpectedObject { size_bytes: size_bytes + 1, sha256: None },
            ExpectedObject { size_bytes, sha256: Some(Sha256::of(b"something else")) },
        ] {
            let refused = from.copy_to(&to, &key, expected).await.unwrap_err();

            assert!(matches!(refused, CopyError::Reading(StoreError::Corrupt(_))), "{size}: {refused:?}");
            assert_eq!(to.object_size(&key).await.unwrap(), None, "{size}");
        }
    }
    let absent = from.copy_to(&to, "nowhere", ExpectedObject { size_bytes: 1, sha256: None }).await.unwrap_err();
    assert!(matches!(absent, CopyError::Reading(StoreError::BlobMissing(_))), "{absent:?}");
}

#[tokio::test]
async fn damaged_copy_is_replaced() {
    let (folder, from, to) = two_folders();
    from.write("tenant/a", bytes(1000)).await.unwrap();
    let expected = ExpectedObject { size_bytes: 1000, sha256: Some(Sha256::of(&bytes(1000))) };
    from.copy_to(&to, "tenant/a", expected).await.unwrap();
    std::fs::write(folder.path().join("to/tenant/a"), "cut").unwrap();

    from.copy_to(&to, "tenant/a", expected).await.unwrap();

    assert_eq!(to.measure("tenant/a").await.unwrap(), (1000, Sha256::of(&bytes(1000))));
}
