//! A channel of byte pieces as `std::io::Read` and `Write`.

use std::io::{self, ErrorKind, Read, Write};

use bytes::{Buf, Bytes};
use tokio::sync::mpsc::{Receiver, Sender};

/// Collects what is written into pieces of one size; the last may be shorter. To be used on a blocking thread.
pub(super) struct PieceWriter {
    pieces: Sender<Bytes>,
    piece_bytes: usize,
    buffer: Vec<u8>,
    /// Bytes of all pieces so far.
    pub written: u64,
}

impl PieceWriter {
    pub fn new(pieces: Sender<Bytes>, piece_bytes: usize) -> Self {
        Self { pieces, piece_bytes, buffer: Vec::new(), written: 0 }
    }

    /// Sends the last piece.
    pub fn finish(mut self) -> io::Result<u64> {
        if !self.buffer.is_empty() {
            self.send()?;
        }
        Ok(self.written)
    }

    fn send(&mut self) -> io::Result<()> {
        let piece = Bytes::from(std::mem::take(&mut self.buffer));
        self.written += piece.len() as u64;
        // The receiver is gone: it has failed and reports why.
        self.pieces.blocking_send(piece).map_err(|_| ErrorKind::BrokenPipe.into())
    }
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.capacity() == 0 {
            self.buffer.reserve_exact(self.piece_bytes);
        }
        let fits = bytes.len().min(self.piece_bytes - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..fits]);
        if self.buffer.len() == self.piece_bytes {
            self.send()?;
        }
        Ok(fits)
    }

    /// A piece is sent when it is full.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads the pieces of a channel, up to its end or the first error. To be used on a blocking thread.
pub(super) struct PieceReader<E> {
    pieces: Receiver<Result<Bytes, E>>,
    rest: Bytes,
    /// The error with which the sender stopped.
    pub failed: Option<E>,
}

impl<E> PieceReader<E> {
    pub fn new(pieces: Receiver<Result<Bytes, E>>) -> Self {
        Self { pieces, rest: Bytes::new(), failed: None }
    }
}

impl<E> Read for PieceReader<E> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.pieces.blocking_recv() {
                Some(Ok(piece)) => self.rest = piece,
                Some(Err(e)) => {
                    self.failed = Some(e);
                    return Err(ErrorKind::BrokenPipe.into());
                }
                None => return Ok(0),
            }
        }
        let fits = buffer.len().min(self.rest.len());
        self.rest.copy_to_slice(&mut buffer[..fits]);
        Ok(fits)
    }
}
