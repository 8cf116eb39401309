//! Writes an email as MIME. Messages inside Outlook's containers have no bytes of their own that others could read;
//! written this way they are attachments like any forwarded message.

use std::io::{self, Read, Write};

use domain::RecipientKind;

use super::ParsedEmail;
use crate::spool::SpoolableBytes;

const BOUNDARY: &str = "=_mailroom_part";
/// How many bytes a line of Base64 encodes, and its length.
const BASE64_LINE_BYTES: (usize, u64) = (57, 78);

/// Returns an upper bound on the bytes that [`compose`] writes.
pub fn size(email: &ParsedEmail) -> u64 {
    let body = email.body_html.as_ref().or(email.body_text.as_ref()).map_or(0, String::len) as u64;
    let mut attachments = 0;
    for attachment in &email.attachments {
        // A name is percent-encoded.
        let name = attachment.filename.as_ref().map_or(0, String::len) as u64 * 3;
        attachments += part_size(attachment.content.len()) + name;
    }
    headers(email).len() as u64 + part_size(body) + attachments + 256
}

fn part_size(bytes: u64) -> u64 {
    bytes.div_ceil(BASE64_LINE_BYTES.0 as u64) * BASE64_LINE_BYTES.1 + 256
}

pub fn compose(email: &ParsedEmail, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(headers(email).as_bytes())?;
    if let Some(html) = &email.body_html {
        write_part("Content-Type: text/html; charset=utf-8\r\n", &mut html.as_bytes(), out)?;
    } else {
        let text = email.body_text.as_deref().unwrap_or_default();
        write_part("Content-Type: text/plain; charset=utf-8\r\n", &mut text.as_bytes(), out)?;
    }
    for attachment in &email.attachments {
        let mut headers = format!("Content-Type: {}\r\nContent-Disposition: attachment", attachment.content_type);
        if let Some(name) = &attachment.filename {
            headers.push_str(&format!("; filename*=utf-8''{}", percent(name)));
        }
        headers.push_str("\r\n");
        match &attachment.content {
            SpoolableBytes::InMemory(bytes) => write_part(&headers, &mut bytes.as_ref(), out)?,
            SpoolableBytes::Spooled(spooled) => write_part(&headers, &mut spooled.reader(), out)?,
        }
    }
    write!(out, "--{BOUNDARY}--\r\n")
}

fn write_part(headers: &str, bytes: &mut dyn Read, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "--{BOUNDARY}\r\n{headers}Content-Transfer-Encoding: base64\r\n\r\n")?;
    base64_lines(bytes, out)
}

fn headers(email: &ParsedEmail) -> String {
    let mut out = String::new();
    let mut header = |name: &str, value: &str| {
        if !value.is_empty() {
            out.push_str(&format!("{name}: {value}\r\n"));
        }
    };
    if let Some(from) = &email.from {
        header("From", &person(from));
    }
    for (kind, name) in [(RecipientKind::To, "To"), (RecipientKind::Cc, "Cc"), (RecipientKind::Bcc, "Bcc")] {
        let people: Vec<String> =
            email.recipients.iter().filter(|r| r.kind == kind).map(|r| person(&r.address)).collect();
        header(name, &people.join(",\r\n "));
    }
    header("Subject", &encoded(email.subject.as_deref().unwrap_or_default()));
    let date = email.sent_at.map(|time| time.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string());
    header("Date", date.as_deref().unwrap_or_default());
    let message_id = email.message_id.as_ref().map(|id| format!("<{id}>"));
    header("Message-ID", message_id.as_deref().unwrap_or_default());
    header("MIME-Version", "1.0");
    header("Content-Type", &format!("multipart/mixed; boundary=\"{BOUNDARY}\""));
    out.push_str("\r\n");
    out
}

fn person(address: &domain::Address) -> String {
    match &address.name {
        Some(name) => format!("{} <{}>", encoded_always(name), address.address),
        None => address.address.clone(),
    }
}

fn encoded(text: &str) -> String {
    if text.is_ascii() && !text.contains("=?") { text.to_owned() } else { encoded_always(text) }
}

fn encoded_always(text: &str) -> String {
    // 45 bytes make a word of the longest allowed size.
    let mut words = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (word, tail) = rest.split_at(rest.floor_char_boundary(45));
        let mut line = String::new();
        base64_line(word.as_bytes(), &mut line);
        words.push(format!("=?utf-8?b?{line}?="));
        rest = tail;
    }
    words.join("\r\n ")
}

fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn base64_lines(bytes: &mut dyn Read, out: &mut dyn Write) -> io::Result<()> {
    let mut piece = Vec::with_capacity(BASE64_LINE_BYTES.0 * 1024);
    let mut lines = String::with_capacity(BASE64_LINE_BYTES.0 * 1024 * 3 / 2);
    loop {
        piece.clear();
        lines.clear();
        bytes.take(BASE64_LINE_BYTES.0 as u64 * 1024).read_to_end(&mut piece)?;
        if piece.is_empty() {
            return Ok(());
        }
        for line in piece.chunks(BASE64_LINE_BYTES.0) {
            base64_line(line, &mut lines);
            lines.push_str("\r\n");
        }
        out.write_all(lines.as_bytes())?;
    }
}

fn base64_line(bytes: &[u8], out: &mut String) {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for group in bytes.chunks(3) {
        let mut bytes = [0; 4];
        bytes[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bytes);
        for i in 0..4u32 {
            let letter = LETTERS[(bits >> (18 - 6 * i) & 63) as usize];
            out.push(if i as usize <= group.len() { char::from(letter) } else { '=' });
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::{Address, MessageLimits};

    use super::*;
    use crate::mime::{attachments, parse};

    #[test]
    fn composed_message_is_read_back() {
        let email = ParsedEmail {
            subject: Some("Grüße aus einer ziemlich langen Betreffzeile, die nicht auf eine Zeile passt".to_owned()),
            from: Some(Address { name: Some("Doe, Jane".to_owned()), address: "jane@example.com".to_owned() }),
            body_text: Some("Hello\nthere".to_owned()),
            attachments: vec![attachments::inner(
                "1".to_owned(),
                Some("ä b.bin".to_owned()),
                "application/x",
                vec![0, 1, 2, 3].into(),
                &mut attachments::DecodeBudget::new(&MessageLimits::default(), None),
            )],
            ..ParsedEmail::default()
        };

        let mut composed = Vec::new();
        compose(&email, &mut composed).unwrap();
        let read = parse(&composed, &MessageLimits::default());

        assert_eq!(read.subject, email.subject);
        assert_eq!(read.from, email.from);
        assert_eq!(read.body_text, email.body_text);
        assert_eq!(read.attachments[0].filename, email.attachments[0].filename);
        assert_eq!(read.attachments[0].content.in_memory(), email.attachments[0].content.in_memory());
        assert!(composed.len() as u64 <= size(&email));
        assert!(read.defects.is_empty());
    }
}
