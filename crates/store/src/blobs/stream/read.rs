//! Reads a blob of any size out of its object, decodes and verifies it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use bytes::Bytes;
use domain::hash::Hasher;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::{GetOptions, GetRange, GetResultPayload, ObjectStore};
use tokio::sync::mpsc::{Sender, channel};

use super::pipe::{PieceReader, PieceWriter};
use crate::StoreError;
use crate::blobs::{BlobEncoding, BlobLocation, Blobs};

/// Decoded bytes that are handed on at a time.
const READ_BUFFER_BYTES: usize = 128 << 10;

/// Which side failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The destination of the bytes.
    #[error(transparent)]
    Writer(io::Error),
}

/// The encoded bytes of a blob, from a file or from requests.
enum EncodedBytes {
    File(io::Take<File>),
    Pieces(PieceReader<StoreError>),
}

impl Blobs {
    /// Writes the decoded bytes and returns the writer once their hash is verified. On an error the writer may have got a
    /// part of them, or wrong ones: write to a destination that no reader sees yet. The writer is used on a blocking thread.
    pub async fn read_to<W: Write + Send + 'static>(
        &self,
        place: &BlobLocation,
        mut writer: W,
    ) -> Result<W, ReadError> {
        let mut stored = self.stored(place).await?;
        let place = place.clone();
        let written = tokio::task::spawn_blocking(move || {
            decode(&mut stored, &place, &mut writer).map_err(|e| stored.failed().map_or(e, ReadError::Store))?;
            Ok(writer)
        });
        written.await.map_err(|e| StoreError::other(e.to_string()))?
    }

    /// Returns the decoded bytes in pieces. They are verified only when the stream ends without an error.
    pub fn read_stream(&self, place: &BlobLocation) -> BoxStream<'static, Result<Bytes, StoreError>> {
        let (sender, pieces) = channel(1);
        let (blobs, place) = (self.clone(), place.clone());
        let reading = tokio::spawn(async move {
            let writer = blobs.read_to(&place, PieceWriter::new(sender, READ_BUFFER_BYTES)).await?;
            // By now all is verified; the last piece may have to wait for its receiver.
            let sent = tokio::task::spawn_blocking(move || writer.finish().map(drop).map_err(ReadError::Writer));
            sent.await.map_err(|e| StoreError::other(e.to_string()))?
        });
        let rest = futures_util::stream::once(async move {
            match reading.await.map_err(|e| StoreError::other(e.to_string()))? {
                Ok(()) => Ok(Bytes::new()),
                Err(ReadError::Store(e)) => Err(e),
                Err(ReadError::Writer(e)) => Err(StoreError::other(e.to_string())),
            }
        });
        let pieces = futures_util::stream::unfold(pieces, |mut pieces| async {
            pieces.recv().await.map(|piece| (Ok(piece), pieces))
        });
        pieces.chain(rest).filter(|piece| std::future::ready(!matches!(piece, Ok(empty) if empty.is_empty()))).boxed()
    }

    async fn stored(&self, place: &BlobLocation) -> Result<EncodedBytes, StoreError> {
        if place.stored_bytes == 0 {
            return Ok(EncodedBytes::Pieces(PieceReader::new(channel(1).1))); // an empty range is an error to object stores
        }
        let end = place.offset + place.stored_bytes;
        let options = GetOptions { range: Some(GetRange::Bounded(place.offset..end)), ..Default::default() };
        let path = place.object_key.as_str().into();
        let found = match self.with_timeout("read", &place.object_key, self.objects.get_opts(&path, options)).await {
            Ok(found) => found,
            Err(e) => return Err(self.why_unreadable(&place.object_key, end, e).await),
        };
        Ok(match found.payload {
            GetResultPayload::File(mut file, _) => {
                // Small enough not to matter on an async thread: nothing is read yet.
                file.seek(SeekFrom::Start(place.offset))
                    .map_err(|e| StoreError::BlobsUnavailable(e.to_string().into()))?;
                EncodedBytes::File(file.take(place.stored_bytes))
            }
            GetResultPayload::Stream(stream) => {
                let (sender, pieces) = channel(1);
                tokio::spawn(forward(self.clone(), place.object_key.clone(), stream, sender));
                EncodedBytes::Pieces(PieceReader::new(pieces))
            }
        })
    }
}

/// Forwards a stream to a channel; each piece must arrive in time.
async fn forward(
    blobs: Blobs,
    key: String,
    mut stream: BoxStream<'static, object_store::Result<Bytes>>,
    to: Sender<Result<Bytes, StoreError>>,
) {
    loop {
        let next = blobs.with_timeout("read", &key, async { stream.next().await.transpose() }).await;
        let Some(piece) = next.transpose() else { return };
        let failed = piece.is_err();
        if to.send(piece).await.is_err() || failed {
            return;
        }
    }
}

fn decode(stored: &mut EncodedBytes, place: &BlobLocation, writer: &mut impl Write) -> Result<(), ReadError> {
    let mut decoder;
    let decoded: &mut dyn Read = match place.encoding {
        BlobEncoding::Identity => stored,
        BlobEncoding::Zstd => {
            decoder = zstd::stream::read::Decoder::new(stored).map_err(|e| unreadable(place, &e))?;
            &mut decoder
        }
    };
    // One byte more than expected, to notice that there are more.
    let mut decoded = decoded.take(place.size_bytes + 1);
    let (mut hasher, mut size, mut buffer) = (Hasher::default(), 0, vec![0; READ_BUFFER_BYTES]);
    loop {
        let length = match decoded.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(unreadable(place, &e)),
        };
        hasher.update(&buffer[..length]);
        size += length as u64;
        writer.write_all(&buffer[..length]).map_err(ReadError::Writer)?;
    }
    if size != place.size_bytes || hasher.finish() != place.sha256 {
        return Err(StoreError::corrupt(format!("blob {} does not match its hash", place.sha256)).into());
    }
    Ok(())
}

fn unreadable(place: &BlobLocation, e: &io::Error) -> ReadError {
    StoreError::corrupt(format!("blob {} cannot be read: {e}", place.sha256)).into()
}

impl EncodedBytes {
    /// Returns the error of the request, which a decoder only knows as a broken pipe.
    fn failed(self) -> Option<StoreError> {
        match self {
            Self::File(_) => None,
            Self::Pieces(reader) => reader.failed,
        }
    }
}

impl Read for EncodedBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(buffer),
            Self::Pieces(reader) => reader.read(buffer),
        }
    }
}
