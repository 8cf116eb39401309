//! What every store does when all is well, and how it says that something is not there.

use std::io::{self, Cursor, Read};
use std::time::Duration;

use domain::Sha256;
use futures_util::TryStreamExt;
use store::StoreError;
use store::blobs::{BlobEncoding, BlobLocation, Blobs, PackBuilder, PackMember, ReadError, RemoteKind};
use store::testing::object_stores;

use super::proxy::fetch;
use super::{REMOTE, each_blob_store, noise, settings};

const MB: usize = 1 << 20;

pub fn location(key: &str, member: &PackMember) -> BlobLocation {
    BlobLocation {
        sha256: member.sha256,
        object_key: key.to_owned(),
        offset: member.offset,
        stored_bytes: member.stored_bytes,
        size_bytes: member.size_bytes,
        encoding: member.encoding,
    }
}

async fn keys(blobs: &Blobs, prefix: &str) -> Vec<String> {
    let mut keys: Vec<String> = blobs.list(prefix).map_ok(|object| object.key).try_collect().await.unwrap();
    keys.sort();
    keys
}

#[tokio::test]
async fn objects_are_written_read_listed_and_deleted() {
    for location in each_blob_store() {
        let blobs = location.blobs;
        blobs.check().await.unwrap();
        assert_eq!(blobs.object_size("acme/packs/00/a").await.unwrap(), None);

        blobs.write("acme/packs/00/a", b"0123456789".to_vec()).await.unwrap();
        blobs.write("acme/packs/01/b", b"".to_vec()).await.unwrap();
        blobs.write("acme2/packs/00/c", b"c".to_vec()).await.unwrap();

        assert_eq!(blobs.object_size("acme/packs/00/a").await.unwrap(), Some(10));
        assert_eq!(blobs.read_range("acme/packs/00/a", 3..6).await.unwrap().as_ref(), b"345");
        assert_eq!(keys(&blobs, "acme").await, ["acme/packs/00/a", "acme/packs/01/b"]);
        assert_eq!(keys(&blobs, "").await.len(), 3);
        assert_eq!(keys(&blobs, "nobody").await, [""; 0]);

        // The same once more is fine, for an answer may get lost; anything else is not.
        blobs.write("acme/packs/00/a", b"0123456789".to_vec()).await.unwrap();
        let refused = blobs.write("acme/packs/00/a", b"other".to_vec()).await.unwrap_err();
        assert!(matches!(refused, StoreError::Refused(_)), "{refused:?}");
        let refused = blobs.write_stream("acme/packs/00/a", Cursor::new(b"other")).await.unwrap_err();
        assert!(matches!(refused, StoreError::Refused(_)), "{refused:?}");
        assert_eq!(blobs.read_range("acme/packs/00/a", 0..10).await.unwrap().as_ref(), b"0123456789");

        for _ in 0..2 {
            blobs.delete("acme/packs/00/a").await.unwrap();
        }
        assert_eq!(keys(&blobs, "acme").await, ["acme/packs/01/b"]);
        assert_eq!(blobs.remove_unfinished("2100-01-01T00:00:00Z".parse().unwrap()).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn pack_members_are_verified_on_read() {
    for at in each_blob_store() {
        let (blobs, key) = (at.blobs, "acme/packs/00/a");
        let contents: [&[u8]; 3] = [b"", &b"dull ".repeat(300), &noise(999)];
        let mut builder = PackBuilder::new().unwrap();
        contents.iter().for_each(|content| builder.add(Sha256::of(content), content).unwrap());
        let pack = builder.finish().unwrap();
        let mut bytes = pack.bytes.clone();
        blobs.write(key, pack.bytes).await.unwrap();

        for (member, content) in pack.members.iter().zip(contents) {
            assert_eq!(blobs.read(&location(key, member)).await.unwrap(), content);
            assert_eq!(blobs.read_to(&location(key, member), Vec::new()).await.unwrap(), content);
        }

        let last = pack.members.last().unwrap();
        assert_unreadable(&blobs, &location("acme/packs/00/gone", last), |e| matches!(e, StoreError::BlobMissing(_)))
            .await;
        blobs.write("acme/packs/00/cut", bytes[..bytes.len() - 1].to_vec()).await.unwrap();
        assert_unreadable(&blobs, &location("acme/packs/00/cut", last), |e| matches!(e, StoreError::Corrupt(_))).await;
        blobs.write("acme/packs/00/short", b"x".to_vec()).await.unwrap();
        assert_unreadable(&blobs, &location("acme/packs/00/short", last), |e| matches!(e, StoreError::Corrupt(_)))
            .await;
        *bytes.last_mut().unwrap() ^= 1;
        blobs.write("acme/packs/00/flipped", bytes).await.unwrap();
        assert_unreadable(&blobs, &location("acme/packs/00/flipped", last), |e| matches!(e, StoreError::Corrupt(_)))
            .await;
    }
}

/// By whichever way it is read.
pub async fn assert_unreadable(blobs: &Blobs, location: &BlobLocation, is_it: impl Fn(&StoreError) -> bool) {
    let whole = blobs.read(location).await.unwrap_err();
    assert!(is_it(&whole), "{whole:?}");
    match blobs.read_to(location, io::sink()).await.unwrap_err() {
        ReadError::Store(e) => assert!(is_it(&e), "{e:?}"),
        e @ ReadError::Writer(_) => panic!("{e:?}"),
    }
    let streamed = blobs.read_stream(location).try_collect::<Vec<_>>().await.unwrap_err();
    assert!(is_it(&streamed), "{streamed:?}");
}

#[tokio::test]
async fn large_blobs_are_streamed() {
    let text = b"What compresses well is stored so. ".repeat(24 * MB / 35 + 1);
    let sizes = [0, 1, MB, MB + 1, 24 * MB];
    let blobs_of_each_kind = sizes.map(noise).into_iter().map(|bytes| (bytes, BlobEncoding::Identity));
    for at in each_blob_store() {
        let contents = blobs_of_each_kind.clone().chain([(text.clone(), BlobEncoding::Zstd)]);
        for (number, (content, encoding)) in contents.enumerate() {
            let key = format!("acme/packs/00/{number}");

            let member = at.blobs.write_stream(&key, Cursor::new(content.clone())).await.unwrap();

            assert_eq!((member.sha256, member.encoding), (Sha256::of(&content), encoding), "{number}");
            assert_eq!((member.offset, member.size_bytes), (0, content.len() as u64));
            assert_eq!(at.blobs.object_size(&key).await.unwrap(), Some(member.stored_bytes));
            let location = location(&key, &member);
            assert!(at.blobs.read_to(&location, Vec::new()).await.unwrap() == content, "{number}");
            assert!(at.blobs.read(&location).await.unwrap() == content, "{number}");
            let pieces: Vec<bytes::Bytes> = at.blobs.read_stream(&location).try_collect().await.unwrap();
            assert!(pieces.concat() == content, "{number}");
        }
        assert!(at.blobs.object_size("acme/packs/00/5").await.unwrap().unwrap() < MB as u64);
    }
}

/// Fails after some bytes.
struct FailingReader(io::Take<io::Repeat>);

impl Read for FailingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 if !buffer.is_empty() => Err(io::Error::other("the disk is gone")),
            length => Ok(length),
        }
    }
}

#[tokio::test]
async fn failing_source_leaves_no_object() {
    for at in each_blob_store() {
        // Within the first piece, and far behind it: what is uploaded by then has to go.
        for length in [10, 3 << 30] {
            let source = FailingReader(io::repeat(7).take(if length == 10 { 10 } else { 64 << 20 }));
            let noisy = Cursor::new(noise(if length == 10 { 0 } else { 12 * MB })).chain(source);

            let failed = at.blobs.write_stream("acme/packs/00/a", noisy).await.unwrap_err();

            assert!(matches!(&failed, StoreError::Source(why) if why.contains("the disk is gone")), "{failed:?}");
            assert_eq!(keys(&at.blobs, "").await, [""; 0]);
        }
        if let Some(folder) = at.folder {
            let left: Vec<_> = walk(folder.path());
            assert!(left.is_empty(), "{left:?}");
        }
    }
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn presigned_url_serves_a_single_blob() {
    let (lifetime, content) = (Duration::from_secs(60), noise(2 * MB));
    for (number, at) in each_blob_store().into_iter().enumerate() {
        let member = at.blobs.write_stream("acme/packs/00/own", Cursor::new(content.clone())).await.unwrap();
        let mut shared = member.clone();
        at.blobs.write("acme/packs/00/shared", [&content[..], b"others"].concat()).await.unwrap();
        let url = at.blobs.presign(&location("acme/packs/00/own", &member), lifetime).await.unwrap();

        assert_eq!(url.is_some(), number > 0, "a folder has no URLs");
        if let Some(url) = url {
            let (status, body) = fetch(&url).await;
            assert!(status == 200 && body == content, "{url}: {status}");
        }
        assert_eq!(at.blobs.presign(&location("acme/packs/00/shared", &shared), lifetime).await.unwrap(), None);
        shared.encoding = BlobEncoding::Zstd;
        assert_eq!(at.blobs.presign(&location("acme/packs/00/own", &shared), lifetime).await.unwrap(), None);
    }
}

#[tokio::test]
async fn missing_bucket_is_a_wrong_setting() {
    for kind in REMOTE {
        let mut settings = settings(kind);
        settings.bucket = "mailroom-nowhere".to_owned();
        let blobs = Blobs::remote(&settings).unwrap();
        let member = PackMember {
            sha256: Sha256::of(b"x"),
            offset: 0,
            stored_bytes: 1,
            size_bytes: 1,
            encoding: BlobEncoding::Identity,
        };

        for refused in [
            blobs.write("a", b"x".to_vec()).await.unwrap_err(),
            blobs.object_size("a").await.unwrap_err(),
            blobs.list("").try_collect::<Vec<_>>().await.unwrap_err(),
            blobs.read(&location("a", &member)).await.unwrap_err(),
            blobs.write_stream("a", Cursor::new(noise(6 * MB))).await.unwrap_err(),
        ] {
            let StoreError::Misconfigured(sentence) = &refused else { panic!("{refused:?}") };
            let shown = format!("{}://mailroom-nowhere does not exist; create it, or correct blobs.url", kind.scheme());
            assert_eq!(**sentence, *shown);
        }
    }
}

#[tokio::test]
async fn wrong_key_is_a_wrong_setting() {
    let mut settings = settings(RemoteKind::Azure); // moto looks at no key
    let wrong = "d3Jvbmc=".to_owned();
    settings.variables.retain(|(name, _)| name != "AZURE_STORAGE_ACCOUNT_KEY");
    settings.variables.push(("AZURE_STORAGE_ACCOUNT_KEY".to_owned(), domain::Secret::new(wrong.clone())));

    let refused = Blobs::remote(&settings).unwrap().write("a", b"x".to_vec()).await.unwrap_err();

    let StoreError::Misconfigured(sentence) = &refused else { panic!("{refused:?}") };
    assert!(sentence.contains("denies access") && sentence.contains("AZURE_STORAGE_ACCOUNT_KEY"), "{sentence}");
    assert!(!sentence.contains(&wrong) && !format!("{settings:?}").contains(&wrong), "{sentence}");
}

#[test]
fn unusable_settings_are_refused_up_front() {
    for (kind, variables, says) in [
        (RemoteKind::S3, &[("AWS_ACCESS_KEY_ID", "a")][..], "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"),
        (RemoteKind::Azure, &[], "set AZURE_STORAGE_ACCOUNT_NAME"),
        (RemoteKind::Gcs, &[("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json")], "set GOOGLE_APPLICATION_CREDENTIALS"),
        (RemoteKind::S3, &[("AWS_ENDPOINT_URL", "http://h")], "set AWS_ALLOW_HTTP=true"),
        (RemoteKind::Azure, &[("AZURE_STORAGE_ENDPOINT", "HTTP://h")], "set AZURE_ALLOW_HTTP=true"),
    ] {
        let mut settings = object_stores::settings(kind, "https://unused.test", Duration::from_secs(1));
        settings.variables =
            variables.iter().map(|(name, value)| (name.to_string(), domain::Secret::new(value.to_string()))).collect();

        let refused = Blobs::remote(&settings).unwrap_err();

        assert!(matches!(&refused, StoreError::Misconfigured(why) if why.contains(says)), "{refused:?}");
    }
}
