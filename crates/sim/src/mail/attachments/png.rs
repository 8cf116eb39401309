//! PNG pictures with stored (uncompressed) pixels, so that size can be chosen and no compressor is needed.

use super::AttachmentFile;
use super::checksum::{adler32, crc32};
use crate::mail::rng::Rng;

/// Longest stored block of RFC 1951.
const MAX_STORED_BLOCK_BYTES: usize = 65_535;

/// Noise of about `size` bytes: like a photograph, it cannot be made smaller.
pub fn photo(size: usize, rng: &mut Rng) -> Vec<u8> {
    let width = if size < 20_000 { 64 } else { 256 };
    let row_length = 1 + 3 * width;
    let height = (size.saturating_sub(100) / row_length).max(1);
    let mut pixels = Vec::new();
    rng.append_bytes(&mut pixels, row_length * height);
    for row in pixels.chunks_exact_mut(row_length) {
        row[0] = 0; // no filter
    }
    encode(width, height, &pixels)
}

/// Draws a company's logo: two colours in a pattern, the same bytes for the same seed.
pub fn logo(stem: &str, seed: u64) -> AttachmentFile {
    const SIDE: usize = 48;
    let mut rng = Rng::new(seed);
    let mut colour = [0; 6];
    rng.fill(&mut colour);
    let pattern = rng.next_u64();
    let mut pixels = Vec::with_capacity(SIDE * (1 + 3 * SIDE));
    for y in 0..SIDE {
        pixels.push(0);
        for x in 0..SIDE {
            // Mirrored left and right, which makes random blocks look drawn.
            let column = if x < SIDE / 2 { x } else { SIDE - 1 - x } / 6;
            let is_front = pattern >> (column + 4 * (y / 6)) & 1 == 1;
            pixels.extend_from_slice(if is_front { &colour[..3] } else { &colour[3..] });
        }
    }
    AttachmentFile { name: format!("{stem}.png"), media_type: "image/png", bytes: encode(SIDE, SIDE, &pixels) }
}

/// Encodes a PNG. `pixels` are rows of 8-bit RGB, each after its filter byte.
fn encode(width: usize, height: usize, pixels: &[u8]) -> Vec<u8> {
    let mut header = Vec::with_capacity(13);
    header.extend_from_slice(&(width as u32).to_be_bytes());
    header.extend_from_slice(&(height as u32).to_be_bytes());
    header.extend_from_slice(&[8, 2, 0, 0, 0]); // 8 bits, RGB, no interlacing

    let mut out = Vec::with_capacity(pixels.len() + pixels.len() / 8192 + 256);
    out.extend_from_slice(b"\x89PNG\r\n\x1a\n");
    append_chunk(&mut out, b"IHDR", |data| data.extend_from_slice(&header));
    append_chunk(&mut out, b"IDAT", |data| append_zlib(data, pixels));
    append_chunk(&mut out, b"IEND", |_| ());
    out
}

fn append_chunk(out: &mut Vec<u8>, name: &[u8; 4], write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(name);
    write(out);
    let length = (out.len() - start - 8) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    let checksum = crc32(&out[start + 4..]);
    out.extend_from_slice(&checksum.to_be_bytes());
}

fn append_zlib(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&[0x78, 0x01]);
    let blocks = bytes.len().div_ceil(MAX_STORED_BLOCK_BYTES);
    for (number, block) in bytes.chunks(MAX_STORED_BLOCK_BYTES).enumerate() {
        let length = block.len() as u16;
        out.push(u8::from(number + 1 == blocks));
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(block);
    }
    out.extend_from_slice(&adler32(bytes).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn png_chunks_carry_their_checksums() {
        let picture = photo(200_000, &mut Rng::new(1));

        assert_eq!(&picture[..8], b"\x89PNG\r\n\x1a\n");
        let mut at = 8;
        let mut names = Vec::new();
        while at < picture.len() {
            let length = u32::from_be_bytes(picture[at..at + 4].try_into().unwrap()) as usize;
            let end = at + 8 + length;
            assert_eq!(crc32(&picture[at + 4..end]).to_be_bytes(), picture[end..end + 4]);
            names.push(picture[at + 4..at + 8].to_vec());
            at = end + 4;
        }
        assert_eq!(names, [b"IHDR", b"IDAT", b"IEND"]);
    }
}
