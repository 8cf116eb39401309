use domain::Sha256;
use store::StoreError;
use store::blobs::Encoding;
use store::testing::on_each_database;
use tempfile::tempdir;

use crate::samples::{blobs, pack, tenant};

#[tokio::test]
async fn every_member_of_a_pack_reads_back_and_the_same_bytes_are_kept_once() {
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
        assert_eq!(acme.list_blobs(None, 100).await.unwrap().len(), 4);
        assert_eq!(acme.find_blob(Sha256::of(&noise)).await.unwrap().unwrap().encoding, Encoding::Identity);
        let known = acme.stored_blobs(vec![Sha256::of(b"a"), Sha256::of(b"new")]).await.unwrap();
        assert!(known.contains(&Sha256::of(b"a")) && known.len() == 1);
    })
    .await;
}

#[tokio::test]
async fn a_flipped_bit_or_a_missing_object_is_noticed_on_read() {
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
