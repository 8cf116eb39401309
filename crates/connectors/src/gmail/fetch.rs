//! The bytes of messages, and with them where each of them is.

use std::io;

use domain::ConnectorError;
use domain::connector::{Answer, Facts, Sink, Wanted, names};

use super::api::{Call, Message};
use super::batch::{self, Taker};
use super::changes::received_at;
use super::labels;
use crate::names::name;

pub async fn messages(call: Call<'_>, wanted: &[Wanted], sink: &mut dyn Sink) -> Result<(), ConnectorError> {
    batch::get(call, &names(wanted), "raw", &mut Bytes { sink, is_empty: true }).await
}

struct Bytes<'a> {
    sink: &'a mut dyn Sink,
    is_empty: bool,
}

impl Taker for Bytes<'_> {
    fn room<'a>(&'a mut self, ids: &'a [&'a str]) -> Answer<'a, ()> {
        self.sink.room(ids)
    }

    fn begin(&mut self, id: &str) {
        self.is_empty = true;
        self.sink.begin(id);
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.is_empty = false;
        self.sink.write(bytes)
    }

    fn end(&mut self, message: Message) -> io::Result<()> {
        if self.is_empty {
            // An answer without the bytes is no message, whatever its status.
            self.sink.fail(&message.id, ConnectorError::Protocol("Gmail has no bytes of it".to_owned()));
            return Ok(());
        }
        let facts = Facts {
            received_at: received_at(&message).unwrap_or_default(),
            revision: None,
            places: Some(labels::places(&message.id, &message.label_ids)),
            thread: message.thread_id.and_then(|thread| name(thread).ok()),
        };
        self.sink.end(facts)
    }

    fn fail(&mut self, id: &str, error: ConnectorError) {
        self.sink.fail(id, error);
    }
}
