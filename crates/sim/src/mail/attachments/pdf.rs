//! A one-page PDF: lines of text above a picture whose uncompressed pixels give it the wanted size.

use crate::mail::text_writer::{TextWriter, wrap};

/// Everything but text and picture: objects, cross-reference table, trailer.
const FRAME_BYTES: usize = 1_000;
const MAX_LINES: usize = 28;
const PICTURE_WIDTH: usize = 128;

pub fn document(title: &str, size: usize, writer: &mut TextWriter<'_>) -> Vec<u8> {
    let page = page_content(title, writer);
    let picture = size.saturating_sub(FRAME_BYTES + page.len());
    let height = picture / (3 * PICTURE_WIDTH);
    let mut pixels = Vec::new();
    writer.rng.append_bytes(&mut pixels, 3 * PICTURE_WIDTH * height);

    let mut file = PdfObjects::new(size + 512);
    file.add("<< /Type /Catalog /Pages 2 0 R >>", None);
    file.add("<< /Type /Pages /Kids [3 0 R] /Count 1 >>", None);
    let resources = if height == 0 { "/Font << /F1 4 0 R >>" } else { "/Font << /F1 4 0 R >> /XObject << /P 6 0 R >>" };
    file.add(
        &format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 5 0 R /Resources << {resources} >> >>"
        ),
        None,
    );
    file.add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>", None);
    let draw = if height == 0 { "" } else { "q 180 0 0 180 60 60 cm /P Do Q\n" };
    let content = format!("{page}{draw}");
    file.add(&format!("<< /Length {} >>", content.len()), Some(content.as_bytes()));
    if height > 0 {
        file.add(
            &format!(
                "<< /Type /XObject /Subtype /Image /Width {PICTURE_WIDTH} /Height {height} /ColorSpace /DeviceRGB \
                 /BitsPerComponent 8 /Length {} >>",
                pixels.len()
            ),
            Some(&pixels),
        );
    }
    file.finish()
}

/// The drawing commands. Only ASCII is shown: the standard fonts hold no other alphabets.
fn page_content(title: &str, writer: &mut TextWriter<'_>) -> String {
    let title = if title.is_ascii() { title } else { "document" };
    let mut content = format!("BT /F1 16 Tf 60 780 Td ({}) Tj /F1 10 Tf 0 -28 Td\n", escape(title));
    let text = writer.english_text(1_800);
    for line in wrap(&text, 92).lines().filter(|line| !line.is_empty()).take(MAX_LINES) {
        content.push_str(&format!("({}) Tj 0 -14 Td\n", escape(line)));
    }
    content.push_str("ET\n");
    content
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('(', "\\(").replace(')', "\\)")
}

/// Numbered objects and where each begins, which the cross-reference table repeats.
struct PdfObjects {
    bytes: Vec<u8>,
    offsets: Vec<usize>,
}

impl PdfObjects {
    fn new(capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity);
        // The second line's high bytes tell transfer programs that the file is binary.
        bytes.extend_from_slice(b"%PDF-1.4\n%\xE2\xE3\xCF\xD3\n");
        Self { bytes, offsets: Vec::new() }
    }

    fn add(&mut self, dictionary: &str, stream: Option<&[u8]>) {
        self.offsets.push(self.bytes.len());
        self.bytes.extend_from_slice(format!("{} 0 obj\n{dictionary}\n", self.offsets.len()).as_bytes());
        if let Some(stream) = stream {
            self.bytes.extend_from_slice(b"stream\n");
            self.bytes.extend_from_slice(stream);
            self.bytes.extend_from_slice(b"\nendstream\n");
        }
        self.bytes.extend_from_slice(b"endobj\n");
    }

    fn finish(mut self) -> Vec<u8> {
        let table = self.bytes.len();
        let count = self.offsets.len() + 1;
        let mut tail = format!("xref\n0 {count}\n0000000000 65535 f \n");
        for offset in &self.offsets {
            tail.push_str(&format!("{offset:010} 00000 n \n"));
        }
        tail.push_str(&format!("trailer\n<< /Size {count} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n"));
        self.bytes.extend_from_slice(tail.as_bytes());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::lexicon::Language;
    use crate::mail::rng::Rng;

    #[test]
    fn pdf_cross_references_point_at_objects() {
        let mut rng = Rng::new(5);

        let bytes = document("Plan (draft)", 40_000, &mut TextWriter::new(&mut rng, Language::English));

        assert!(bytes.starts_with(b"%PDF-1.4\n"));
        let tail = String::from_utf8_lossy(&bytes[bytes.len() - 60..]).into_owned();
        let start: usize = tail.lines().rev().nth(1).unwrap().parse().unwrap();
        let table = String::from_utf8(bytes[start..].to_vec()).unwrap();
        let offsets: Vec<usize> =
            table.lines().filter(|line| line.ends_with(" n ")).map(|line| line[..10].parse().unwrap()).collect();
        assert_eq!(offsets.len(), 6);
        for (index, offset) in offsets.iter().enumerate() {
            assert!(bytes[*offset..].starts_with(format!("{} 0 obj\n", index + 1).as_bytes()));
        }
    }
}
