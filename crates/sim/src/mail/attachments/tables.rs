//! Text attachments: tables, data, notes, calendars, contact cards.

use crate::mail::text_writer::TextWriter;

pub fn csv(size: usize, writer: &mut TextWriter<'_>) -> Vec<u8> {
    let mut text = String::with_capacity(size + 128);
    text.push_str("date;reference;item;quantity;unit_price;total\r\n");
    let mut day = writer.rng.below(300);
    while text.len() < size {
        day += writer.rng.below(2);
        let item = *writer.rng.pick_skewed(&writer.lexicon.things);
        let (quantity, cents) = (writer.rng.between(1, 40), writer.rng.between(99, 90_000));
        let total = quantity * cents;
        text.push_str(&format!(
            "20{:02}-{:02}-{:02};{};{item};{quantity};{}.{:02};{}.{:02}\r\n",
            20 + day / 336 % 10,
            1 + day / 28 % 12,
            1 + day % 28,
            writer.rng.between(100_000, 999_999),
            cents / 100,
            cents % 100,
            total / 100,
            total % 100,
        ));
    }
    text.into_bytes()
}

pub fn json(size: usize, writer: &mut TextWriter<'_>) -> Vec<u8> {
    let mut text = String::with_capacity(size + 160);
    text.push_str("{\"records\": [");
    let mut id = writer.rng.between(1_000, 90_000);
    while text.len() < size {
        let separator = if text.ends_with('[') { "\n" } else { ",\n" };
        let item = *writer.rng.pick_skewed(&writer.lexicon.things);
        let value = writer.rng.below(1_000_000);
        let mark = writer.rng.hex(16);
        text.push_str(&format!(
            "{separator}  {{\"id\": {id}, \"item\": \"{item}\", \"value\": {value}, \"mark\": \"{mark}\"}}"
        ));
        id += 1;
    }
    text.push_str("\n]}\n");
    text.into_bytes()
}

pub fn text(size: usize, writer: &mut TextWriter<'_>) -> Vec<u8> {
    let mut text = writer.text(size);
    text.push('\n');
    text.into_bytes()
}

/// Writes a calendar file with one event.
pub fn calendar(title: &str, writer: &mut TextWriter<'_>) -> Vec<u8> {
    let id = writer.rng.hex(24);
    let (month, day, hour) = (writer.rng.between(1, 12), writer.rng.between(1, 28), writer.rng.between(8, 17));
    format!(
        "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//Inkwell//Calendar 2//EN\r\nBEGIN:VEVENT\r\n\
         UID:{id}@calendar.example\r\nDTSTAMP:20240101T000000Z\r\nDTSTART:2024{month:02}{day:02}T{hour:02}0000Z\r\n\
         DURATION:PT45M\r\nSUMMARY:{title}\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    )
    .into_bytes()
}

pub fn contact(name: &str, writer: &mut TextWriter<'_>) -> Vec<u8> {
    let (area, number) = (writer.rng.between(100, 999), writer.rng.between(1_000, 9_999));
    format!(
        "BEGIN:VCARD\r\nVERSION:3.0\r\nFN:{name}\r\nN:{name};;;;\r\nTEL;TYPE=work:+00 {area} 555 {number}\r\n\
         NOTE:{}\r\nEND:VCARD\r\n",
        writer.sentence()
    )
    .into_bytes()
}
