//! Open threads. Only recent ones are kept, so that memory does not grow with the mailbox.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;

use super::attachments::AttachmentFile;
use super::lexicon::Language;
use super::people::PersonId;
use super::rng::Rng;

/// The number of threads that can still get a reply.
const MAX_OPEN_THREADS: usize = 48;
/// The number of References of a reply; long threads drop the middle, as mail programs do.
const MAX_REFERENCES: usize = 10;
/// The number of files that may be sent again.
const MAX_RECENT_FILES: usize = 8;
/// The maximum length of quoted text.
const MAX_QUOTED_BYTES: usize = 1_400;

#[derive(Debug, Clone)]
pub struct Thread {
    /// Set by [`Threads::start`].
    pub number: u64,
    /// Without "Re:".
    pub subject: String,
    pub language: Language,
    pub participants: Vec<PersonId>,
    pub message_ids: Vec<String>,
    pub last: LastMessage,
}

/// What a reply needs of the message that it answers.
#[derive(Debug, Clone)]
pub struct LastMessage {
    pub author: PersonId,
    pub sent_at: Timestamp,
    pub text: String,
}

impl Thread {
    pub fn record_message(&mut self, message_id: String, author: PersonId, sent_at: Timestamp, text: &str) {
        self.message_ids.push(message_id);
        if self.message_ids.len() > MAX_REFERENCES {
            self.message_ids.remove(1);
        }
        self.last = LastMessage { author, sent_at, text: quotable(text).to_owned() };
    }
}

/// Cuts a text to whole lines of at most [`MAX_QUOTED_BYTES`].
pub fn quotable(text: &str) -> &str {
    if text.len() <= MAX_QUOTED_BYTES {
        return text;
    }
    let cut = text.floor_char_boundary(MAX_QUOTED_BYTES);
    match text[..cut].rfind('\n') {
        Some(line_end) => &text[..line_end],
        None => &text[..cut],
    }
}

#[derive(Debug, Default)]
pub struct Threads {
    started: u64,
    open: VecDeque<Thread>,
    files: VecDeque<Arc<AttachmentFile>>,
}

impl Threads {
    pub fn start(&mut self, mut thread: Thread) {
        thread.number = self.started;
        self.started += 1;
        if self.open.len() == MAX_OPEN_THREADS {
            self.open.pop_front();
        }
        self.open.push_back(thread);
    }

    /// Picks an open thread, recent ones more often. Returns `None` the more often, the fewer are open: otherwise the
    /// first thread of a mailbox would get every reply.
    pub fn pick(&self, rng: &mut Rng) -> Option<&Thread> {
        let age = rng.below(MAX_OPEN_THREADS).min(rng.below(MAX_OPEN_THREADS));
        self.open.get(self.open.len().checked_sub(age + 1)?)
    }

    /// Stores a thread after a reply, if it is still open.
    pub fn update(&mut self, thread: Thread) {
        if let Some(open) = self.open.iter_mut().find(|open| open.number == thread.number) {
            *open = thread;
        }
    }

    pub fn remember_file(&mut self, file: &Arc<AttachmentFile>) {
        if self.files.len() == MAX_RECENT_FILES {
            self.files.pop_front();
        }
        self.files.push_back(Arc::clone(file));
    }

    pub fn recent_files(&self) -> impl Iterator<Item = &Arc<AttachmentFile>> {
        self.files.iter()
    }
}
