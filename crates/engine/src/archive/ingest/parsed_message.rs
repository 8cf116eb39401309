//! Turns a parsed message into its rows and blobs.

use content::mime;
use content::spool::{Spool, SpoolableBytes};
use content::tokens::{EmailText, EmailTokens, email_tokens};
use domain::{AttachmentId, AttachmentStatus, EmailId, MessageLimits, Sha256};
use jiff::{SignedDuration, Timestamp};
use store::sql::ingest::{NewAttachment, NewEmail};
use store::sql::mailboxes::Mailbox;

use super::{HashedMessage, MessageSource};

/// No real mail is older; ids sort from here.
const EARLIEST_RECEIVE_TIME: Timestamp = Timestamp::constant(631_152_000, 0); // 1990-01-01

pub(super) struct ParsedMessage {
    pub email: NewEmail,
    /// The raw message first, then its attachments.
    pub blobs: Vec<(Sha256, SpoolableBytes)>,
}

impl ParsedMessage {
    /// Parses a message. An error is one of the spool.
    pub fn of(
        hashed: HashedMessage,
        mailbox: &Mailbox,
        limits: &MessageLimits,
        spool: &Spool,
        now: Timestamp,
    ) -> std::io::Result<Self> {
        let HashedMessage { message, sha256, provider_message_id, content_key, email, .. } = hashed;
        let (revision, thread_id, is_backfill) = match message.source {
            MessageSource::Provider(fetched) => (fetched.revision, fetched.thread, fetched.is_backfill),
            MessageSource::File { .. } | MessageSource::Stored { .. } => (None, None, true),
        };
        let (mut parsed, tokens) = parse_and_tokenise(&message.raw, limits, spool)?;
        if tokens.is_cut {
            parsed.defects.push("search_truncated".to_owned());
        }
        let received_at = receive_time(message.received_at, &mut parsed, now);
        let id = email.unwrap_or_else(|| EmailId::derive(received_at, mailbox.id, &provider_message_id));

        let mut blobs = Vec::with_capacity(1 + parsed.attachments.len());
        let size_bytes = message.raw.len();
        blobs.push((sha256, message.raw));
        let attachments = parsed.attachments.into_iter().map(|part| attachment(id, part, &mut blobs)).collect();
        parsed.defects.sort();
        parsed.defects.dedup();
        let email = NewEmail {
            id,
            mailbox: mailbox.id,
            provider: mailbox.provider,
            provider_message_id,
            internet_message_id: parsed.message_id,
            subject: parsed.subject,
            from: parsed.from,
            recipients: parsed.recipients,
            body_text: parsed.body_text,
            body_html: parsed.body_html,
            sent_at: parsed.sent_at,
            received_at,
            size_bytes,
            raw_sha256: sha256,
            content_key,
            thread_id,
            revision,
            is_backfill,
            raw_is_stored: true,
            processing_started_at: now,
            headers: serde_json::to_string(&parsed.headers).expect("pairs of strings are always JSON"),
            defects: parsed.defects,
            attachments,
            tokens: tokens.text,
        };
        Ok(Self { email, blobs })
    }

    pub fn blob_hashes(&self) -> impl Iterator<Item = Sha256> + '_ {
        self.blobs.iter().map(|(sha256, _)| *sha256)
    }

    /// Returns the bytes of blobs that are held in memory.
    pub fn blob_bytes(&self) -> usize {
        self.blobs.iter().map(|(_, blob)| blob.in_memory().len()).sum()
    }
}

/// Parses a message and makes its tokens for the text index. An error is one of the spool.
pub(crate) fn parse_and_tokenise(
    raw: &SpoolableBytes,
    limits: &MessageLimits,
    spool: &Spool,
) -> std::io::Result<(mime::ParsedEmail, EmailTokens)> {
    let parsed = match raw {
        SpoolableBytes::InMemory(raw) => mime::parse(raw, limits),
        SpoolableBytes::Spooled(raw) => mime::parse_spooled(raw, spool, limits)?,
    };
    let tokens = email_tokens(&EmailText::of(&parsed));
    Ok((parsed, tokens))
}

/// Returns the receive time: from the source, else the topmost Received, else Date; never the time of the file or
/// import. A time before 1990 or after tomorrow is clamped, so that ids stay in the range of the partitions.
fn receive_time(source: Option<Timestamp>, email: &mut mime::ParsedEmail, now: Timestamp) -> Timestamp {
    let latest = now + SignedDuration::from_hours(24);
    let Some(time) = source.or(email.received_at).or(email.sent_at) else {
        email.defects.push("no_receive_time".to_owned());
        return EARLIEST_RECEIVE_TIME;
    };
    if time < EARLIEST_RECEIVE_TIME || time > latest {
        email.defects.push("receive_time_out_of_range".to_owned());
    }
    time.clamp(EARLIEST_RECEIVE_TIME, latest)
}

/// Moves the bytes of a part to the blobs; one that was cut for its size has none.
fn attachment(email: EmailId, part: mime::Attachment, blobs: &mut Vec<(Sha256, SpoolableBytes)>) -> NewAttachment {
    let sha256 = part.content.sha256();
    let attachment = NewAttachment {
        id: AttachmentId::derive(email, &part.path),
        part_path: part.path,
        filename: part.filename,
        content_type: part.content_type,
        sniffed_type: part.sniffed_type,
        size_bytes: part.content.len(),
        sha256,
        md5: part.content.md5(),
        is_inline: part.inline,
        content_id: part.content_id,
        message: part.message.map(|message| serde_json::json!(message)),
        status: if part.is_cut { AttachmentStatus::Skipped } else { AttachmentStatus::Stored },
    };
    if !part.is_cut {
        blobs.push((sha256, part.content));
    }
    attachment
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn receive_time_comes_from_the_best_source() {
        let now = time("2026-06-01T00:00:00Z");
        let (source, received, sent) =
            (time("2026-01-03T00:00:00Z"), time("2026-01-02T00:00:00Z"), time("2026-01-01T00:00:00Z"));
        let email = mime::ParsedEmail { received_at: Some(received), sent_at: Some(sent), ..Default::default() };

        assert_eq!(receive_time(Some(source), &mut email.clone(), now), source);
        assert_eq!(receive_time(None, &mut email.clone(), now), received);
        assert_eq!(receive_time(None, &mut mime::ParsedEmail { received_at: None, ..email }, now), sent);
    }

    #[test]
    fn impossible_receive_time_is_clamped() {
        let now = time("2026-06-01T00:00:00Z");
        let mut email = mime::ParsedEmail::default();

        assert_eq!(receive_time(None, &mut email, now), time("1990-01-01T00:00:00Z"));
        assert_eq!(receive_time(Some(time("2038-01-01T00:00:00Z")), &mut email, now), time("2026-06-02T00:00:00Z"));
        assert_eq!(email.defects, ["no_receive_time", "receive_time_out_of_range"]);
    }
}
