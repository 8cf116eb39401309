//! A large blob into an object of its own.

use std::io::{self, Read, Write};

use bytes::Bytes;
use domain::hash::Hasher;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use tokio::sync::mpsc::{Receiver, channel};

use super::pipe::PieceWriter;
use crate::StoreError;
use crate::blobs::pack::LEVEL;
use crate::blobs::{Blobs, Encoding, Member};
use crate::failpoint::{self, Effect};

/// So much of the beginning decides whether compressing pays.
const TRIED: u64 = 1 << 20;

/// Taken from the source at a time.
const STEP: usize = 128 << 10;

impl Blobs {
    /// Writes all that the source gives as the one member of a pack, compressed where that pays, and says what it was.
    /// Durable when it returns; on an error nothing is left under the key. The source is read on a blocking thread.
    pub async fn write_stream(&self, key: &str, source: impl Read + Send + 'static) -> Result<Member, StoreError> {
        if self.object_size(key).await?.is_some() {
            return Err(self.exists(key)); // finishing an upload in parts would replace it without asking
        }
        let (sender, pieces) = channel(1);
        let writer = PieceWriter::new(sender, self.part_bytes());
        let reading = tokio::task::spawn_blocking(move || take_in(source, writer));
        self.upload(key, pieces, reading).await
    }

    async fn upload(
        &self,
        key: &str,
        mut pieces: Receiver<Bytes>,
        reading: tokio::task::JoinHandle<io::Result<Member>>,
    ) -> Result<Member, StoreError> {
        let first = pieces.recv().await.unwrap_or_default();
        let Some(second) = pieces.recv().await else {
            let member = read_to_its_end(reading).await?;
            self.write(key, first).await?;
            return Ok(member);
        };
        let mut upload = self.within(key, self.objects.put_multipart(&key.into())).await?;
        let finished = async {
            for piece in [first, second] {
                self.within(key, upload.put_part(PutPayload::from(piece))).await?;
            }
            while let Some(piece) = pieces.recv().await {
                self.within(key, upload.put_part(PutPayload::from(piece))).await?;
            }
            // A source that failed ends the pieces, too.
            let member = read_to_its_end(reading).await?;
            self.complete(key, &mut *upload, member.stored_bytes).await?;
            Ok(member)
        };
        let finished = finished.await;
        if finished.is_err() {
            // What failed matters more than what could not be tidied up after it.
            let _ = self.within(key, upload.abort()).await;
        }
        finished
    }

    /// When only the answer was lost, asking again says that there is no such upload: then the object tells.
    async fn complete(&self, key: &str, upload: &mut dyn MultipartUpload, size: u64) -> Result<(), StoreError> {
        failpoint::before(Effect::WriteObject);
        self.refuse_for_a_test()?;
        if let Err(e) = self.within(key, upload.complete()).await
            && self.object_size(key).await.ok().flatten() != Some(size)
        {
            return Err(e);
        }
        failpoint::after(Effect::WriteObject);
        Ok(())
    }
}

async fn read_to_its_end(reading: tokio::task::JoinHandle<io::Result<Member>>) -> Result<Member, StoreError> {
    let read = reading.await.map_err(|e| StoreError::other(e.to_string()))?;
    read.map_err(|e| StoreError::Source(e.to_string().into()))
}

/// Reads the source to its end, on a blocking thread.
fn take_in(source: impl Read, mut pieces: PieceWriter) -> io::Result<Member> {
    let mut source = Measured { source, hasher: Hasher::default(), size_bytes: 0 };
    let mut first = Vec::new();
    source.by_ref().take(TRIED).read_to_end(&mut first)?;
    let encoding =
        if zstd::bulk::compress(&first, LEVEL)?.len() < first.len() { Encoding::Zstd } else { Encoding::Identity };
    match encoding {
        Encoding::Identity => {
            pieces.write_all(&first)?;
            drop(first);
            copy(&mut source, &mut pieces)?;
        }
        Encoding::Zstd => {
            let mut compressor = zstd::stream::write::Encoder::new(&mut pieces, LEVEL)?;
            compressor.write_all(&first)?;
            drop(first);
            copy(&mut source, &mut compressor)?;
            compressor.finish()?;
        }
    }
    let stored_bytes = pieces.finish()?;
    let (sha256, size_bytes) = (source.hasher.finish(), source.size_bytes);
    Ok(Member { sha256, offset: 0, stored_bytes, size_bytes, encoding })
}

/// Like `io::copy`, in larger steps.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; STEP];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => to.write_all(&buffer[..length])?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// A source that knows what it gave.
struct Measured<R> {
    source: R,
    hasher: Hasher,
    size_bytes: u64,
}

impl<R: Read> Read for Measured<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.source.read(buffer)?;
        self.hasher.update(&buffer[..length]);
        self.size_bytes += length as u64;
        Ok(length)
    }
}
