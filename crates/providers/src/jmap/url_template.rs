//! URI templates as sessions have them: variables in braces and no operators (RFC 6570, level 1).

/// Fills in the variables. An unknown variable becomes empty, as the RFC has it.
pub fn expand(template: &str, values: &[(&str, &str)]) -> String {
    let mut url = String::with_capacity(template.len() + 64);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        url.push_str(before);
        let Some((name, after)) = after.split_once('}') else { return url };
        if let Some((_, value)) = values.iter().find(|(known, _)| *known == name) {
            append_encoded(&mut url, value);
        }
        rest = after;
    }
    url + rest
}

/// Percent-encodes everything but letters, digits and `-._~`.
fn append_encoded(url: &mut String, value: &str) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_and_encoded() {
        let template = "/dl/{accountId}/{blobId}/{name}?accept={type}&x={other}";

        let url = expand(template, &[("accountId", "u1"), ("blobId", "G/1 ü"), ("name", "a.eml"), ("type", "a/b")]);

        assert_eq!(url, "/dl/u1/G%2F1%20%C3%BC/a.eml?accept=a%2Fb&x=");
        assert_eq!(expand("/dl/{accountId", &[("accountId", "u1")]), "/dl/");
    }
}
