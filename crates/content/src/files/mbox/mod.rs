//! mbox: messages one after the other, each behind a separator line that starts with `From `.
//!
//! There are at least four dialects and nothing that distinguishes them. Our own exports carry the message's length in
//! the separator; elsewhere a `Content-Length` is believed when the file's structure agrees with it, and otherwise
//! the next separator ends the message.

mod flags;
mod lines;
mod read;
mod separator;
mod write;

pub(super) use read::MboxReader;
pub use write::{MessageWriter, write_message};

/// Returns whether a line was quoted so that it is not taken for a separator: `>From `, `>>From `, ….
fn is_quoted(line: &[u8]) -> bool {
    let marks = line.iter().take_while(|&&b| b == b'>').count();
    marks > 0 && line[marks..].starts_with(b"From ")
}

fn is_blank(line: &[u8]) -> bool {
    matches!(line, b"\n" | b"\r\n")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use domain::MessageLimits;
    use jiff::Timestamp;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use std::io::Write;

    use super::{MessageWriter, write_message};
    use crate::files::{self, ImportProblem, MailFileFormat, open};
    use crate::spool::Spool;

    const FROM: &str = "From a@x Tue Jan  2 12:00:00 2024\n";

    /// A message with its bytes in memory.
    #[derive(Debug)]
    struct ReadMessage {
        raw: Vec<u8>,
        envelope_time: Option<Timestamp>,
        origin: String,
    }

    impl From<files::FileMessage> for ReadMessage {
        fn from(message: files::FileMessage) -> Self {
            let files::FileMessage { raw, envelope_time, origin, .. } = message;
            Self { raw: raw.read().unwrap(), envelope_time, origin }
        }
    }

    /// Reads an mbox twice: with messages in memory, and with messages in the spool.
    fn read_within(mbox: &[u8], message_bytes: u64) -> Vec<Result<ReadMessage, ImportProblem>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), mbox).unwrap();
        let limits = MessageLimits { message_bytes, ..MessageLimits::default() };
        let [in_memory, spooled] = [usize::MAX, 3].map(|message_bytes| -> Vec<Result<ReadMessage, ImportProblem>> {
            let spool = Spool { message_bytes, ..Spool::new(&std::env::temp_dir()) };
            let messages = open(file.path(), MailFileFormat::Mbox, &limits, &spool).unwrap();
            messages.map(|message| message.map(ReadMessage::from)).collect()
        });
        assert_eq!(raws(&in_memory), raws(&spooled));
        in_memory
    }

    fn raws(messages: &[Result<ReadMessage, ImportProblem>]) -> Vec<Result<Vec<u8>, String>> {
        let results = messages.iter().map(Result::as_ref);
        results.map(|result| result.map(|message| message.raw.clone()).map_err(ImportProblem::to_string)).collect()
    }

    fn read(mbox: &[u8]) -> Vec<ReadMessage> {
        read_within(mbox, 1 << 20).into_iter().map(Result::unwrap).collect()
    }

    fn raw(mbox: impl AsRef<[u8]>) -> Vec<String> {
        read(mbox.as_ref()).into_iter().map(|found| String::from_utf8_lossy(&found.raw).into_owned()).collect()
    }

    #[test]
    fn messages_end_at_separators() {
        assert_eq!(raw(format!("{FROM}To: a\n\nx\n\n\n{FROM}To: b\n\ny\n\n")), ["To: a\n\nx\n\n", "To: b\n\ny\n"]);
        assert_eq!(
            raw(format!("{FROM}To: a\n\nx\n\n{FROM}To: b\n\ny").replace('\n', "\r\n")),
            ["To: a\r\n\r\nx\r\n", "To: b\r\n\r\ny"]
        );
        assert_eq!(raw(format!("{FROM}To: a\n\nx\n{FROM}To: b\n\ny\n")), ["To: a\n\nx\n", "To: b\n\ny\n"]);
        assert_eq!(raw(format!("{FROM}\n{FROM}\n")), ["", ""]);
    }

    #[test]
    fn body_lines_that_start_with_from_do_not_split() {
        for line in
            ["From here on\nNote: that\n", "From a@x Tue Jan  2 12:00:00 2024 we know\nthat\n", "x\nFrom b@x\nTo: c\n"]
        {
            let message = format!("To: a\n\nx\n\n{line}");

            assert_eq!(raw(format!("{FROM}{message}")), [message]);
        }
    }

    #[test]
    fn undated_separator_needs_blank_line_and_header() {
        assert_eq!(
            raw("From a@x\nTo: a\n\nx\n\nFrom b@x at noon\nReceived: c\n\ny\n"),
            ["To: a\n\nx\n", "Received: c\n\ny\n"]
        );
    }

    #[test]
    fn quoted_lines_lose_one_mark() {
        assert_eq!(
            raw(format!("{FROM}To: a\n\n>From x\n>>From y\n> From z\n")),
            ["To: a\n\nFrom x\n>From y\n> From z\n"]
        );
    }

    #[test]
    fn a_credible_content_length_is_exact() {
        let unquoted = format!("To: a\nContent-Length: 46\n\n>From q\n\n{FROM}x\n\n");
        let quoted = "To: a\nContent-Length: 8\n\n>From x\n";
        let wrong = "To: a\ncontent-length: 3\n\n>From x\n";

        assert_eq!(raw(format!("{FROM}{unquoted}\n{FROM}To: b\n\ny\n")), [unquoted.as_str(), "To: b\n\ny\n"]);
        assert_eq!(raw(format!("{FROM}{quoted}\n{FROM}To: b\n\ny\n"))[0], quoted.replace('>', ""));
        assert_eq!(raw(format!("{FROM}{wrong}\n{FROM}To: b\n\ny\n"))[0], wrong.replace('>', ""));
    }

    #[test]
    fn bytes_before_the_first_separator_are_reported() {
        assert_eq!(raw(format!("\r\n \n{FROM}To: a\n")), ["To: a\n"]);
        assert_eq!(raw(format!("To: a\n\nx\n\n{FROM}To: b\n")), ["To: a\n\nx\n", "To: b\n"]);

        let found = read_within(format!("junk\n\n{FROM}To: a\n").as_bytes(), 100);

        assert!(matches!(found[0], Err(ImportProblem::Skipped { bytes: 6, .. })));
        assert_eq!(found[1].as_ref().unwrap().raw, b"To: a\n");
    }

    #[test]
    fn a_message_over_the_limit_is_passed_over() {
        let small = "To: b\n\ny\n";
        for body in ["x".repeat(300_000), "x\n".repeat(150_000)] {
            let found = read_within(format!("{FROM}To: a\n\n{body}\n\n{FROM}{small}").as_bytes(), 20);

            assert!(found[0].as_ref().is_err_and(|problem| problem.to_string().contains(":0 is larger than")));
            assert_eq!(found[1].as_ref().unwrap().raw, small.as_bytes());
        }
    }

    #[test]
    fn a_message_of_exactly_the_limit_is_read() {
        let message = "To: b\r\n\r\ny\r\n";
        let mbox = format!("{FROM}{message}\r\n{FROM}{message}\r\n");

        assert_eq!(read_within(mbox.as_bytes(), message.len() as u64).iter().filter(|found| found.is_ok()).count(), 2);
        assert!(read_within(mbox.as_bytes(), message.len() as u64 - 1).iter().all(Result::is_err));
    }

    #[test]
    fn a_length_that_does_not_fit_is_ignored() {
        let mut mbox = Vec::new();
        write_message(&mut mbox, b"To: a\n\nx", None, Timestamp::UNIX_EPOCH).unwrap();
        let edited = String::from_utf8(mbox).unwrap().replace("x\n", "longer\n");

        assert_eq!(raw(format!("{edited}{FROM}To: b\n")), ["To: a\n\nlonger\n", "To: b\n"]);
    }

    #[test]
    fn message_shorter_than_its_length_is_cut() {
        let mut mbox = Vec::new();
        let message = b"To: a\n\nFrom here on\nx\n";
        for _ in 0..2 {
            write_message(&mut mbox, message, None, Timestamp::UNIX_EPOCH).unwrap();
        }
        let second = mbox.len() / 2;

        for end in second + 1..mbox.len() - 1 {
            let found = read_within(&mbox[..end], 1 << 20);

            assert_eq!(found.len(), 2, "{end}");
            assert_eq!(found[0].as_ref().unwrap().raw, message);
            let told = found[1].as_ref().unwrap_err().to_string();
            assert!(told.contains(&format!(":{second} ends in the middle of the message;")), "{end}: {told}");
        }
        // What is there of a message over the limit may be under it.
        let limit = message.len() as u64 - 1;
        assert!(matches!(read_within(&mbox[..second - 5], limit)[..], [Err(ImportProblem::Cut { .. })]));
        // Only blank lines are missing.
        assert_eq!(raw(&mbox[..mbox.len() - 1]).len(), 2);
    }

    #[test]
    fn last_message_needs_no_length() {
        assert_eq!(
            raw(format!("{FROM}To: a\n\nx\n\n{FROM}To: b\nContent-Length: 90\n\ncu"))[1],
            "To: b\nContent-Length: 90\n\ncu"
        );
    }

    #[test]
    fn implausible_lengths_cost_no_second_pass() {
        let liar = "From a@x Tue Jan  2 12:00:00 2024 mailroom-bytes=900000\nTo: a\n\n";

        let found = read_within(liar.repeat(10_000).as_bytes(), 1 << 20);

        assert_eq!(found.iter().filter(|found| found.is_ok()).count(), 9_999);
        assert!(matches!(found.last(), Some(Err(ImportProblem::Cut { .. }))));
    }

    #[test]
    fn origins_and_times_come_from_the_separators() {
        let found = read(format!("{FROM}To: a\n\n{FROM}To: b\n").as_bytes());

        assert!(found[1].origin.ends_with(&format!(":{}", FROM.len() + 7)));
        assert_eq!(found[1].envelope_time, Some("2024-01-02T12:00:00Z".parse().unwrap()));
        assert_eq!(read(b"From - Thu Jan  1 00:00:00 1970\nTo: a\n")[0].envelope_time, None);
    }

    #[test]
    fn sender_with_spaces_is_not_written() {
        for sender in [None, Some(""), Some("a b"), Some("a\nTo:")] {
            let mut mbox = Vec::new();
            write_message(&mut mbox, b"", sender, Timestamp::UNIX_EPOCH).unwrap();

            assert_eq!(mbox, b"From MAILER-DAEMON Thu Jan  1 00:00:00 1970 mailroom-bytes=0\n\n");
        }
    }

    /// Generates messages made of what could be mistaken for structure.
    fn message() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just("From x\n"),
            Just(FROM),
            Just(">From "),
            Just(">>From y\r\n"),
            Just("From "),
            Just("\n"),
            Just("\r"),
            Just("\r\n"),
            Just("To: a\n"),
            Just("Content-Length: 7\n"),
            Just("x"),
            Just("\0"),
        ];
        let known = prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat().into_bytes());
        prop_oneof![4 => known, 1 => prop::collection::vec(any::<u8>(), 0..20)]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(1),
            ..ProptestConfig::default()
        })]

        #[test]
        fn written_messages_are_read_back_exactly(messages in prop::collection::vec((message(), 0_i64..253_402_300_799), 0..5)) {
            let mut mbox = Vec::new();
            for (raw, time) in &messages {
                write_message(&mut mbox, raw, Some("a@x"), Timestamp::from_second(*time).unwrap()).unwrap();
            }

            let found = read(&mbox);

            let read: Vec<_> = found.into_iter().map(|found| (found.raw, found.envelope_time.unwrap().as_second())).collect();
            prop_assert_eq!(read, messages);
        }

        #[test]
        fn a_message_is_written_the_same_in_pieces(raw in message(), size in 1_usize..9) {
            let mut whole = Vec::new();
            write_message(&mut whole, &raw, None, Timestamp::UNIX_EPOCH).unwrap();

            let mut pieces = MessageWriter::begin(Vec::new(), raw.len() as u64, None, Timestamp::UNIX_EPOCH).unwrap();
            raw.chunks(size).for_each(|piece| pieces.write_all(piece).unwrap());

            prop_assert_eq!(pieces.finish().unwrap(), whole);
        }

        #[test]
        fn any_bytes_are_read_to_the_end(mbox in prop::collection::vec(message(), 0..5)) {
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), mbox.concat()).unwrap();
            let Ok(mut reader) = open(Path::new(file.path()), MailFileFormat::Mbox, &MessageLimits { message_bytes: 30, ..MessageLimits::default() }, &Spool::new(&std::env::temp_dir())) else { return Ok(()) };

            prop_assert!(reader.by_ref().count() <= mbox.concat().len() + 1);
            prop_assert_eq!(reader.bytes_read(), reader.total_bytes());
        }
    }
}
