//! Apple Mail's `.emlx`: a line with the message's length, the message, then a property list about it.

use domain::Flags;
use jiff::Timestamp;

use super::{Found, Problem};

/// Room for what stands around the message.
pub const AROUND_BYTES: u64 = 1 << 20;

/// Leaves only the message in `found.raw` and takes over what the property list says. A file without the length is
/// taken whole, one that ends before it is refused.
pub fn unwrap(mut found: Found) -> Result<Found, Problem> {
    let Some(line_end) = found.raw.iter().take(32).position(|&b| b == b'\n') else { return Ok(found) };
    let Some(length) = str::from_utf8(&found.raw[..line_end]).ok().and_then(|line| line.trim().parse::<usize>().ok())
    else {
        return Ok(found);
    };
    let start = line_end + 1;
    let end = start.saturating_add(length);
    if end > found.raw.len() {
        return Err(Problem::Cut { origin: found.origin });
    }
    let list = String::from_utf8_lossy(&found.raw[end..]).into_owned();

    found.raw.truncate(end);
    found.raw.drain(..start);
    found.flags = flags(integer(&list, "flags").unwrap_or_default());
    found.envelope_time = integer(&list, "date-received").and_then(|seconds| Timestamp::from_second(seconds).ok());
    Ok(found)
}

fn flags(bits: i64) -> Flags {
    let names = [(0, "seen"), (1, "deleted"), (2, "answered"), (4, "flagged"), (6, "draft"), (8, "forwarded")];
    Flags::from_names(names.into_iter().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, name)| name))
}

/// The number after a key. A property list is XML, but Apple Mail writes these pairs in one way only.
fn integer(list: &str, key: &str) -> Option<i64> {
    let (_, after) = list.split_once(&format!("<key>{key}</key>"))?;
    let value = after.trim_start().strip_prefix("<integer>").or_else(|| after.trim_start().strip_prefix("<real>"))?;
    value.split(['<', '.']).next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unwrapped(raw: &[u8]) -> Result<Found, Problem> {
        unwrap(Found {
            raw: raw.to_vec(),
            folder: String::new(),
            flags: Flags::default(),
            envelope_time: None,
            origin: "a.emlx".to_owned(),
        })
    }

    #[test]
    fn the_message_is_what_the_first_line_measures() {
        let list = "<plist><dict><key>date-received</key>\n<integer>1700000000</integer>\n<key>flags</key><integer>21</integer>";
        let found = unwrapped(format!("5   \nTo: a{list}").as_bytes()).unwrap();

        assert_eq!(found.raw, b"To: a");
        assert_eq!(found.flags, Flags::from_names(["answered", "flagged", "seen"]));
        assert_eq!(found.envelope_time.map(Timestamp::as_second), Some(1_700_000_000));
    }

    #[test]
    fn a_file_that_ends_before_its_length_is_refused() {
        assert_eq!(
            unwrapped(b"6\nTo: a").unwrap_err().to_string(),
            "a.emlx ends in the middle of the message; copy or export the file again"
        );
        assert_eq!(unwrapped(b"5\nTo: a").unwrap().raw, b"To: a");
        assert_eq!(unwrapped(b"To: a\n").unwrap().raw, b"To: a\n");
    }
}
