//! Bytes that are too many to hold: files without a name, which only this process sees and which vanish with it, however
//! it ends.

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

/// A folder for such files, and from which size on bytes go there.
#[derive(Debug, Clone)]
pub struct Spool {
    pub folder: PathBuf,
    /// A larger message is not held.
    pub message_bytes: usize,
    /// A larger part of such a message is not held.
    pub part_bytes: usize,
}

impl Spool {
    /// The folder is made when it is first needed, for its owner alone.
    pub fn new(folder: &Path) -> Self {
        // A batch of ordinary mail is about as large as the one, a pack has room for the other.
        Self { folder: folder.to_owned(), message_bytes: 8 << 20, part_bytes: 1 << 20 }
    }

    pub fn create(&self) -> io::Result<Writer> {
        let file = match tempfile::tempfile_in(&self.folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
                tempfile::tempfile_in(&self.folder)?
            }
            opened => opened?,
        };
        Ok(Writer { file, len: 0, sha256: Hasher::default(), md5: Md5::default() })
    }

    /// Collects a message of unknown size.
    pub fn draft(&self) -> Draft {
        Draft { spool: self.clone(), held: Vec::new(), file: None }
    }
}

/// Hashes what it writes.
#[derive(Debug)]
pub struct Writer {
    file: File,
    len: u64,
    sha256: Hasher,
    md5: Md5,
}

impl Writer {
    pub fn finish(self) -> Spooled {
        let Self { file, len, sha256, md5 } = self;
        Spooled { file: Arc::new(file), len, sha256: sha256.finish(), md5: md5.finalize().into() }
    }
}

impl Write for Writer {
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

/// Bytes in the spool, known by their hashes. Cheap to clone; the last one takes the file away.
#[derive(Debug, Clone)]
pub struct Spooled {
    file: Arc<File>,
    len: u64,
    pub sha256: Sha256,
    md5: [u8; 16],
}

impl Spooled {
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// As many bytes as there are from a place on, up to the size of the buffer.
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

    /// The bytes in a range, as far as there are any.
    pub fn read_range(&self, range: std::ops::Range<u64>) -> io::Result<Vec<u8>> {
        let end = range.end.min(self.len);
        let length = usize::try_from(end.saturating_sub(range.start)).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        let count = self.read_at(range.start, &mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// From the beginning.
    pub fn reader(&self) -> Reader {
        Reader { spooled: self.clone(), at: 0 }
    }
}

/// Several may read the same bytes, each from its own place.
#[derive(Debug)]
pub struct Reader {
    spooled: Spooled,
    at: u64,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.spooled.read_at(self.at, buffer)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl io::Seek for Reader {
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
pub enum Data {
    Held(Bytes),
    Spooled(Spooled),
}

impl Data {
    pub fn len(&self) -> u64 {
        match self {
            Self::Held(bytes) => bytes.len() as u64,
            Self::Spooled(spooled) => spooled.len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What of it is in memory.
    pub fn held(&self) -> &[u8] {
        match self {
            Self::Held(bytes) => bytes,
            Self::Spooled(_) => &[],
        }
    }

    pub fn sha256(&self) -> Sha256 {
        match self {
            Self::Held(bytes) => Sha256::of(bytes),
            Self::Spooled(spooled) => spooled.sha256,
        }
    }

    /// In hexadecimal digits.
    pub fn md5(&self) -> String {
        match self {
            Self::Held(bytes) => hex(&Md5::digest(bytes)),
            Self::Spooled(spooled) => hex(&spooled.md5),
        }
    }

    /// The first bytes, at least `most` of them unless there are fewer.
    pub fn start(&self, most: usize) -> io::Result<Cow<'_, [u8]>> {
        match self {
            Self::Held(bytes) => Ok(Cow::Borrowed(bytes)),
            Self::Spooled(spooled) => Ok(Cow::Owned(spooled.read_range(0..most as u64)?)),
        }
    }

    /// All of it in memory, for whoever knows that it is small enough.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::Held(bytes) => Ok(bytes.to_vec()),
            Self::Spooled(spooled) => spooled.read_range(0..spooled.len),
        }
    }
}

impl Default for Data {
    fn default() -> Self {
        Self::Held(Bytes::new())
    }
}

impl From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Held(bytes.into())
    }
}

/// Collects bytes in memory until they are too many.
#[derive(Debug)]
pub struct Draft {
    spool: Spool,
    held: Vec<u8>,
    file: Option<Writer>,
}

impl Draft {
    /// About so much will come: space for it, if it is held in memory.
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

    pub fn finish(self) -> Data {
        match self.file {
            Some(file) => Data::Spooled(file.finish()),
            None => Data::Held(self.held.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_too_large_goes_to_a_file_that_nobody_sees() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("data/spool");
        let spool = Spool { message_bytes: 10, ..Spool::new(&folder) };

        let (mut small, mut large) = (spool.draft(), spool.draft());
        small.push(b"0123456789").unwrap();
        assert!(!folder.exists());
        for _ in 0..3 {
            large.push(b"0123456789").unwrap();
        }
        let (small, large) = (small.finish(), large.finish());

        assert_eq!((small.len(), small.held()), (10, b"0123456789".as_slice()));
        assert_eq!((large.len(), large.held()), (30, b"".as_slice()));
        assert_eq!(large.read().unwrap(), b"0123456789".repeat(3));
        assert_eq!(large.sha256(), Sha256::of(&b"0123456789".repeat(3)));
        assert_eq!(large.md5(), Data::from(b"0123456789".repeat(3)).md5());
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(folder.read_dir().unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_told() {
        let spool = Spool { message_bytes: 1, ..Spool::new(Path::new("/proc/nothing/here")) };

        assert!(spool.draft().push(b"more").is_err());
    }
}
