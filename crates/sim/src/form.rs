//! Percent-encoded queries and forms.

/// Names and values of a query or form, in order.
pub type FormFields = [(String, String)];

/// Parses names and values in order, repeated names included.
pub fn pairs(text: &str) -> Vec<(String, String)> {
    let parts = text.split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (decode(&name.replace('+', " ")), decode(&value.replace('+', " ")))
        })
        .collect()
}

pub fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, left @ ..] = rest {
        let digits = left.get(..2).and_then(|two| std::str::from_utf8(two).ok()).filter(|_| *first == b'%');
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &left[2..];
            }
            None => {
                bytes.push(*first);
                rest = left;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Percent-encodes everything but letters, digits and `-._~`.
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Finds the first value of a name.
pub fn value<'a>(fields: &'a FormFields, name: &str) -> Option<&'a str> {
    fields.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
}

/// Finds a field that is in neither list.
pub fn find_unknown<'a>(fields: &'a FormFields, known: &[&str], more: &[&str]) -> Option<&'a str> {
    let mut names = fields.iter().map(|(name, _)| name.as_str());
    names.find(|name| !known.contains(name) && !more.contains(name))
}

/// Refuses fields that are in neither list, and repeated ones. The error names the first.
pub fn check_fields(fields: &FormFields, known: &[&str], more: &[&str]) -> Result<(), String> {
    for (at, (name, _)) in fields.iter().enumerate() {
        if !known.contains(&name.as_str()) && !more.contains(&name.as_str()) {
            return Err(format!("unknown field {name:?}"));
        }
        if fields[..at].iter().any(|(before, _)| before == name) {
            return Err(format!("field {name:?} comes twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_text_decodes_to_itself() {
        let text = "a b+c%/ü&=?";

        assert_eq!(decode(&encode(text)), text);
        assert_eq!(pairs("q=a+b%2B&x&y="), [("q", "a b+"), ("x", ""), ("y", "")].map(|(n, v)| (n.into(), v.into())));
        assert_eq!(decode("%zz%4"), "%zz%4");
    }
}
