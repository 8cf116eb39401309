//! Reads a file by line, with its position, seeking and look-ahead.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Large enough that reading costs little beside parsing.
const BUFFER_BYTES: usize = 256 << 10;

/// The longest look-ahead: a blank line and the longest plausible separator or header line.
const PEEK_BYTES: usize = 1024;

#[derive(Debug)]
pub struct LineReader {
    path: PathBuf,
    reader: BufReader<File>,
    position: u64,
    /// A second handle, so that looking ahead keeps the first one's buffer.
    ahead: Option<File>,
}

impl LineReader {
    pub fn new(file: File, path: &Path) -> Self {
        Self { path: path.to_owned(), reader: BufReader::with_capacity(BUFFER_BYTES, file), position: 0, ahead: None }
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    /// Appends the rest of the current line with its end, but no more than `most` bytes. 0 at the end of the file.
    pub fn read(&mut self, line: &mut Vec<u8>, most: u64) -> io::Result<usize> {
        let count = (&mut self.reader).take(most).read_until(b'\n', line)?;
        self.position += count as u64;
        Ok(count)
    }

    pub fn go_to(&mut self, position: u64) -> io::Result<()> {
        // Relative, since that keeps the buffer when the place is in it.
        let by = position as i64 - self.position as i64;
        self.reader.seek_relative(by)?;
        self.position = position;
        Ok(())
    }

    /// Returns the bytes that come next, up to a kilobyte.
    pub fn peek(&mut self) -> io::Result<Vec<u8>> {
        let buffered = self.reader.buffer();
        if buffered.len() >= PEEK_BYTES {
            return Ok(buffered[..PEEK_BYTES].to_vec());
        }
        self.peek_at(self.position, PEEK_BYTES)
    }

    /// Returns up to `count` bytes from a place in the file; fewer at its end.
    pub fn peek_at(&mut self, position: u64, count: usize) -> io::Result<Vec<u8>> {
        let ahead = match &mut self.ahead {
            Some(ahead) => ahead,
            none => none.insert(File::open(&self.path)?),
        };
        ahead.seek(SeekFrom::Start(position))?;
        let mut bytes = Vec::with_capacity(count);
        ahead.take(count as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}
