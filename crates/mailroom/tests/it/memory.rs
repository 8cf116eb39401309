//! Large mail costs no more memory than small mail: what is too large to be held goes through the spool, piece by piece.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufWriter, Cursor, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use cfb::CompoundFile;
use domain::Sha256;
use domain::hash::Hasher;
use serde_json::Value;

use crate::crash::setting;
use crate::installation::{CommandOutput, PROGRAM, TestInstallation, on_each_database};
use crate::processes::RunningProcess;

const MAX_MEMORY_BYTES: u64 = 200 << 20;

/// The decoded size of an attachment and of a text.
const MESSAGE_BYTES: u64 = 100_000_000;

/// Messages of each kind; `make chaos` sets more.
const MESSAGES: u64 = 2;

/// Runs a command, and returns the peak of its memory as the kernel counts it.
fn measured(mailroom: &TestInstallation, variables: &[(&str, &str)], args: &[&str]) -> (CommandOutput, u64) {
    let mut running = RunningProcess::start(mailroom.command(PROGRAM, args).envs(variables.iter().copied()));
    let mut peak = 0;
    while !running.has_ended() {
        let status = fs::read_to_string(format!("/proc/{}/status", running.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        peak = peak.max(line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1024);
        std::thread::sleep(Duration::from_millis(5));
    }
    (running.finish(), peak)
}

/// A writer that hashes what passes.
struct HashingWriter<W>(W, Hasher);

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.1.update(bytes);
        self.0.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

fn file_hash(path: &Path) -> Sha256 {
    let (mut file, mut hasher, mut piece) = (File::open(path).unwrap(), Hasher::default(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut piece).unwrap() {
            0 => return hasher.finish(),
            count => hasher.update(&piece[..count]),
        }
    }
}

/// Bytes that do not shrink, and the same in lines of base64.
fn noise() -> (Vec<u8>, String) {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    })
    .take(57 * 17_000)
    .collect();
    let encoded = bytes.chunks(57).map(base64_line).collect();
    (bytes, encoded)
}

fn base64_line(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut line = String::with_capacity(78);
    for group in bytes.chunks_exact(3) {
        let bits = u32::from(group[0]) << 16 | u32::from(group[1]) << 8 | u32::from(group[2]);
        (0..4).for_each(|i| line.push(char::from(LETTERS[(bits >> (18 - 6 * i) & 63) as usize])));
    }
    line.push_str("\r\n");
    line
}

/// Writes a message with one attachment, and returns the hashes of both.
fn with_attachment(path: &Path, number: u64, noise: &(Vec<u8>, String)) -> (Sha256, Sha256) {
    let mut out = HashingWriter(BufWriter::new(File::create(path).unwrap()), Hasher::default());
    let mut attachment = Hasher::default();
    write!(
        out,
        "Subject: attachment {number}\r\nDate: Tue, 5 Mar 2024 10:00:00 +0000\r\nMIME-Version: 1.0\r\n\
         Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nfind it attached\r\n\
         --b\r\nContent-Type: application/octet-stream; name=large.bin\r\nContent-Transfer-Encoding: base64\r\n\r\n"
    )
    .unwrap();
    for block in 0..MESSAGE_BYTES.div_ceil(noise.0.len() as u64) {
        let head = format!("{number:026} and {block:026}");
        attachment.update(head.as_bytes());
        attachment.update(&noise.0);
        out.write_all(base64_line(head.as_bytes()).as_bytes()).unwrap();
        out.write_all(noise.1.as_bytes()).unwrap();
    }
    out.write_all(b"--b--\r\n").unwrap();
    out.flush().unwrap();
    (out.1.finish(), attachment.finish())
}

/// Writes a message that is one long text.
fn with_text(path: &Path, number: u64) -> Sha256 {
    let mut out = HashingWriter(BufWriter::new(File::create(path).unwrap()), Hasher::default());
    write!(out, "Subject: text {number}\r\nDate: Tue, 5 Mar 2024 10:00:00 +0000\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n").unwrap();
    let block: String =
        (0..15_000).map(|line| format!("Line {line} tells what happened né to order {}.\r\n", line * 7919)).collect();
    for part in 0..MESSAGE_BYTES.div_ceil(block.len() as u64) {
        write!(out, "Part {part} of text {number} follows.\r\n{block}").unwrap();
    }
    out.flush().unwrap();
    out.1.finish()
}

/// Writes large messages of both kinds, and returns the hash of each message and of each attachment.
fn large_mail(folder: &Path) -> (BTreeSet<Sha256>, BTreeSet<Sha256>) {
    fs::create_dir_all(folder).unwrap();
    let noise = noise();
    let (mut messages, mut attachments) = (BTreeSet::new(), BTreeSet::new());
    for number in 0..setting("MAILROOM_TEST_LARGE_MESSAGES", MESSAGES) {
        let (message, attachment) = with_attachment(&folder.join(format!("{number}-attachment.eml")), number, &noise);
        messages.extend([message, with_text(&folder.join(format!("{number}-text.eml")), number)]);
        attachments.insert(attachment);
    }
    (messages, attachments)
}

fn hashes(emails: &[Value], pointer: &str) -> BTreeSet<Sha256> {
    let found = emails.iter().filter_map(|email| email.pointer(pointer));
    found.map(|hash| hash.as_str().unwrap().parse().unwrap()).collect()
}

#[test]
fn large_messages_need_no_more_memory() {
    let mail = tempfile::tempdir().unwrap();
    let folder = mail.path().join("mail");
    let (messages, attachments) = large_mail(&folder);
    on_each_database(|mailroom| {
        let path = folder.to_str().unwrap();
        let args = ["import", path, "--tenant", "acme", "--mailbox", "me@acme.test", "--json"];

        let (done, _) = measured(mailroom, &[("MAILROOM_IMPORT__IN_FLIGHT", "8")], &args);

        let summary = done.objects().remove(0);
        assert_eq!((done.code, summary["stored"].as_u64()), (Some(0), Some(messages.len() as u64)), "{done}");
        // The kernel's own figure of the whole run.
        let peak = summary["peak_memory_bytes"].as_u64().unwrap();
        assert!(peak < MAX_MEMORY_BYTES, "importing took {} MiB", peak >> 20);
        let emails = mailroom.emails("acme");
        assert_eq!(hashes(&emails, "/sha256"), messages);
        assert_eq!(hashes(&emails, "/attachments/0/sha256"), attachments);
        // Reading a blob has nothing to do with the kind of database.
        if mailroom.is_sqlite() {
            assert_exports(mailroom, &messages);
        }
        let (done, peak) = measured(mailroom, &[], &["verify", "--deep", "--json"]);
        assert_eq!(done.objects()[0]["ok"], true, "{done}");
        assert!(peak < MAX_MEMORY_BYTES, "verifying took {} MiB", peak >> 20);
        // Spool files go with the processes that used them.
        assert_eq!(fs::read_dir(mailroom.data_dir().join("spool")).unwrap().count(), 0);
    });
}

fn assert_exports(mailroom: &TestInstallation, messages: &BTreeSet<Sha256>) {
    for format in ["eml", "mbox"] {
        let out = mailroom.path(format);
        let out = out.to_str().unwrap();
        let (done, peak) = measured(mailroom, &[], &["export", "--tenant", "acme", "--format", format, "--out", out]);
        assert_eq!(done.code, Some(0), "{done}");
        assert!(peak < MAX_MEMORY_BYTES, "exporting took {} MiB", peak >> 20);
    }
    let exported = fs::read_dir(mailroom.path("eml")).unwrap().map(|entry| file_hash(&entry.unwrap().path()));
    assert_eq!(exported.collect::<BTreeSet<_>>(), *messages);
    // Read from the mbox again, each has the same hash, and nothing is new.
    let (done, peak) = measured(
        mailroom,
        &[],
        &["import", mailroom.path("mbox").to_str().unwrap(), "--tenant", "acme", "--mailbox", "me@acme.test", "--json"],
    );
    assert_eq!(done.objects()[0]["duplicates"].as_u64(), Some(messages.len() as u64), "{done}");
    assert!(peak < MAX_MEMORY_BYTES, "importing the export took {} MiB", peak >> 20);
}

/// An Outlook file of 13 MB with three hundred attachments of 12 MB: all are the same bytes of the file.
fn bomb() -> Vec<u8> {
    const CONTENT: usize = 12 << 20;
    let mut file = CompoundFile::create(Cursor::new(Vec::new())).unwrap();
    file.create_stream("/__substg1.0_0037001F").unwrap().write_all(b"b\0o\0m\0b\0").unwrap();
    for number in 0..300 {
        let storage = format!("/__attach_version1.0_#{number:08X}");
        file.create_storage(&storage).unwrap();
        let mut stream = file.create_stream(format!("{storage}/__substg1.0_37010102")).unwrap();
        // From 4096 bytes on a stream has sectors of its own, which its entry names.
        let bytes = vec![b'x'; if number == 0 { CONTENT } else { 4096 }];
        stream.write_all(&bytes).unwrap();
    }
    let mut bytes = file.into_inner();
    let raw = bytes.get_ref().clone();
    let name: Vec<u8> = "__substg1.0_37010102".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let entries: Vec<usize> =
        raw.windows(name.len()).enumerate().filter(|(_, w)| *w == name).map(|(at, _)| at).collect();
    let whole = *entries
        .iter()
        .find(|entry| u64::from_le_bytes(raw[**entry + 120..**entry + 128].try_into().unwrap()) == CONTENT as u64)
        .unwrap();
    // Where its bytes are, and how many.
    let location = raw[whole + 116..whole + 128].to_vec();
    for entry in entries {
        bytes.seek(SeekFrom::Start(entry as u64 + 116)).unwrap();
        bytes.write_all(&location).unwrap();
    }
    bytes.into_inner()
}

#[test]
fn outlook_file_that_unpacks_to_gigabytes_is_cheap() {
    let bomb = bomb();
    assert!(bomb.len() < 14 << 20);
    on_each_database(|mailroom| {
        let path = mailroom.write("bomb.msg", &bomb);

        let summary = mailroom.import(&path);

        assert_eq!(summary["stored"], 1, "{summary}");
        let peak = summary["peak_memory_bytes"].as_u64().unwrap();
        assert!(peak < MAX_MEMORY_BYTES, "importing took {} MiB", peak >> 20);
        let email = mailroom.emails("acme").remove(0);
        let defects: Vec<&str> = email["defects"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(defects.contains(&"decoded_too_large"), "{defects:?}");
        mailroom.assert_whole();
    });
}
