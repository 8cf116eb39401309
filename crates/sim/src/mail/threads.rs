//! Conversations still going on. Only the recent ones are remembered, so memory does not grow with the mailbox.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;

use super::attachments::File;
use super::people::PersonId;
use super::rng::Rng;
use super::words::Language;

/// Conversations that can still get a reply.
const OPEN_THREADS: usize = 48;
/// Message ids that a reply repeats; long threads drop the middle, as clients do.
const REFERENCES: usize = 10;
/// Files that people still have at hand to send again.
const RECENT_FILES: usize = 8;
/// How much of the last message a reply quotes.
const QUOTED_BYTES: usize = 1_400;

#[derive(Debug, Clone)]
pub struct Thread {
    /// Given by [`Threads::start`].
    pub number: u64,
    /// Without "Re:".
    pub subject: String,
    pub language: Language,
    pub participants: Vec<PersonId>,
    pub message_ids: Vec<String>,
    pub last: Turn,
}

/// What the next reply has to know about the message it answers.
#[derive(Debug, Clone)]
pub struct Turn {
    pub author: PersonId,
    pub sent_at: Timestamp,
    pub text: String,
}

impl Thread {
    pub fn take_turn(&mut self, message_id: String, author: PersonId, sent_at: Timestamp, text: &str) {
        self.message_ids.push(message_id);
        if self.message_ids.len() > REFERENCES {
            self.message_ids.remove(1);
        }
        self.last = Turn { author, sent_at, text: quotable(text).to_owned() };
    }
}

/// The first lines of a text, whole.
pub fn quotable(text: &str) -> &str {
    if text.len() <= QUOTED_BYTES {
        return text;
    }
    let cut = text.floor_char_boundary(QUOTED_BYTES);
    match text[..cut].rfind('\n') {
        Some(line_end) => &text[..line_end],
        None => &text[..cut],
    }
}

#[derive(Debug, Default)]
pub struct Threads {
    started: u64,
    open: VecDeque<Thread>,
    files: VecDeque<Arc<File>>,
}

impl Threads {
    pub fn start(&mut self, mut thread: Thread) {
        thread.number = self.started;
        self.started += 1;
        if self.open.len() == OPEN_THREADS {
            self.open.pop_front();
        }
        self.open.push_back(thread);
    }

    /// One of the open conversations, lately begun ones more often. `None` the more often, the fewer are open: else
    /// the first conversation of a mailbox would get every reply.
    pub fn pick(&self, rng: &mut Rng) -> Option<&Thread> {
        let age = rng.below(OPEN_THREADS).min(rng.below(OPEN_THREADS));
        self.open.get(self.open.len().checked_sub(age + 1)?)
    }

    /// Keeps what a reply added.
    pub fn update(&mut self, thread: Thread) {
        if let Some(open) = self.open.iter_mut().find(|open| open.number == thread.number) {
            *open = thread;
        }
    }

    pub fn remember_file(&mut self, file: &Arc<File>) {
        if self.files.len() == RECENT_FILES {
            self.files.pop_front();
        }
        self.files.push_back(Arc::clone(file));
    }

    pub fn recent_files(&self) -> impl Iterator<Item = &Arc<File>> {
        self.files.iter()
    }
}
