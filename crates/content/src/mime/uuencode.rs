//! Files that were pasted into plain text as `begin 644 name … end`, long before MIME.

/// A file found in a text.
#[derive(Debug, PartialEq, Eq)]
pub struct UuencodedFile {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// Takes every complete block out of a text. `None` when there is none, which is nearly always.
pub fn extract(text: &[u8], most: usize) -> Option<(Vec<u8>, Vec<UuencodedFile>)> {
    let mut files = Vec::new();
    let mut kept = Vec::new();
    let mut copied = 0;
    let mut from = 0;
    for at in memchr::memmem::find_iter(text, b"begin ") {
        let is_line_start = at == 0 || text.get(at - 1) == Some(&b'\n');
        if at < from || !is_line_start || files.len() >= most {
            continue;
        }
        let Some((name, header_end)) = begin_line(text, at) else { continue };
        let (end, bytes) = block(text, header_end);
        // Lines that failed are not looked at again: a second `begin` inside them starts afresh, so time stays linear.
        let Some(bytes) = bytes else {
            from = end;
            continue;
        };
        kept.extend_from_slice(text.get(copied..at).unwrap_or_default());
        files.push(UuencodedFile { name, bytes });
        copied = end;
        from = end;
    }
    if files.is_empty() {
        return None;
    }
    kept.extend_from_slice(text.get(copied..).unwrap_or_default());
    Some((kept, files))
}

/// Returns the contents of a part whose transfer encoding is uuencode.
pub fn decode_all(bytes: &[u8]) -> Option<Vec<u8>> {
    extract(bytes, 1).and_then(|(_, files)| files.into_iter().next()).map(|file| file.bytes)
}

/// Returns the name on `begin <mode> <name>` and where the next line starts.
fn begin_line(text: &[u8], at: usize) -> Option<(String, usize)> {
    let (line, next) = line_at(text, at);
    let rest = line.strip_prefix(b"begin ")?;
    let space = rest.iter().position(|&b| b == b' ')?;
    let (mode, name) = rest.split_at(space);
    let is_mode = matches!(mode.len(), 3 | 4) && mode.iter().all(|b| (b'0'..=b'7').contains(b));
    let name = String::from_utf8_lossy(name).trim().to_owned();
    (is_mode && !name.is_empty()).then_some((name, next))
}

/// Returns where the block ends, and its bytes if every line up to `end` was good.
fn block(text: &[u8], start: usize) -> (usize, Option<Vec<u8>>) {
    let mut out = Vec::new();
    let mut at = start;
    while at < text.len() {
        let (line, next) = line_at(text, at);
        if line == b"end" {
            return (next, Some(out));
        }
        // A line of nothing but zeros may lose all its characters on the way; a bomb is made of nothing else.
        if !decode_line(line, &mut out) || out.len() > text.len() {
            return (at, None);
        }
        at = next;
    }
    (at, None)
}

fn decode_line(line: &[u8], out: &mut Vec<u8>) -> bool {
    let Some((&first, data)) = line.split_first() else {
        return true; // an empty line where a lone space was stripped
    };
    if !(b' '..=b'`').contains(&first) || data.iter().any(|b| !(b' '..=b'`').contains(b)) {
        return false;
    }
    let length = usize::from((first - b' ') & 63);
    // Some encoders add a checksum character, and trailing spaces get lost on the way.
    if data.len() > length.div_ceil(3) * 4 + 2 {
        return false;
    }
    for i in 0..length {
        let group = i / 3 * 4;
        let bits = (group..group + 4).fold(0, |bits, i| bits << 6 | sextet(data, i));
        out.push(bits.to_be_bytes()[1 + i % 3]);
    }
    true
}

/// Returns the six bits of a character; a missing one is a space.
fn sextet(data: &[u8], i: usize) -> u32 {
    u32::from((data.get(i).copied().unwrap_or(b' ') - b' ') & 63)
}

/// Returns the line without its end, and where the next one starts.
fn line_at(text: &[u8], at: usize) -> (&[u8], usize) {
    let rest = text.get(at..).unwrap_or_default();
    let (line, next) = match memchr::memchr(b'\n', rest) {
        Some(end) => (rest.get(..end).unwrap_or_default(), at + end + 1),
        None => (rest, text.len()),
    };
    (line.strip_suffix(b"\r").unwrap_or(line), next)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: &[u8] = b"begin 644 hi.txt\r\n%:&5L;&\\ \r\n`\r\nend\r\n";

    #[test]
    fn a_block_leaves_the_text_around_it() {
        let text = [b"before\r\n", BLOCK, b"after"].concat();

        let (kept, files) = extract(&text, 10).unwrap();

        assert_eq!(kept, b"before\r\nafter");
        assert_eq!(files, [UuencodedFile { name: "hi.txt".to_owned(), bytes: b"hello".to_vec() }]);
    }

    #[test]
    fn prose_that_begins_so_is_left_alone() {
        assert_eq!(extract(b"begin the day with coffee\nend\n", 10), None);
        assert_eq!(extract(b"begin 644 x\nthis is just prose in lower case\nend\n", 10), None);
        assert_eq!(extract(b"begin 644 cut.bin\n#86)C\n", 10), None);
    }

    #[test]
    fn a_file_is_never_larger_than_its_text() {
        let bomb = [b"begin 644 bomb\n", b"M\n".repeat(1000).as_slice(), b"end\n"].concat();

        assert_eq!(extract(&bomb, 10), None);
    }

    #[test]
    fn endless_beginnings_take_linear_time() {
        assert_eq!(extract(&b"begin 644 a\n".repeat(200_000), 10), None);
    }
}
