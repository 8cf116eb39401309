//! A spool on disk for bytes that are too many for memory: unnamed files, which only this process sees and which vanish
//! with it, however it ends.

use std::borrow::Cow;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use domain::Sha256;
use domain::hash::{Hasher, hex};
use md5::{Digest, Md5};

/// The spool's folder, and the sizes above which bytes go there.
#[derive(Debug, Clone)]
pub struct Spool {
    pub folder: PathBuf,
    /// A larger message is spooled.
    pub message_bytes: usize,
    /// A larger part of a spooled message is spooled.
    pub part_bytes: usize,
}

impl Spool {
    /// Makes a spool. The folder is created when it is first needed, with access for its owner alone.
    pub fn new(folder: &Path) -> Self {
        // A batch of ordinary mail is about as large as the one, a pack has room for the other.
        Self { folder: folder.to_owned(), message_bytes: 8 << 20, part_bytes: 1 << 20 }
    }

    pub fn create(&self) -> io::Result<SpoolWriter> {
        let file = match tempfile::tempfile_in(&self.folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
                tempfile::tempfile_in(&self.folder)?
            }
            opened => opened?,
        };
        Ok(SpoolWriter { file, len: 0, sha256: Hasher::default(), md5: Md5::default() })
    }

    /// Collects a message of unknown size.
    pub fn buffer(&self) -> SpoolBuffer {
        SpoolBuffer { spool: self.clone(), held: Vec::new(), file: None }
    }
}

/// Writes one file and hashes it.
#[derive(Debug)]
pub struct SpoolWriter {
    file: File,
    len: u64,
    sha256: Hasher,
    md5: Md5,
}

impl SpoolWriter {
    pub fn finish(self) -> SpooledBytes {
        let Self { file, len, sha256, md5 } = self;
        SpooledBytes { file: Arc::new(file), len, sha256: sha256.finish(), md5: md5.finalize().into() }
    }
}

impl Write for SpoolWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all(bytes)?;
        self.sha256.update(bytes);
        self.md5.update(bytes);
        self.len += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes in the spool with their hashes. Cheap to clone; dropping the last clone removes the file.
#[derive(Debug, Clone)]
pub struct SpooledBytes {
    file: Arc<File>,
    len: u64,
    pub sha256: Sha256,
    md5: [u8; 16],
}

impl SpooledBytes {
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads bytes from a position on, up to the size of the buffer; fewer only at the end.
    pub fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(filled)
    }

    /// Reads the bytes in a range, as far as there are any.
    pub fn read_range(&self, range: std::ops::Range<u64>) -> io::Result<Vec<u8>> {
        let end = range.end.min(self.len);
        let length = usize::try_from(end.saturating_sub(range.start)).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        let count = self.read_at(range.start, &mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Returns a reader from the beginning.
    pub fn reader(&self) -> SpoolReader {
        SpoolReader { spooled: self.clone(), at: 0 }
    }
}

/// Reads spooled bytes. Several readers may read the same bytes, each at its own position.
#[derive(Debug)]
pub struct SpoolReader {
    spooled: SpooledBytes,
    at: u64,
}

impl Read for SpoolReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.spooled.read_at(self.at, buffer)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl io::Seek for SpoolReader {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let place = match to {
            io::SeekFrom::Start(at) => Some(at),
            io::SeekFrom::End(by) => self.spooled.len.checked_add_signed(by),
            io::SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = place.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// Bytes, in memory or in the spool. Cheap to clone.
#[derive(Debug, Clone)]
pub enum SpoolableBytes {
    InMemory(Bytes),
    Spooled(SpooledBytes),
}

impl SpoolableBytes {
    pub fn len(&self) -> u64 {
        match self {
            Self::InMemory(bytes) => bytes.len() as u64,
            Self::Spooled(spooled) => spooled.len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes that are in memory; none of spooled ones.
    pub fn in_memory(&self) -> &[u8] {
        match self {
            Self::InMemory(bytes) => bytes,
            Self::Spooled(_) => &[],
        }
    }

    pub fn sha256(&self) -> Sha256 {
        match self {
            Self::InMemory(bytes) => Sha256::of(bytes),
            Self::Spooled(spooled) => spooled.sha256,
        }
    }

    /// Returns the MD5 in hexadecimal digits.
    pub fn md5(&self) -> String {
        match self {
            Self::InMemory(bytes) => hex(&Md5::digest(bytes)),
            Self::Spooled(spooled) => hex(&spooled.md5),
        }
    }

    /// Returns the first bytes, at least `most` of them unless there are fewer.
    pub fn start(&self, most: usize) -> io::Result<Cow<'_, [u8]>> {
        match self {
            Self::InMemory(bytes) => Ok(Cow::Borrowed(bytes)),
            Self::Spooled(spooled) => Ok(Cow::Owned(spooled.read_range(0..most as u64)?)),
        }
    }

    /// Reads all of it into memory, for callers that know that it is small enough.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::InMemory(bytes) => Ok(bytes.to_vec()),
            Self::Spooled(spooled) => spooled.read_range(0..spooled.len),
        }
    }
}

impl Default for SpoolableBytes {
    fn default() -> Self {
        Self::InMemory(Bytes::new())
    }
}

impl From<Vec<u8>> for SpoolableBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::InMemory(bytes.into())
    }
}

/// Collects bytes in memory, and in the spool once they are too many.
#[derive(Debug)]
pub struct SpoolBuffer {
    spool: Spool,
    held: Vec<u8>,
    file: Option<SpoolWriter>,
}

impl SpoolBuffer {
    /// Reserves memory for about this many bytes, unless they go to the spool.
    pub fn expect(&mut self, bytes: u64) {
        if let Some(bytes) = usize::try_from(bytes).ok().filter(|bytes| *bytes <= self.spool.message_bytes) {
            self.held.reserve(bytes);
        }
    }

    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            if self.held.len() + bytes.len() <= self.spool.message_bytes {
                self.held.extend_from_slice(bytes);
                return Ok(());
            }
            let mut file = self.spool.create()?;
            file.write_all(&std::mem::take(&mut self.held))?;
            self.file = Some(file);
        }
        match &mut self.file {
            Some(file) => file.write_all(bytes),
            None => Ok(()),
        }
    }

    pub fn len(&self) -> u64 {
        self.file.as_ref().map_or(self.held.len() as u64, |file| file.len)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn finish(self) -> SpoolableBytes {
        match self.file {
            Some(file) => SpoolableBytes::Spooled(file.finish()),
            None => SpoolableBytes::InMemory(self.held.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn large_bytes_go_to_an_unnamed_file() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("data/spool");
        let spool = Spool { message_bytes: 10, ..Spool::new(&folder) };

        let (mut small, mut large) = (spool.buffer(), spool.buffer());
        small.push(b"0123456789").unwrap();
        assert!(!folder.exists());
        for _ in 0..3 {
            large.push(b"0123456789").unwrap();
        }
        let (small, large) = (small.finish(), large.finish());

        assert_eq!((small.len(), small.in_memory()), (10, b"0123456789".as_slice()));
        assert_eq!((large.len(), large.in_memory()), (30, b"".as_slice()));
        assert_eq!(large.read().unwrap(), b"0123456789".repeat(3));
        assert_eq!(large.sha256(), Sha256::of(&b"0123456789".repeat(3)));
        assert_eq!(large.md5(), SpoolableBytes::from(b"0123456789".repeat(3)).md5());
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(folder.read_dir().unwrap().count(), 0);
    }

    #[test]
    fn uncreatable_folder_is_an_error() {
        let spool = Spool { message_bytes: 1, ..Spool::new(Path::new("/proc/nothing/here")) };

        assert!(spool.buffer().push(b"more").is_err());
    }
}
