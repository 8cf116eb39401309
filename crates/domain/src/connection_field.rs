//! The fields that describe how a mailbox is reached. Each provider's folder declares its own; the requests of the API, the
//! options of commands and what both say of an error are made from them.

use serde_json::Value;

use crate::Secret;

/// The longest text of one line: longer than any name of a host or a user.
const MAX_TEXT_BYTES: usize = 1000;

/// The longest secret or document. Certificates of an authority and its parents fit many times.
const MAX_SECRET_BYTES: usize = 64 << 10;

/// A field of a connection.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionField {
    /// Its name in requests, and in errors.
    pub name: &'static str,
    pub kind: FieldKind,
    /// What it is, for the description of the API.
    pub help: Option<&'static str>,
    pub example: Option<&'static str>,
    /// Whether a connected mailbox may get another value.
    pub is_changeable: bool,
    /// Why only the operator may set it.
    pub operator_only: Option<&'static str>,
    pub option: FieldOption,
}

/// What values a field has.
#[derive(Debug, Clone, Copy)]
pub enum FieldKind {
    /// One line of text.
    Text,
    Number {
        min: u64,
        max: u64,
    },
    Bool,
    /// One of these words.
    Choice(&'static [FieldChoice]),
    /// A password or token: it is stored sealed, and never shown.
    Secret,
    /// The text of a file, such as a certificate.
    Document,
}

/// A word that a field may have as its value.
#[derive(Debug, Clone, Copy)]
pub struct FieldChoice {
    pub word: &'static str,
    pub help: &'static str,
}

/// How commands take a field.
#[derive(Debug, Clone, Copy)]
pub struct FieldOption {
    /// Without the dashes. A secret or document is given as a file.
    pub name: &'static str,
    pub value_name: &'static str,
    pub help: &'static str,
    /// What the file holds, for sentences: `a refresh token`.
    pub noun: &'static str,
    /// The help of the option that gives a connected mailbox another secret.
    pub replacement_help: Option<&'static str>,
    pub default: Option<&'static str>,
    pub is_required: bool,
    /// The field without which this one is required.
    pub required_unless: Option<&'static str>,
    /// Fields that cannot be given with it.
    pub conflicts_with: &'static [&'static str],
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldValue {
    Text(String),
    Number(u64),
    Bool(bool),
    Secret(Secret<String>),
}

impl FieldOption {
    /// An option that nothing else depends on.
    pub const fn new(name: &'static str, value_name: &'static str, help: &'static str) -> Self {
        Self {
            name,
            value_name,
            help,
            noun: "",
            replacement_help: None,
            default: None,
            is_required: false,
            required_unless: None,
            conflicts_with: &[],
        }
    }
}

impl ConnectionField {
    /// A field that may be given at any time, by anybody.
    pub const fn new(name: &'static str, kind: FieldKind, option: FieldOption) -> Self {
        Self { name, kind, help: None, example: None, is_changeable: true, operator_only: None, option }
    }

    pub fn is_secret(&self) -> bool {
        matches!(self.kind, FieldKind::Secret)
    }

    /// Returns whether commands take the name of a file that has the value.
    pub fn is_file(&self) -> bool {
        matches!(self.kind, FieldKind::Secret | FieldKind::Document)
    }

    /// Reads a value. Fails with what completes the sentence that begins with the name of the field; nothing of a text is
    /// in it, which may be a secret.
    pub fn read(&self, value: &Value) -> Result<FieldValue, String> {
        match self.kind {
            FieldKind::Text => {
                let text = text(value)?;
                let is_plain = !text.is_empty() && text.len() <= MAX_TEXT_BYTES && !text.chars().any(char::is_control);
                is_plain
                    .then(|| FieldValue::Text(text.to_owned()))
                    .ok_or_else(|| format!("must have 1 to {MAX_TEXT_BYTES} bytes on one line"))
            }
            FieldKind::Number { min, max } => {
                let number = value.as_u64().filter(|number| (min..=max).contains(number));
                let expected = || format!("must be a whole number from {min} to {max}, not {}", shown(value));
                number.map(FieldValue::Number).ok_or_else(expected)
            }
            FieldKind::Bool => {
                let given = value.as_bool().map(FieldValue::Bool);
                given.ok_or_else(|| format!("must be true or false, not {}", shown(value)))
            }
            FieldKind::Choice(choices) => {
                let word = value.as_str().filter(|word| choices.iter().any(|choice| choice.word == *word));
                word.map(|word| FieldValue::Text(word.to_owned())).ok_or_else(|| must_be_one_of(choices))
            }
            FieldKind::Secret => {
                let text = text(value)?;
                let is_line = !text.is_empty() && text.len() <= MAX_SECRET_BYTES && !text.contains(['\0', '\r', '\n']);
                is_line
                    .then(|| FieldValue::Secret(Secret::new(text.to_owned())))
                    .ok_or_else(|| format!("must have 1 to {MAX_SECRET_BYTES} bytes on one line"))
            }
            FieldKind::Document => {
                let text = text(value)?;
                (text.len() <= MAX_SECRET_BYTES)
                    .then(|| FieldValue::Text(text.to_owned()))
                    .ok_or_else(|| format!("must have at most {MAX_SECRET_BYTES} bytes"))
            }
        }
    }
}

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("must be a text, not {}", shown(value)))
}

fn must_be_one_of(choices: &[FieldChoice]) -> String {
    let words: Vec<&str> = choices.iter().map(|choice| choice.word).collect();
    match words.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("must be {} or {last}", first.join(", ")),
        words => format!("must be {}", words.concat()),
    }
}

/// Shows null, numbers and booleans as they were given; texts may be secrets.
fn shown(value: &Value) -> String {
    match value {
        Value::String(_) => "a text".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WORDS: &[FieldChoice] = &[
        FieldChoice { word: "a", help: "" },
        FieldChoice { word: "b", help: "" },
        FieldChoice { word: "c", help: "" },
    ];

    fn read(kind: FieldKind, value: Value) -> Result<FieldValue, String> {
        ConnectionField::new("x", kind, FieldOption::new("x", "X", "")).read(&value)
    }

    #[test]
    fn values_are_read_by_their_kind() {
        let text = |text: &str| FieldValue::Text(text.to_owned());
        for (kind, value, expected) in [
            (FieldKind::Text, json!("me"), Ok(text("me"))),
            (FieldKind::Text, json!("a\nb"), Err("must have 1 to 1000 bytes on one line")),
            (FieldKind::Text, json!(""), Err("must have 1 to 1000 bytes on one line")),
            (FieldKind::Text, json!(null), Err("must be a text, not null")),
            (FieldKind::Number { min: 1, max: 9 }, json!(9), Ok(FieldValue::Number(9))),
            (FieldKind::Number { min: 1, max: 9 }, json!(0), Err("must be a whole number from 1 to 9, not 0")),
            (FieldKind::Number { min: 1, max: 9 }, json!("9"), Err("must be a whole number from 1 to 9, not a text")),
            (FieldKind::Bool, json!(true), Ok(FieldValue::Bool(true))),
            (FieldKind::Bool, json!([]), Err("must be true or false, not a list")),
            (FieldKind::Choice(WORDS), json!("b"), Ok(text("b"))),
            (FieldKind::Choice(WORDS), json!("d"), Err("must be a, b or c")),
            (FieldKind::Secret, json!("p w"), Ok(FieldValue::Secret(Secret::new("p w".to_owned())))),
            (FieldKind::Secret, json!("p\nw"), Err("must have 1 to 65536 bytes on one line")),
            (FieldKind::Document, json!("a\nb"), Ok(text("a\nb"))),
        ] {
            assert_eq!(read(kind, value.clone()), expected.map_err(str::to_owned), "{kind:?} {value}");
        }
        assert!(read(FieldKind::Document, json!("x".repeat(MAX_SECRET_BYTES + 1))).is_err());
    }
}
