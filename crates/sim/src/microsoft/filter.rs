//! `$filter` and `$orderby`, as far as mail needs them.

use jiff::Timestamp;

use super::account::Message;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Received,
    Modified,
    IsDraft,
    IsRead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
    LessOrEqual,
    Less,
}

/// All of it must be so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter(Vec<(Field, Comparison, i64)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    pub field: Field,
    pub is_descending: bool,
}

impl Default for Order {
    fn default() -> Self {
        Self { field: Field::Received, is_descending: true }
    }
}

impl Field {
    fn read(name: &str) -> Option<Self> {
        Some(match name {
            "receivedDateTime" => Self::Received,
            "lastModifiedDateTime" => Self::Modified,
            "isDraft" => Self::IsDraft,
            "isRead" => Self::IsRead,
            _ => return None,
        })
    }

    pub fn of(self, message: &Message) -> i64 {
        match self {
            Self::Received => message.received,
            Self::Modified => message.modified,
            Self::IsDraft => i64::from(message.is_draft),
            Self::IsRead => i64::from(message.is_read),
        }
    }
}

impl Filter {
    pub fn read(text: &str) -> Result<Self, String> {
        text.split(" and ").map(condition).collect::<Result<_, _>>().map(Self)
    }

    pub fn matches(&self, message: &Message) -> bool {
        self.0.iter().all(|(field, comparison, wanted)| comparison.holds(field.of(message), *wanted))
    }

    /// The only filter that a delta query knows: `receivedDateTime ge` or `gt`.
    pub fn is_since_received(&self) -> bool {
        use Comparison::{Greater, GreaterOrEqual};
        matches!(self.0[..], [(Field::Received, GreaterOrEqual | Greater, _)])
    }

    /// What is ordered by must be filtered by, first.
    pub fn allows(&self, order: &Order) -> bool {
        self.0.first().is_none_or(|(field, _, _)| *field == order.field)
    }
}

impl Comparison {
    fn holds(self, given: i64, wanted: i64) -> bool {
        match self {
            Self::Equal => given == wanted,
            Self::NotEqual => given != wanted,
            Self::GreaterOrEqual => given >= wanted,
            Self::Greater => given > wanted,
            Self::LessOrEqual => given <= wanted,
            Self::Less => given < wanted,
        }
    }
}

fn condition(text: &str) -> Result<(Field, Comparison, i64), String> {
    let wrong = || format!("Invalid filter clause: {text:?}");
    let mut words = text.split_whitespace();
    let (Some(field), Some(comparison), Some(value), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(wrong());
    };
    let field = Field::read(field).ok_or_else(wrong)?;
    let comparison = match comparison {
        "eq" => Comparison::Equal,
        "ne" => Comparison::NotEqual,
        "ge" => Comparison::GreaterOrEqual,
        "gt" => Comparison::Greater,
        "le" => Comparison::LessOrEqual,
        "lt" => Comparison::Less,
        _ => return Err(wrong()),
    };
    let value = match (field, value) {
        (Field::IsDraft | Field::IsRead, "true") => 1,
        (Field::IsDraft | Field::IsRead, "false") => 0,
        (Field::Received | Field::Modified, instant) => instant.parse::<Timestamp>().map_err(|_| wrong())?.as_second(),
        _ => return Err(wrong()),
    };
    Ok((field, comparison, value))
}

impl Order {
    pub fn read(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let field = words.next().and_then(Field::read);
        let is_descending = match words.next() {
            None | Some("asc") => Some(false),
            Some("desc") => Some(true),
            Some(_) => None,
        };
        match (field, is_descending, words.next()) {
            (Some(field), Some(is_descending), None) => Ok(Self { field, is_descending }),
            _ => Err(format!("Invalid orderby clause: {text:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_filter_is_told() {
        for text in [
            "receivedDateTime ge yesterday",
            "receivedDateTime",
            "subject eq 'x'",
            "isDraft eq 1",
            "receivedDateTime ge 2026-02-01T00:00:00Z or isRead eq true",
        ] {
            assert!(Filter::read(text).is_err(), "{text}");
        }
        assert!(Order::read("receivedDateTime down").is_err());
    }

    #[test]
    fn what_is_ordered_by_must_be_filtered_by_first() {
        let filter = Filter::read("isDraft eq false and receivedDateTime gt 2026-02-01T00:00:00Z").unwrap();

        assert!(!filter.allows(&Order::read("receivedDateTime desc").unwrap()));
        assert!(filter.allows(&Order::read("isDraft").unwrap()));
        assert!(!filter.is_since_received());
        assert!(Filter::read("receivedDateTime ge 2026-02-01T00:00:00Z").unwrap().is_since_received());
    }
}
