//! Rewords what serde says about a request: it speaks of Rust types, a client knows fields and parameters.

use super::Problem;

/// Path of the whole body or query.
pub const ROOT_PATH: &str = ".";

/// The part of a request that is deserialised.
#[derive(Debug, Clone, Copy)]
pub enum RequestPart {
    Body,
    Query,
}

impl RequestPart {
    /// Returns the name for errors that concern the whole part.
    fn name(self) -> &'static str {
        match self {
            Self::Body => "body",
            Self::Query => "query",
        }
    }

    fn unknown_field(self) -> &'static str {
        match self {
            Self::Body => "is not a field of this request",
            Self::Query => "is not a parameter of this request",
        }
    }
}

/// Returns the problem for a field at `path` that serde refuses with `message`.
pub fn invalid_field(part: RequestPart, path: &str, message: &str) -> Problem {
    let about_a_name = [
        ("missing field", "is required"),
        ("unknown field", part.unknown_field()),
        ("duplicate field", "is given twice"),
    ];
    let named = about_a_name.iter().find_map(|(what, detail)| Some((quoted_name(message, what)?, *detail)));
    match named {
        // The path names the object that holds the field.
        Some((name, detail)) if path == ROOT_PATH || path == name => Problem::invalid(name, detail),
        Some((name, detail)) if path.ends_with(&format!(".{name}")) => Problem::invalid(path, detail),
        Some((name, detail)) => Problem::invalid(&format!("{path}.{name}"), detail),
        None if path == ROOT_PATH => Problem::invalid(part.name(), reworded(message)),
        None => Problem::invalid(path, reworded(message)),
    }
}

/// Returns the name in "missing field `name`".
fn quoted_name<'a>(message: &'a str, what: &str) -> Option<&'a str> {
    message.strip_prefix(what)?.strip_prefix(" `")?.split('`').next()
}

/// Completes the sentence that begins with the name of the field. Messages that are not serde's stay as they are.
fn reworded(message: &str) -> String {
    if let Some(choices) = message.strip_prefix("unknown variant ").and_then(|rest| rest.split_once(", expected ")) {
        return format!("must be {}", alternatives(choices.1));
    }
    let mismatch = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    if let Some((given, expected)) = mismatch.and_then(|rest| rest.rsplit_once(", expected ")) {
        return format!("must be {}, not {}", expected_value(expected), given_value(given));
    }
    match message {
        // The integers of our queries are unsigned.
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "must be a whole number, 0 or more".to_owned()
        }
        "number too large to fit in target type" => "is too large".to_owned(),
        "number too small to fit in target type" => "is too small".to_owned(),
        "invalid float literal" | "cannot parse float from empty string" => "must be a number".to_owned(),
        "provided string was not `true` or `false`" => "must be true or false".to_owned(),
        _ if message.starts_with("UUID parsing failed") => "must be a UUID".to_owned(),
        _ => message.to_owned(),
    }
}

/// Joins the names in "one of `a`, `b`, `c`" or "`a` or `b`" to "a, b or c".
fn alternatives(quoted: &str) -> String {
    let names: Vec<&str> = quoted.split('`').skip(1).step_by(2).collect();
    match names.as_slice() {
        [] => quoted.to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

fn expected_value(expected: &str) -> &str {
    match expected {
        "a string" | "a borrowed string" => "a text",
        "a boolean" => "true or false",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        "a formatted UUID string" => "a UUID",
        "a timestamp string" => "a time, such as 2026-01-31T08:15:00Z",
        expected if expected.starts_with("struct ") => "an object",
        expected => expected,
    }
}

/// Returns null, numbers and booleans as they were given; texts may be secrets.
fn given_value(given: &str) -> &str {
    match given.split_once([' ', '`']).map_or(given, |(kind, _)| kind) {
        "string" => "a text",
        "sequence" => "a list",
        "map" => "an object",
        _ => given.split('`').nth(1).unwrap_or(given),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serde_messages_are_reworded() {
        for (message, detail) in [
            ("invalid type: null, expected a string", "must be a text, not null"),
            ("invalid type: integer `7`, expected a string", "must be a text, not 7"),
            ("invalid type: floating point `1.5`, expected u64", "must be a whole number, 0 or more, not 1.5"),
            ("invalid value: integer `-1`, expected u16", "must be a whole number from 0 to 65535, not -1"),
            ("invalid type: boolean `true`, expected f64", "must be a number, not true"),
            ("invalid type: string \"a, expected b\", expected a boolean", "must be true or false, not a text"),
            ("invalid type: sequence, expected struct NewApiKey", "must be an object, not a list"),
            ("invalid type: map, expected a sequence", "must be a list, not an object"),
            ("unknown variant `x`, expected `a`", "must be a"),
            ("unknown variant `x`, expected `a` or `b`", "must be a or b"),
            ("unknown variant `x`, expected one of `a`, `b`, `c`", "must be a, b or c"),
            ("invalid digit found in string", "must be a whole number, 0 or more"),
            ("provided string was not `true` or `false`", "must be true or false"),
            ("UUID parsing failed: invalid length: expected length 32", "must be a UUID"),
            ("must be a host", "must be a host"),
        ] {
            assert_eq!(reworded(message), detail, "{message}");
        }
    }

    #[test]
    fn errors_about_names_name_the_field() {
        for (path, message, detail) in [
            (ROOT_PATH, "missing field `host`", "host: is required"),
            ("host", "duplicate field `host`", "host: is given twice"),
            ("rules", "unknown field `x`, expected `include`", "rules.x: is not a field of this request"),
            ("rules.x", "unknown field `x`, there are no fields", "rules.x: is not a field of this request"),
            (ROOT_PATH, "invalid type: null, expected a map", "body: must be an object, not null"),
        ] {
            assert_eq!(invalid_field(RequestPart::Body, path, message).detail(), detail);
        }
        let unknown = invalid_field(RequestPart::Query, "page", "unknown field `page`, expected `limit`");
        assert_eq!(unknown.detail(), "page: is not a parameter of this request");
    }
}
