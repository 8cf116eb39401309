//! COMPRESS=DEFLATE (RFC 4978) in both directions, in fixed memory whatever the server's bytes inflate to.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::wire::Duplex;

const READ_BUFFER_BYTES: usize = 32 << 10;

/// Output space for one call of the compressor: more than it ever buffers, so that no call ends for lack of space, after
/// which it would be unknown whether it is done. And the input of one call.
const WRITE_BUFFER_BYTES: usize = 160 << 10;
const MAX_COMPRESSED_INPUT_BYTES: usize = 8 << 10;

/// A stream that compresses what is written and decompresses what is read.
pub struct DeflateStream {
    inner: Box<dyn Duplex>,
    inflate: Decompress,
    deflate: Compress,
    /// Compressed input; `unread` is the part that is not inflated yet.
    received: Vec<u8>,
    unread: std::ops::Range<usize>,
    /// Compressed output that is not sent yet.
    to_send: Vec<u8>,
    sent: usize,
    is_flushed: bool,
}

impl DeflateStream {
    /// Compresses a connection. `received` are the bytes that have already arrived after the response to COMPRESS.
    pub fn new(inner: Box<dyn Duplex>, mut received: Vec<u8>) -> Self {
        let unread = 0..received.len();
        received.resize(received.len().max(READ_BUFFER_BYTES), 0);
        Self {
            inner,
            inflate: Decompress::new(false),
            deflate: Compress::new(Compression::fast(), false),
            received,
            unread,
            to_send: Vec::new(),
            sent: 0,
            is_flushed: true,
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.to_send.len() {
            let count = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.to_send[self.sent..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += count;
        }
        self.to_send.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for DeflateStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let mut is_eof = false;
        loop {
            let (read, written) = (this.inflate.total_in(), this.inflate.total_out());
            let compressed = &this.received[this.unread.clone()];
            let status = this.inflate.decompress(compressed, into.initialize_unfilled(), FlushDecompress::None);
            let status = status.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
            // Both fit: they are lengths within the two buffers.
            this.unread.start += (this.inflate.total_in() - read) as usize;
            let count = (this.inflate.total_out() - written) as usize;
            into.advance(count);
            if count > 0 || is_eof || status == Status::StreamEnd {
                return Poll::Ready(Ok(()));
            }
            if !this.unread.is_empty() && this.inflate.total_in() == read {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            if this.unread.is_empty() {
                let mut fresh = ReadBuf::new(&mut this.received);
                ready!(Pin::new(&mut this.inner).poll_read(cx, &mut fresh))?;
                this.unread = 0..fresh.filled().len();
                is_eof = this.unread.is_empty();
            }
        }
    }
}

impl AsyncWrite for DeflateStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_send(cx))?;
        this.to_send.reserve(WRITE_BUFFER_BYTES);
        let read = this.deflate.total_in();
        let piece = &bytes[..bytes.len().min(MAX_COMPRESSED_INPUT_BYTES)];
        this.deflate.compress_vec(piece, &mut this.to_send, FlushCompress::None)?;
        this.is_flushed = false;
        Poll::Ready(Ok((this.deflate.total_in() - read) as usize))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send(cx))?;
        if !this.is_flushed {
            this.to_send.reserve(WRITE_BUFFER_BYTES);
            this.deflate.compress_vec(&[], &mut this.to_send, FlushCompress::Sync)?;
            this.is_flushed = true;
            ready!(this.poll_send(cx))?;
        }
        Pin::new(&mut this.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

impl std::fmt::Debug for DeflateStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeflateStream").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn written_bytes_are_read_at_the_other_end() {
        let (near, far) = tokio::io::duplex(1_000);
        let (mut near, mut far) =
            (DeflateStream::new(Box::new(near), Vec::new()), DeflateStream::new(Box::new(far), Vec::new()));
        let text: Vec<u8> = (0..200_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> (n % 24)) as u8).collect();

        let expected = text.clone();
        let sending = tokio::spawn(async move {
            for piece in text.chunks(70_001) {
                near.write_all(piece).await.unwrap();
                near.flush().await.unwrap();
            }
            near
        });
        let mut got = vec![0; expected.len()];
        far.read_exact(&mut got).await.unwrap();

        assert!(got == expected);
        drop(sending.await.unwrap());
        assert_eq!(far.read(&mut got).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn bytes_that_are_not_deflate_are_an_error() {
        let (near, _far) = tokio::io::duplex(1_000);
        let mut near = DeflateStream::new(Box::new(near), vec![0xff; 100]);

        let error = near.read(&mut [0; 10]).await.unwrap_err();

        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
