//! Writes an email as MIME. Messages inside Outlook's containers have no bytes of their own that others could read;
//! written this way they are attachments like any forwarded message.

use domain::RecipientKind;

use super::Email;

pub fn compose(email: &Email) -> Vec<u8> {
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
    let boundary = "=_mailroom_part";
    header("Content-Type", &format!("multipart/mixed; boundary=\"{boundary}\""));
    out.push_str("\r\n");
    let mut part = |headers: &str, bytes: &[u8]| {
        out.push_str(&format!("--{boundary}\r\n{headers}Content-Transfer-Encoding: base64\r\n\r\n"));
        base64_lines(bytes, &mut out);
    };
    if let Some(html) = &email.body_html {
        part("Content-Type: text/html; charset=utf-8\r\n", html.as_bytes());
    } else {
        let text = email.body_text.as_deref().unwrap_or_default();
        part("Content-Type: text/plain; charset=utf-8\r\n", text.as_bytes());
    }
    for attachment in &email.attachments {
        let mut headers = format!("Content-Type: {}\r\nContent-Disposition: attachment", attachment.content_type);
        if let Some(name) = &attachment.filename {
            headers.push_str(&format!("; filename*=utf-8''{}", percent(name)));
        }
        headers.push_str("\r\n");
        part(&headers, &attachment.bytes);
    }
    out.push_str(&format!("--{boundary}--\r\n"));
    out.into_bytes()
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

fn base64_lines(bytes: &[u8], out: &mut String) {
    out.reserve(bytes.len() / 57 * 78 + 80);
    for line in bytes.chunks(57) {
        base64_line(line, out);
        out.push_str("\r\n");
    }
}

fn base64_line(bytes: &[u8], out: &mut String) {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4u32 {
            let letter = LETTERS[(bits >> (18 - 6 * i) & 63) as usize];
            out.push(if i as usize <= group.len() { char::from(letter) } else { '=' });
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::{Address, Limits};

    use super::*;
    use crate::mime::{attachments, parse};

    #[test]
    fn what_is_composed_is_read_back() {
        let email = Email {
            subject: Some("Grüße aus einer ziemlich langen Betreffzeile, die nicht auf eine Zeile passt".to_owned()),
            from: Some(Address { name: Some("Doe, Jane".to_owned()), address: "jane@example.com".to_owned() }),
            body_text: Some("Hello\nthere".to_owned()),
            attachments: vec![attachments::inner(
                "1".to_owned(),
                Some("ä b.bin".to_owned()),
                "application/x",
                vec![0, 1, 2, 3],
            )],
            ..Email::default()
        };

        let read = parse(&compose(&email), &Limits::default());

        assert_eq!(read.subject, email.subject);
        assert_eq!(read.from, email.from);
        assert_eq!(read.body_text, email.body_text);
        assert_eq!(read.attachments[0].filename, email.attachments[0].filename);
        assert_eq!(read.attachments[0].bytes, email.attachments[0].bytes);
        assert!(read.defects.is_empty());
    }
}
