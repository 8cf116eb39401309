//! Files that really are what their names say: each opens in the program made for it.

mod checksum;
mod pdf;
mod png;
mod tables;
mod word;
mod zip;

pub use png::logo;

use super::rng::Rng;
use super::text_writer::TextWriter;

#[derive(Debug)]
pub struct AttachmentFile {
    pub name: String,
    pub media_type: &'static str,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    Pdf,
    Png,
    Docx,
    Zip,
    Csv,
    Json,
    Text,
    Calendar,
    Contact,
}

impl FileKind {
    /// How often each kind is met; documents and pictures make up most of real mail.
    const WEIGHTS: [(Self, u32); 7] = [
        (Self::Pdf, 36),
        (Self::Png, 22),
        (Self::Docx, 16),
        (Self::Zip, 10),
        (Self::Csv, 8),
        (Self::Json, 4),
        (Self::Text, 4),
    ];

    /// A kind that can be of any size; calendars and contact cards are always small.
    pub fn any_size(rng: &mut Rng) -> Self {
        Self::WEIGHTS[rng.weighted(Self::WEIGHTS.iter().map(|(_, weight)| *weight))].0
    }

    fn extension(self) -> &'static str {
        match self {
            Self::Pdf => "pdf",
            Self::Png => "png",
            Self::Docx => "docx",
            Self::Zip => "zip",
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Text => "txt",
            Self::Calendar => "ics",
            Self::Contact => "vcf",
        }
    }

    fn media_type(self) -> &'static str {
        match self {
            Self::Pdf => "application/pdf",
            Self::Png => "image/png",
            Self::Docx => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            Self::Zip => "application/zip",
            Self::Csv => "text/csv",
            Self::Json => "application/json",
            Self::Text => "text/plain",
            Self::Calendar => "text/calendar",
            Self::Contact => "text/vcard",
        }
    }
}

/// A file of about `size` bytes: a row of pixels or a line of a table more or less.
pub fn make(kind: FileKind, stem: &str, size: usize, writer: &mut TextWriter<'_>) -> AttachmentFile {
    let bytes = match kind {
        FileKind::Pdf => pdf::document(stem, size, writer),
        FileKind::Png => png::photo(size, writer.rng),
        FileKind::Docx => word::document(stem, size, writer),
        FileKind::Zip => bundle(stem, size, writer),
        FileKind::Csv => tables::csv(size, writer),
        FileKind::Json => tables::json(size, writer),
        FileKind::Text => tables::text(size, writer),
        FileKind::Calendar => tables::calendar(stem, writer),
        FileKind::Contact => tables::contact(stem, writer),
    };
    AttachmentFile { name: format!("{stem}.{}", kind.extension()), media_type: kind.media_type(), bytes }
}

/// An archive as people send them: a note, a table and the pictures that are its bulk.
fn bundle(stem: &str, size: usize, writer: &mut TextWriter<'_>) -> Vec<u8> {
    let mut archive = zip::ZipArchive::default();
    archive.add("readme.txt", &tables::text(size / 40, writer));
    archive.add("data/figures.csv", &tables::csv(size / 12, writer));
    let pictures = size.saturating_sub(archive.size() + 400);
    for number in 1..=2 {
        archive.add(&format!("{}/scan-{number:02}.png", ascii_stem(stem)), &png::photo(pictures / 2, writer.rng));
    }
    archive.finish()
}

/// Names inside an archive stay ASCII, which needs no flag for the encoding.
fn ascii_stem(stem: &str) -> &str {
    if stem.is_ascii() { stem } else { "files" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::lexicon::Language;

    #[test]
    fn files_have_the_requested_size() {
        let mut rng = Rng::new(3);
        for (kind, _) in FileKind::WEIGHTS {
            for size in [9_000, 30_000, 300_000] {
                let mut writer = TextWriter::new(&mut rng, Language::English);

                let got = make(kind, "report", size, &mut writer).bytes.len();

                assert!(got.abs_diff(size) <= 800 + size / 50, "{kind:?} of {size} came out as {got}");
            }
        }
    }
}
