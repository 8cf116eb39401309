//! A tree of MIME parts and its serialization.

use std::borrow::Cow;
use std::sync::Arc;

use super::Charset;
use super::encode::{append_base64, append_quoted_printable};
use super::header::append_parameter;
use crate::mail::attachments::AttachmentFile;

/// The maximum length of an unencoded line (RFC 5322 section 2.1.1).
const MAX_UNENCODED_LINE_BYTES: usize = 998;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextEncoding {
    /// Unencoded: 7bit if ASCII, 8bit otherwise; quoted-printable if a line is too long.
    Plain,
    QuotedPrintable,
    Base64,
}

#[derive(Debug)]
pub struct MimePart {
    /// The value of Content-Type, without the parameters charset, name and boundary.
    pub content_type: String,
    /// Further header fields, each ended by CRLF.
    pub fields: String,
    pub role: PartRole,
    pub body: PartBody,
}

/// The role of a part for the reader of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartRole {
    Shown,
    /// A picture inside the text.
    Inline,
    Attached,
}

#[derive(Debug)]
pub enum PartBody {
    /// Lines end in LF here and in CRLF on the wire.
    Text {
        text: String,
        charset: Charset,
        encoding: TextEncoding,
    },
    File(Arc<AttachmentFile>),
    /// Bytes that are written unchanged: a whole message, a delivery status.
    Verbatim(Vec<u8>),
    Multipart {
        boundary: String,
        parts: Vec<MimePart>,
    },
}

impl MimePart {
    pub fn text(subtype: &str, text: String, charset: Charset, encoding: TextEncoding) -> Self {
        let content_type = format!("text/{subtype}");
        Self {
            content_type,
            fields: String::new(),
            role: PartRole::Shown,
            body: PartBody::Text { text, charset, encoding },
        }
    }

    pub fn multipart(content_type: &str, boundary: String, parts: Vec<Self>) -> Self {
        let content_type = content_type.to_owned();
        Self {
            content_type,
            fields: String::new(),
            role: PartRole::Shown,
            body: PartBody::Multipart { boundary, parts },
        }
    }

    /// Builds a part for an attached file.
    pub fn attachment(file: Arc<AttachmentFile>) -> Self {
        let mut fields = String::from("Content-Disposition: attachment");
        append_parameter(&mut fields, "filename", &file.name);
        fields.push_str("\r\n");
        Self { content_type: file.media_type.to_owned(), fields, role: PartRole::Attached, body: PartBody::File(file) }
    }

    /// Builds a part for a picture that the HTML part refers to by its content id.
    pub fn inline(file: Arc<AttachmentFile>, content_id: &str) -> Self {
        let mut fields = format!("Content-ID: <{content_id}>\r\nContent-Disposition: inline");
        append_parameter(&mut fields, "filename", &file.name);
        fields.push_str("\r\n");
        Self { content_type: file.media_type.to_owned(), fields, role: PartRole::Inline, body: PartBody::File(file) }
    }

    pub fn verbatim(content_type: &str, bytes: Vec<u8>) -> Self {
        Self {
            content_type: content_type.to_owned(),
            fields: String::new(),
            role: PartRole::Shown,
            body: PartBody::Verbatim(bytes),
        }
    }

    /// Builds a part for an attached message.
    pub fn message(bytes: Vec<u8>, name: &str) -> Self {
        let mut fields = String::from("Content-Disposition: attachment");
        append_parameter(&mut fields, "filename", name);
        fields.push_str("\r\n");
        Self {
            content_type: "message/rfc822".to_owned(),
            fields,
            role: PartRole::Attached,
            body: PartBody::Verbatim(bytes),
        }
    }

    /// Counts the parts with the role, this one and all below it.
    pub fn count(&self, role: PartRole) -> usize {
        let below = match &self.body {
            PartBody::Multipart { parts, .. } => parts.iter().map(|part| part.count(role)).sum(),
            _ => 0,
        };
        below + usize::from(self.role == role)
    }

    /// Writes the part's header fields, the empty line, and its body.
    pub fn write(&self, out: &mut Vec<u8>) {
        match &self.body {
            PartBody::Text { text, charset, encoding } => self.write_text(out, text, *charset, *encoding),
            PartBody::File(file) => self.write_file(out, file),
            PartBody::Verbatim(bytes) => {
                self.write_fields(out, "", None);
                out.extend_from_slice(bytes);
            }
            PartBody::Multipart { boundary, parts } => self.write_parts(out, boundary, parts),
        }
    }

    fn write_fields(&self, out: &mut Vec<u8>, parameters: &str, encoding: Option<&str>) {
        for text in ["Content-Type: ", &self.content_type, parameters, "\r\n"] {
            out.extend_from_slice(text.as_bytes());
        }
        if let Some(encoding) = encoding {
            for text in ["Content-Transfer-Encoding: ", encoding, "\r\n"] {
                out.extend_from_slice(text.as_bytes());
            }
        }
        out.extend_from_slice(self.fields.as_bytes());
        out.extend_from_slice(b"\r\n");
    }

    fn write_text(&self, out: &mut Vec<u8>, text: &str, charset: Charset, encoding: TextEncoding) {
        let (charset, bytes) = match charset.encode(text) {
            Some(bytes) => (charset, bytes),
            None => (Charset::Utf8, Cow::Borrowed(text.as_bytes())),
        };
        let is_short = bytes.split(|&byte| byte == b'\n').all(|line| line.len() <= MAX_UNENCODED_LINE_BYTES);
        let encoding =
            if encoding == TextEncoding::Plain && !is_short { TextEncoding::QuotedPrintable } else { encoding };
        let name = match encoding {
            TextEncoding::Plain if bytes.is_ascii() => "7bit",
            TextEncoding::Plain => "8bit",
            TextEncoding::QuotedPrintable => "quoted-printable",
            TextEncoding::Base64 => "base64",
        };
        self.write_fields(out, &format!("; charset={}", charset.name()), Some(name));
        match encoding {
            TextEncoding::Plain => append_with_crlf(out, &bytes),
            TextEncoding::QuotedPrintable => append_quoted_printable(out, &bytes),
            TextEncoding::Base64 => {
                let mut lines = Vec::with_capacity(bytes.len() + bytes.len() / 32);
                append_with_crlf(&mut lines, &bytes);
                append_base64(out, &lines);
            }
        }
        if !out.ends_with(b"\r\n") {
            out.extend_from_slice(b"\r\n");
        }
    }

    fn write_file(&self, out: &mut Vec<u8>, file: &AttachmentFile) {
        let mut parameters = String::new();
        append_parameter(&mut parameters, "name", &file.name);
        self.write_fields(out, &parameters, Some("base64"));
        append_base64(out, &file.bytes);
    }

    fn write_parts(&self, out: &mut Vec<u8>, boundary: &str, parts: &[Self]) {
        self.write_fields(out, &format!(";\r\n boundary=\"{boundary}\""), None);
        for part in parts {
            for text in ["--", boundary, "\r\n"] {
                out.extend_from_slice(text.as_bytes());
            }
            part.write(out);
            // The line end before a boundary belongs to the boundary, so one more keeps the part's own.
            out.extend_from_slice(b"\r\n");
        }
        for text in ["--", boundary, "--\r\n"] {
            out.extend_from_slice(text.as_bytes());
        }
    }
}

fn append_with_crlf(out: &mut Vec<u8>, text: &[u8]) {
    let mut lines = text.split(|&byte| byte == b'\n');
    out.extend_from_slice(lines.next().unwrap_or_default());
    for line in lines {
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(line);
    }
}
