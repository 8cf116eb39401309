//! A DOCX document: the minimal parts of Office Open XML, and a picture that gives it its size.

use super::{png, zip};
use crate::mail::text_writer::{TextWriter, escape_html};

const CONTENT_TYPES: &str = r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/><Default Extension="png" ContentType="image/png"/><Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>"#;

const PACKAGE_LINKS: &str = r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/></Relationships>"#;

const DOCUMENT_LINKS: &str = r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/image" Target="media/image1.png"/></Relationships>"#;

pub fn document(title: &str, size: usize, writer: &mut TextWriter<'_>) -> Vec<u8> {
    let mut archive = zip::ZipArchive::default();
    archive.add("[Content_Types].xml", CONTENT_TYPES.as_bytes());
    archive.add("_rels/.rels", PACKAGE_LINKS.as_bytes());
    archive.add("word/_rels/document.xml.rels", DOCUMENT_LINKS.as_bytes());
    archive.add("word/document.xml", paragraphs(title, (size / 8).clamp(600, 6_000), writer).as_bytes());
    let picture = size.saturating_sub(archive.size() + 120);
    archive.add("word/media/image1.png", &png::photo(picture, writer.rng));
    archive.finish()
}

fn paragraphs(title: &str, length: usize, writer: &mut TextWriter<'_>) -> String {
    let mut xml = String::from(
        r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>"#,
    );
    let text = writer.text(length);
    for paragraph in std::iter::once(title).chain(text.split("\n\n")) {
        xml.push_str("<w:p><w:r><w:t xml:space=\"preserve\">");
        escape_html(&mut xml, paragraph);
        xml.push_str("</w:t></w:r></w:p>");
    }
    xml.push_str("<w:sectPr/></w:body></w:document>");
    xml
}
