//! Search tokens as PostgreSQL's `tsvector`, in the binary form that its receive function reads.
//!
//! Built here because the server would parse, sort and count the same text far more slowly.

use std::collections::HashMap;

use bytes::{BufMut, BytesMut};

/// Positions above this are all the same to PostgreSQL.
const MAX_POSITION: u16 = 16_383;
/// PostgreSQL keeps no more positions per lexeme.
const MAX_LEXEME_POSITIONS: usize = 255;

/// Writes lexemes with their positions, counted from 1; gaps count but are not lexemes.
pub(super) fn write(tokens: &str, out: &mut BytesMut) {
    let mut lexemes: HashMap<&str, Vec<u16>> = HashMap::new();
    for (n, token) in tokens.split(' ').filter(|token| !token.is_empty()).enumerate() {
        let position = u16::try_from(n + 1).unwrap_or(MAX_POSITION).min(MAX_POSITION);
        if token == domain::search::PHRASE_GAP {
            continue;
        }
        let positions = lexemes.entry(token).or_default();
        if positions.len() < MAX_LEXEME_POSITIONS && positions.last() != Some(&position) {
            positions.push(position);
        }
    }
    // Sorted as the server sorts (length, then bytes), so that it need not.
    let mut sorted: Vec<(&str, Vec<u16>)> = lexemes.into_iter().collect();
    sorted.sort_unstable_by_key(|(lexeme, _)| (lexeme.len(), *lexeme));
    out.put_u32(u32::try_from(sorted.len()).unwrap_or(u32::MAX));
    for (lexeme, positions) in sorted {
        out.put_slice(lexeme.as_bytes());
        out.put_u8(0);
        out.put_u16(u16::try_from(positions.len()).unwrap_or(u16::MAX));
        for position in positions {
            out.put_u16(position);
        }
    }
}
