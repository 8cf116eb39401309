//! Reads an mbox: finds where each message starts and ends, and restores its original bytes.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use domain::Flags;
use jiff::Timestamp;

use super::flags;
use super::lines::LineReader;
use super::separator::{Separator, SeparatorConfidence};
use super::{is_blank, is_quoted};
use crate::files::{FileMessage, ImportProblem, sniff};
use crate::spool::{Spool, SpoolBuffer, SpoolableBytes};

/// The longest piece of a line in memory while its message is skipped.
const MAX_LINE_PIECE_BYTES: u64 = 64 << 10;

/// How much of a spooled message is searched for flags.
const MAX_FLAG_HEADER_BYTES: usize = 256 << 10;

/// The length of the blank line before a separator.
const MAX_BLANK_LINE_BYTES: u64 = 2;

#[derive(Debug)]
pub struct MboxReader {
    path: PathBuf,
    lines: LineReader,
    limit: u64,
    spool: Spool,
    state: MboxReadState,
}

#[derive(Debug)]
enum MboxReadState {
    /// Before the first separator.
    Unstarted,
    /// Right after a separator.
    At(MessageStart),
    Ended,
}

#[derive(Debug, Default)]
struct MessageStart {
    /// Where the separator begins.
    offset: u64,
    time: Option<Timestamp>,
    length: Option<u64>,
    /// The file ends within the separator.
    is_cut: bool,
}

/// A message without its folder, which is known by the file's name.
#[derive(Debug)]
pub struct MboxMessage {
    raw: SpoolableBytes,
    flags: Flags,
    time: Option<Timestamp>,
    origin: String,
}

impl MboxMessage {
    pub fn in_folder(self, folder: &str) -> FileMessage {
        let Self { raw, flags, time, origin } = self;
        FileMessage { folder: folder.to_owned(), flags, raw, envelope_time: time, origin }
    }
}

/// Why a message could not be read.
enum MessageFailure {
    TooLarge,
    Cut,
    /// The spool could not be written.
    Spool(io::Error),
    Io(io::Error),
}

impl From<io::Error> for MessageFailure {
    fn from(reason: io::Error) -> Self {
        Self::Io(reason)
    }
}

/// A message read by the length in our own separator.
enum MeasuredMessage {
    Whole(SpoolableBytes),
    /// The file ends before the length, with nothing that looks like another message in between.
    Cut,
    /// Another program changed the file, so the length means nothing.
    Contradicted,
}

impl MboxReader {
    pub fn new(file: File, path: &Path, limit: u64, spool: &Spool) -> Self {
        let lines = LineReader::new(file, path);
        Self { path: path.to_owned(), lines, limit, spool: spool.clone(), state: MboxReadState::Unstarted }
    }

    pub fn position(&self) -> u64 {
        self.lines.position()
    }

    fn origin(&self, offset: u64) -> String {
        format!("{}:{offset}", self.path.display())
    }

    fn unreadable(&mut self, reason: io::Error) -> ImportProblem {
        self.state = MboxReadState::Ended;
        ImportProblem::opening(&self.path, reason)
    }

    /// Goes to the first message. Bytes before it are reported, unless they are blank or a message that has lost
    /// its separator.
    fn find_first(&mut self) -> io::Result<Option<ImportProblem>> {
        let mut line = Vec::new();
        let offset = loop {
            let offset = self.lines.position();
            line.clear();
            if self.lines.read(&mut line, MAX_LINE_PIECE_BYTES)? == 0 {
                return Ok(None);
            }
            if !sniff::skip_blank(&line).is_empty() {
                break offset;
            }
        };
        let text = sniff::skip_blank(&line);
        if let Some(separator) = Separator::parse(text) {
            self.state = MboxReadState::At(MessageStart::at(offset, &line, &separator));
            return Ok(None);
        }
        if sniff::is_header(text) {
            self.lines.go_to(offset)?;
            self.state = MboxReadState::At(MessageStart { offset, ..MessageStart::default() });
            return Ok(None);
        }
        let is_line_end = line.ends_with(b"\n");
        self.skip_message(is_line_end, false)?;
        Ok(Some(match &self.state {
            MboxReadState::At(start) => {
                ImportProblem::Skipped { origin: self.path.display().to_string(), bytes: start.offset }
            }
            _ => ImportProblem::NotMbox { path: self.path.clone() },
        }))
    }

    fn read_message(&mut self, start: &MessageStart) -> Result<SpoolableBytes, MessageFailure> {
        match start.length {
            _ if start.is_cut => Err(MessageFailure::Cut),
            Some(length) if length > self.limit => {
                let raw = self.read_to_separator()?;
                let is_last = matches!(self.state, MboxReadState::Ended);
                if is_last { Err(MessageFailure::Cut) } else { Ok(raw) }
            }
            Some(length) => {
                let message_start = self.lines.position();
                match self.read_measured(length)? {
                    MeasuredMessage::Whole(raw) => Ok(raw),
                    MeasuredMessage::Cut => Err(MessageFailure::Cut),
                    MeasuredMessage::Contradicted => {
                        self.lines.go_to(message_start)?;
                        self.read_to_separator()
                    }
                }
            }
            None => self.read_to_separator(),
        }
    }

    /// Takes the message that our own separator measures.
    fn read_measured(&mut self, length: u64) -> Result<MeasuredMessage, MessageFailure> {
        let mut draft = self.spool.buffer();
        let mut line = Vec::new();
        let mut is_line_start = true;
        while draft.len() < length {
            line.clear();
            // The mark of a quoted line and a line end that was added are beyond the length.
            let most = MAX_LINE_PIECE_BYTES.min(length - draft.len() + 2);
            if self.lines.read(&mut line, most)? == 0 {
                return Ok(MeasuredMessage::Cut);
            }
            if is_line_start && line.starts_with(b"From ") {
                return Ok(MeasuredMessage::Contradicted); // we would have quoted it, so the message ended before its length
            }
            let mut piece = &line[usize::from(is_line_start && is_quoted(&line))..];
            if draft.len() + piece.len() as u64 == length + 1 {
                piece = piece.strip_suffix(b"\n").unwrap_or(piece);
            }
            draft.push(piece).map_err(MessageFailure::Spool)?;
            is_line_start = line.ends_with(b"\n");
        }
        let is_end = draft.len() == length && self.pass_end()?;
        Ok(if is_end { MeasuredMessage::Whole(draft.finish()) } else { MeasuredMessage::Contradicted })
    }

    /// Passes blank lines and the separator after a measured message; false when something else is there.
    fn pass_end(&mut self) -> io::Result<bool> {
        let mut line = Vec::new();
        let mut blank_lines = 0;
        loop {
            let offset = self.lines.position();
            line.clear();
            if self.lines.read(&mut line, MAX_LINE_PIECE_BYTES)? == 0 {
                self.state = MboxReadState::Ended;
                return Ok(true);
            }
            if blank_lines > 0 {
                if let Some(separator) = Separator::parse(&line) {
                    self.state = MboxReadState::At(MessageStart::at(offset, &line, &separator));
                    return Ok(true);
                }
                // The file ends before the line is more than `Fro`.
                if b"From ".starts_with(&line) {
                    self.state = MboxReadState::At(MessageStart { offset, is_cut: true, ..MessageStart::default() });
                    return Ok(true);
                }
            }
            if !is_blank(&line) {
                return Ok(false);
            }
            blank_lines += 1;
        }
    }

    /// Takes lines up to the next separator, or as many bytes as a credible `Content-Length` says.
    fn read_to_separator(&mut self) -> Result<SpoolableBytes, MessageFailure> {
        let mut draft = self.spool.buffer();
        // The last blank line, which the format puts before a separator.
        let mut blank = Vec::new();
        let mut line = Vec::new();
        let (mut is_header, mut is_line_start, mut content_length) = (true, true, None);
        loop {
            let offset = self.lines.position();
            line.clear();
            if self.lines.read(&mut line, MAX_LINE_PIECE_BYTES)? == 0 {
                self.state = MboxReadState::Ended;
                break;
            }
            if is_line_start && let Some(separator) = self.separator(&line, !blank.is_empty())? {
                self.state = MboxReadState::At(MessageStart::at(offset, &line, &separator));
                break;
            }
            let is_blank = is_line_start && is_blank(&line);
            if draft.len() + (blank.len() + line.len()) as u64 > self.limit.saturating_add(MAX_BLANK_LINE_BYTES) {
                self.skip_message(line.ends_with(b"\n"), is_blank)?;
                return Err(MessageFailure::TooLarge);
            }
            draft.push(&blank).map_err(MessageFailure::Spool)?;
            blank.clear();
            if is_blank {
                blank.extend_from_slice(&line);
            } else {
                let is_quoted = is_line_start && !is_header && is_quoted(&line);
                draft.push(&line[usize::from(is_quoted)..]).map_err(MessageFailure::Spool)?;
            }
            if is_header && is_line_start {
                content_length = content_length.or_else(|| read_content_length(&line));
                if is_blank
                    && let Some(length) = content_length
                    && self.is_credible(length)?
                {
                    draft.push(&blank).map_err(MessageFailure::Spool)?;
                    return self.read_content(draft, length);
                }
                is_header = !is_blank;
            }
            is_line_start = line.ends_with(b"\n");
        }
        if draft.len() > self.limit { Err(MessageFailure::TooLarge) } else { Ok(draft.finish()) }
    }

    /// Returns whether a separator or the end of the file comes right after a body of this length.
    fn is_credible(&mut self, length: u64) -> io::Result<bool> {
        let Some(end) = self.lines.position().checked_add(length) else { return Ok(false) };
        // One byte before it tells whether a line ends there.
        let around = self.lines.peek_at(end - 1, 512)?;
        let Some((&before, after)) = around.split_first() else { return Ok(false) };
        let is_line_start = before == b'\n' || after.starts_with(b"\n") || after.starts_with(b"\r\n");
        let next = sniff::skip_blank(after);
        Ok(after.is_empty() || is_line_start && (next.is_empty() || is_strong(first_line(next))))
    }

    /// Takes the body that `Content-Length` measures. Where it holds a line that would have been quoted, the dialect
    /// quotes nothing (mboxcl2), and what looks quoted is meant so.
    fn read_content(&mut self, mut draft: SpoolBuffer, length: u64) -> Result<SpoolableBytes, MessageFailure> {
        let start = self.lines.position();
        let is_too_large = draft.len() + length > self.limit;
        if !is_too_large {
            let mut has_from = false;
            self.each_line(length, |line, is_line_start| {
                has_from |= is_line_start && line.starts_with(b"From ");
                Ok(())
            })?;
            self.lines.go_to(start)?;
            self.each_line(length, |line, is_line_start| {
                let is_quoted = !has_from && is_line_start && is_quoted(line);
                draft.push(&line[usize::from(is_quoted)..]).map_err(MessageFailure::Spool)
            })?;
        }
        self.lines.go_to(start + length)?;
        self.skip_message(true, true)?;
        if is_too_large { Err(MessageFailure::TooLarge) } else { Ok(draft.finish()) }
    }

    /// Passes the next bytes to `take` by line, long lines in pieces, each with whether it starts a line.
    fn each_line(
        &mut self,
        length: u64,
        mut take: impl FnMut(&[u8], bool) -> Result<(), MessageFailure>,
    ) -> Result<(), MessageFailure> {
        let end = self.lines.position() + length;
        let mut line = Vec::new();
        let mut is_line_start = true;
        while self.lines.position() < end {
            line.clear();
            if self.lines.read(&mut line, MAX_LINE_PIECE_BYTES.min(end - self.lines.position()))? == 0 {
                break;
            }
            take(&line, is_line_start)?;
            is_line_start = line.ends_with(b"\n");
        }
        Ok(())
    }

    /// Passes over lines up to and including the next separator, in little memory.
    fn skip_message(&mut self, mut is_line_start: bool, mut follows_blank: bool) -> io::Result<()> {
        let mut piece = Vec::new();
        loop {
            let offset = self.lines.position();
            piece.clear();
            if self.lines.read(&mut piece, MAX_LINE_PIECE_BYTES)? == 0 {
                self.state = MboxReadState::Ended;
                return Ok(());
            }
            if is_line_start {
                if let Some(separator) = self.separator(&piece, follows_blank)? {
                    self.state = MboxReadState::At(MessageStart::at(offset, &piece, &separator));
                    return Ok(());
                }
                follows_blank = is_blank(&piece);
            }
            is_line_start = piece.ends_with(b"\n");
        }
    }

    /// Returns the line as a separator, if it is one. Its form, a blank line before it and a header after it are
    /// evidence; any one alone may be chance, two of the three are enough.
    fn separator(&mut self, line: &[u8], follows_blank: bool) -> io::Result<Option<Separator>> {
        let Some(separator) = Separator::parse(line) else { return Ok(None) };
        match separator.likeness {
            SeparatorConfidence::Strong if follows_blank => return Ok(Some(separator)),
            SeparatorConfidence::Weak if !follows_blank => return Ok(None),
            SeparatorConfidence::None => return Ok(None),
            SeparatorConfidence::Strong | SeparatorConfidence::Weak => {}
        }
        let next = self.lines.peek()?;
        let next = first_line(&next);
        let is_followed = match separator.likeness {
            SeparatorConfidence::Strong => sniff::is_header(next),
            _ => sniff::is_known_header(next),
        };
        Ok(is_followed.then_some(separator))
    }
}

impl Iterator for MboxReader {
    type Item = Result<MboxMessage, ImportProblem>;

    fn next(&mut self) -> Option<Self::Item> {
        if matches!(self.state, MboxReadState::Unstarted) {
            self.state = MboxReadState::Ended;
            match self.find_first() {
                Ok(None) => {}
                Ok(Some(problem)) => return Some(Err(problem)),
                Err(reason) => return Some(Err(self.unreadable(reason))),
            }
        }
        let MboxReadState::At(start) = std::mem::replace(&mut self.state, MboxReadState::Ended) else { return None };
        let origin = self.origin(start.offset);
        let message = self.read_message(&start).and_then(|raw| {
            let header = raw.start(MAX_FLAG_HEADER_BYTES).map_err(MessageFailure::Spool)?;
            Ok(MboxMessage { flags: flags::of_header(&header), raw, time: start.time, origin: origin.clone() })
        });
        Some(message.map_err(|stop| match stop {
            MessageFailure::TooLarge => ImportProblem::too_large(origin, self.limit),
            MessageFailure::Cut => ImportProblem::Cut { origin },
            MessageFailure::Spool(reason) => {
                self.state = MboxReadState::Ended;
                ImportProblem::NotSpooled { origin, reason }
            }
            MessageFailure::Io(reason) => self.unreadable(reason),
        }))
    }
}

impl MessageStart {
    fn at(offset: u64, line: &[u8], separator: &Separator) -> Self {
        // Programs that know no time write the epoch.
        let time = separator.time.filter(|&time| time != Timestamp::UNIX_EPOCH || separator.length.is_some());
        Self { offset, time, length: separator.length, is_cut: !line.ends_with(b"\n") }
    }
}

fn is_strong(line: &[u8]) -> bool {
    Separator::parse(line).is_some_and(|separator| separator.likeness == SeparatorConfidence::Strong)
}

fn read_content_length(line: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b"content-length:";
    let value = line.split_at_checked(NAME.len()).filter(|(name, _)| name.eq_ignore_ascii_case(NAME))?.1;
    str::from_utf8(value).ok()?.trim().parse().ok()
}

fn first_line(text: &[u8]) -> &[u8] {
    sniff::lines(text).next().unwrap_or_default()
}
