//! Transfer encodings. Lines are at most 76 bytes, as RFC 2045 asks.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Two output letters for every 12 input bits, which halves the look-ups: most of a benchmark mailbox is base64.
static BASE64_PAIRS: [[u8; 2]; 4096] = pairs();

const fn pairs() -> [[u8; 2]; 4096] {
    let mut table = [[0; 2]; 4096];
    let mut value = 0;
    while value < 4096 {
        table[value] = [ALPHABET[value >> 6], ALPHABET[value & 63]];
        value += 1;
    }
    table
}

/// The number of bytes that fill a line of 76 letters.
const BYTES_PER_LINE: usize = 57;

/// Appends base64 in lines of 76 letters, each ended by CRLF.
pub fn append_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() / BYTES_PER_LINE * 78 + 80);
    let mut lines = bytes.chunks_exact(BYTES_PER_LINE);
    for line in &mut lines {
        // A line of fixed size is filled and copied at once, which spares a capacity check for every four letters.
        let mut letters = [b'\n'; 78];
        for (group, four) in line.chunks_exact(3).zip(letters.chunks_exact_mut(4)) {
            four.copy_from_slice(&letters_of([group[0], group[1], group[2]]));
        }
        letters[76] = b'\r';
        out.extend_from_slice(&letters);
    }
    if !lines.remainder().is_empty() {
        append_base64_line(out, lines.remainder());
        out.extend_from_slice(b"\r\n");
    }
}

fn letters_of([a, b, c]: [u8; 3]) -> [u8; 4] {
    let bits = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
    let (high, low) = (BASE64_PAIRS[bits >> 12], BASE64_PAIRS[bits & 0xFFF]);
    [high[0], high[1], low[0], low[1]]
}

/// Appends base64 without line ends.
pub fn append_base64_line(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut groups = bytes.chunks_exact(3);
    for group in &mut groups {
        out.extend_from_slice(&letters_of([group[0], group[1], group[2]]));
    }
    match *groups.remainder() {
        [a] => {
            let bits = usize::from(a) << 4;
            out.extend_from_slice(&BASE64_PAIRS[bits]);
            out.extend_from_slice(b"==");
        }
        [a, b] => {
            let bits = usize::from(a) << 16 | usize::from(b) << 8;
            out.extend_from_slice(&BASE64_PAIRS[bits >> 12]);
            out.extend_from_slice(&[BASE64_PAIRS[bits & 0xFFF][0], b'=']);
        }
        _ => {}
    }
}

/// The maximum length of a quoted-printable line before its soft break `=`.
const MAX_QUOTED_LINE_BYTES: usize = 75;

/// Appends quoted-printable text. Line ends are LF in `bytes` and CRLF in the output.
pub fn append_quoted_printable(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + bytes.len() / 8);
    for (number, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        if number > 0 {
            out.extend_from_slice(b"\r\n");
        }
        append_quoted_line(out, line);
    }
}

fn append_quoted_line(out: &mut Vec<u8>, line: &[u8]) {
    let (mut column, mut rest) = (0, line);
    while let [first, after @ ..] = rest {
        // Plain letters are copied in one piece: they are most of what there is.
        let run = rest.iter().take(MAX_QUOTED_LINE_BYTES - column).take_while(|&&byte| is_literal(byte)).count();
        // White space at the end of a line is lost on the way unless it is encoded.
        let run = if run == rest.len() && matches!(rest[run - 1], b' ' | b'\t') { run - 1 } else { run };
        out.extend_from_slice(&rest[..run]);
        column += run;
        if run > 0 {
            rest = &rest[run..];
        } else if column + 3 <= MAX_QUOTED_LINE_BYTES {
            out.extend_from_slice(&quoted(*first));
            column += 3;
            rest = after;
        } else {
            out.extend_from_slice(b"=\r\n");
            column = 0;
        }
    }
}

fn is_literal(byte: u8) -> bool {
    matches!(byte, b' '..=b'<' | b'>'..=b'~' | b'\t')
}

/// Escapes a byte, as in `=C3`.
pub fn quoted(byte: u8) -> [u8; 3] {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    [b'=', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads_as_in_rfc_4648() {
        for (plain, coded) in [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            let mut out = Vec::new();

            append_base64_line(&mut out, plain.as_bytes());

            assert_eq!(String::from_utf8_lossy(&out), coded);
        }
    }

    #[test]
    fn quoted_printable_keeps_spaces_and_long_lines() {
        let mut out = Vec::new();

        append_quoted_printable(&mut out, format!("-- \n{}=é", "x".repeat(80)).as_bytes());

        let text = String::from_utf8_lossy(&out);
        assert_eq!(text, format!("--=20\r\n{}=\r\n{}=3D=C3=A9", "x".repeat(75), "x".repeat(5)));
    }
}
