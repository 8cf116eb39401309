use domain::{Clock, Sha256, SystemClock};
use futures_util::{StreamExt, TryStreamExt};
use jiff::SignedDuration;
use store::StoreError;
use store::blobs::{BlobEncoding, Blobs};
use store::testing::on_each_database;
use tempfile::tempdir;

use crate::samples::{blobs, pack, tenant};

#[tokio::test]
async fn pack_members_read_back_and_are_deduplicated() {
    on_each_database(|db| async move {
        let (folder, acme) = (tempdir().unwrap(), tenant(&db.store, "acme").await);
        let blobs = blobs(&folder);
        let noise: Vec<u8> = (0..1000_u32).flat_map(|n| Sha256::of(&n.to_be_bytes()).0).collect();
        let contents: [&[u8]; 5] = [b"", b"a", &b"long and dull ".repeat(500), &noise, b"a"];

        let mut unit = acme.write();
        pack(&acme, &blobs, &mut unit, &contents).await;
        unit.commit().await.unwrap();

        for content in contents {
            let place = acme.find_blob(Sha256::of(content)).await.unwrap().unwrap();
            assert_eq!(blobs.read(&place).await.unwrap(), content);
        }
        assert_eq!(acme.totals().await.unwrap().blobs, 4);
        assert_eq!(acme.find_blob(Sha256::of(&noise)).await.unwrap().unwrap().encoding, BlobEncoding::Identity);
        let known = acme.find_stored_blobs(vec![Sha256::of(b"a"), Sha256::of(b"new")]).await.unwrap();
        assert!(known.contains(&Sha256::of(b"a")) && known.len() == 1);
    })
    .await;
}

#[tokio::test]
async fn damaged_or_missing_object_fails_the_read() {
    on_each_database(|db| async move {
        let (folder, acme) = (tempdir().unwrap(), tenant(&db.store, "acme").await);
        let blobs = blobs(&folder);
        let mut unit = acme.write();
        pack(&acme, &blobs, &mut unit, &[b"precious"]).await;
        unit.commit().await.unwrap();
        let place = acme.find_blob(Sha256::of(b"precious")).await.unwrap().unwrap();
        let object = folder.path().join(&place.object_key);

        let mut bytes = std::fs::read(&object).unwrap();
        bytes[3] ^= 1;
        std::fs::write(&object, bytes).unwrap();
        assert!(matches!(blobs.read(&place).await, Err(StoreError::Corrupt(_))));

        std::fs::remove_file(&object).unwrap();
        assert!(matches!(blobs.read(&place).await, Err(StoreError::BlobMissing(_))));
    })
    .await;
}

#[tokio::test]
async fn listing_by_prefix_and_repeated_delete_work() {
    let folder = tempdir().unwrap();
    let blobs = blobs(&folder);
    for key in ["acme/packs/00/a", "acme/packs/01/b", "acme2/packs/00/c"] {
        blobs.write(key, vec![7; key.len()]).await.unwrap();
    }

    assert_eq!(keys(&blobs, "acme").await, ["acme/packs/00/a", "acme/packs/01/b"]);
    assert_eq!(keys(&blobs, "").await.len(), 3);
    assert_eq!(keys(&blobs, "nobody").await, [""; 0]);
    let first = blobs.list("acme2").next().await.unwrap().unwrap();
    assert_eq!((first.key.as_str(), first.size_bytes), ("acme2/packs/00/c", 16));
    assert!((SystemClock.now() - first.modified_at).get_hours() == 0, "{first:?}");

    for _ in 0..2 {
        blobs.delete("acme/packs/00/a").await.unwrap();
    }
    assert_eq!(keys(&blobs, "acme").await, ["acme/packs/01/b"]);
}

async fn keys(blobs: &Blobs, prefix: &str) -> Vec<String> {
    let mut keys: Vec<String> = blobs.list(prefix).map_ok(|object| object.key).try_collect().await.unwrap();
    keys.sort();
    keys
}

#[tokio::test]
async fn old_unfinished_writes_are_removed() {
    let folder = tempdir().unwrap();
    let blobs = blobs(&folder);
    blobs.write("acme/packs/00/a", b"whole".to_vec()).await.unwrap();
    let left = folder.path().join("acme/packs/00/b#1");
    std::fs::write(&left, b"hal").unwrap();
    // Names that only look like it belong to objects.
    let others = ["acme/packs/00/c#", "acme/packs/00/d#x1"].map(|name| folder.path().join(name));
    others.iter().for_each(|path| std::fs::write(path, b"").unwrap());
    let now = SystemClock.now();

    assert!(!keys(&blobs, "").await.iter().any(|key| key.contains("/b")), "no object");
    assert_eq!(blobs.remove_unfinished(now - SignedDuration::from_hours(1)).await.unwrap(), 0);
    assert!(left.exists(), "its writer may still be at it");
    assert_eq!(blobs.remove_unfinished(now + SignedDuration::from_hours(1)).await.unwrap(), 1);

    assert!(!left.exists() && others.iter().all(|path| path.exists()));
    assert!(keys(&blobs, "").await.contains(&"acme/packs/00/a".to_owned()));
}

#[tokio::test]
async fn blob_store_failure_is_not_a_database_error() {
    let folder = tempdir().unwrap();
    let blobs = blobs(&folder);
    std::fs::write(folder.path().join("acme"), b"a file where a folder should be").unwrap();

    let refused = blobs.write("acme/packs/00/a", b"x".to_vec()).await.unwrap_err();

    assert!(matches!(refused, StoreError::BlobsUnavailable(_)), "{refused:?}");
    assert!(refused.to_string().contains("check that it is up and that blobs.url is right"), "{refused}");
}
