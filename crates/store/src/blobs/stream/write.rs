//! Writes a large blob into an object of its own.

use std::io::{self, Read, Write};

use bytes::Bytes;
use domain::hash::Hasher;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use tokio::sync::mpsc::{Receiver, channel};

use super::pipe::PieceWriter;
use crate::StoreError;
use crate::blobs::pack::COMPRESSION_LEVEL;
use crate::blobs::{BlobEncoding, Blobs, PackMember};
use crate::failpoint::{self, Effect};

/// Bytes of the beginning that decide whether compressing pays.
const COMPRESSION_SAMPLE_BYTES: u64 = 1 << 20;

/// Bytes that are read from the source at a time.
const COPY_BUFFER_BYTES: usize = 128 << 10;

impl Blobs {
    /// Writes all bytes of the source as the one member of a pack, compressed where that pays, and returns its description.
    /// Durable when it returns; on an error nothing is left under the key. The source is read on a blocking thread.
    pub async fn write_stream(&self, key: &str, source: impl Read + Send + 'static) -> Result<PackMember, StoreError> {
        if self.object_size(key).await?.is_some() {
            return Err(self.already_exists(key)); // finishing an upload in parts would replace it without asking
        }
        let (sender, pieces) = channel(1);
        let writer = PieceWriter::new(sender, self.part_bytes());
        let reading = tokio::task::spawn_blocking(move || pack_source(source, writer));
        self.upload(key, pieces, reading).await
    }

    async fn upload(
        &self,
        key: &str,
        mut pieces: Receiver<Bytes>,
        reading: tokio::task::JoinHandle<io::Result<PackMember>>,
    ) -> Result<PackMember, StoreError> {
        let first = pieces.recv().await.unwrap_or_default();
        let Some(second) = pieces.recv().await else {
            let member = read_to_its_end(reading).await?;
            self.write(key, first).await?;
            return Ok(member);
        };
        let mut upload = self.with_timeout("write", key, self.objects.put_multipart(&key.into())).await?;
        let finished = async {
            for piece in [first, second] {
                self.with_timeout("write", key, upload.put_part(PutPayload::from(piece))).await?;
            }
            while let Some(piece) = pieces.recv().await {
                self.with_timeout("write", key, upload.put_part(PutPayload::from(piece))).await?;
            }
            // A source that failed ends the pieces, too.
            let member = read_to_its_end(reading).await?;
            let completed = self.complete(key, &mut *upload, member.stored_bytes);
            failpoint::around(Effect::WriteObject, completed).await?;
            Ok(member)
        };
        let finished = finished.await;
        if finished.is_err() {
            // The failure matters more than a failed cleanup.
            let _ = self.with_timeout("write", key, upload.abort()).await;
        }
        finished
    }

    /// Completes an upload. When only the answer was lost, a retry reports that there is no such upload: then the object's
    /// size decides.
    async fn complete(&self, key: &str, upload: &mut dyn MultipartUpload, size: u64) -> Result<(), StoreError> {
        self.fail_if_injected()?;
        if let Err(e) = self.with_timeout("write", key, upload.complete()).await
            && self.object_size(key).await.ok().flatten() != Some(size)
        {
            return Err(e);
        }
        Ok(())
    }
}

async fn read_to_its_end(reading: tokio::task::JoinHandle<io::Result<PackMember>>) -> Result<PackMember, StoreError> {
    let read = reading.await.map_err(|e| StoreError::other(e.to_string()))?;
    read.map_err(|e| StoreError::Source(e.to_string().into()))
}

/// Reads the source to its end, on a blocking thread.
fn pack_source(source: impl Read, mut pieces: PieceWriter) -> io::Result<PackMember> {
    let mut source = HashingReader { source, hasher: Hasher::default(), size_bytes: 0 };
    let mut first = Vec::new();
    source.by_ref().take(COMPRESSION_SAMPLE_BYTES).read_to_end(&mut first)?;
    let encoding = if zstd::bulk::compress(&first, COMPRESSION_LEVEL)?.len() < first.len() {
        BlobEncoding::Zstd
    } else {
        BlobEncoding::Identity
    };
    match encoding {
        BlobEncoding::Identity => {
            pieces.write_all(&first)?;
            drop(first);
            copy(&mut source, &mut pieces)?;
        }
        BlobEncoding::Zstd => {
            let mut compressor = zstd::stream::write::Encoder::new(&mut pieces, COMPRESSION_LEVEL)?;
            compressor.write_all(&first)?;
            drop(first);
            copy(&mut source, &mut compressor)?;
            compressor.finish()?;
        }
    }
    let stored_bytes = pieces.finish()?;
    let (sha256, size_bytes) = (source.hasher.finish(), source.size_bytes);
    Ok(PackMember { sha256, offset: 0, stored_bytes, size_bytes, encoding })
}

/// Copies like `io::copy`, in larger steps.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; COPY_BUFFER_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => to.write_all(&buffer[..length])?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// A reader that hashes and counts what passes through it.
struct HashingReader<R> {
    source: R,
    hasher: Hasher,
    size_bytes: u64,
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.source.read(buffer)?;
        self.hasher.update(&buffer[..length]);
        self.size_bytes += length as u64;
        Ok(length)
    }
}
