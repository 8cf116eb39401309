//! Defects of a message, under short names that never change: they are stored in rows and searched for.

use std::collections::BTreeSet;

macro_rules! defects {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Defect {
            $($(#[$doc])* $variant,)*
        }

        impl Defect {
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

defects! {
    /// Over `MessageLimits::attachment_bytes`; listed without its bytes.
    AttachmentTooLarge = "attachment_too_large",
    BadAddress = "bad_address",
    BadDate = "bad_date",
    /// Base64, quoted-printable or uuencode that is not what it claims to be.
    BadEncoding = "bad_encoding",
    /// An RFC 2047 word without its end, or whose contents are broken.
    BadEncodedWord = "bad_encoded_word",
    /// A line among the headers that is not a header.
    BadHeader = "bad_header",
    /// An Outlook .msg that could not be read to its end.
    BadMsg = "bad_msg",
    /// A TNEF part that could not be read to its end.
    BadTnef = "bad_tnef",
    /// Lines end with a lone carriage return.
    BareCr = "bare_cr",
    BodyTruncated = "body_truncated",
    ByteOrderMark = "byte_order_mark",
    /// A winmail.dat that is too large to be opened; it is kept as it is.
    ContainerTooLarge = "container_too_large",
    /// Over `MessageLimits::decoded_bytes`; the rest is listed without bytes.
    DecodedTooLarge = "decoded_too_large",
    /// A second Subject, From, Date or Message-ID; the first one counts.
    DuplicateHeader = "duplicate_header",
    HeadersTruncated = "headers_truncated",
    LeadingBlankLines = "leading_blank_lines",
    /// A mailbox separator line (`From …`) among the headers.
    MboxFromLine = "mbox_from_line",
    /// A multipart whose boundary is not declared or never appears.
    MissingBoundary = "missing_boundary",
    /// No blank line between headers and body.
    MissingSeparator = "missing_separator",
    NestingTooDeep = "nesting_too_deep",
    NoHeaders = "no_headers",
    NulStripped = "nul_stripped",
    /// Unencoded header bytes that are not UTF-8.
    RawHeaderBytes = "raw_header_bytes",
    TooManyParts = "too_many_parts",
    /// A multipart without its closing boundary: often a cut message.
    UnclosedMultipart = "unclosed_multipart",
    /// A charset that is not declared or not known, where it matters.
    UnknownCharset = "unknown_charset",
    /// A Content-Transfer-Encoding that does not exist.
    UnknownEncoding = "unknown_encoding",
    /// Text that is not in the charset it declares.
    WrongCharset = "wrong_charset",
}

/// Defects found so far, each once.
#[derive(Debug, Default)]
pub struct Defects(BTreeSet<&'static str>);

impl Defects {
    pub fn add(&mut self, defect: Defect) {
        self.0.insert(defect.as_str());
    }

    pub fn merge(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Returns the names of the defects, sorted.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|&name| name.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defects_are_sorted_and_told_once() {
        let mut defects = Defects::default();

        defects.add(Defect::NulStripped);
        defects.add(Defect::BadDate);
        defects.add(Defect::NulStripped);

        assert_eq!(defects.names(), ["bad_date", "nul_stripped"]);
    }
}
