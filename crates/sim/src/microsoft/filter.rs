//! `$filter` and `$orderby` of messages.

use jiff::Timestamp;

use super::account::GraphMessage;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageProperty {
    Received,
    Modified,
    IsDraft,
    IsRead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ComparisonOperator {
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
    LessOrEqual,
    Less,
}

/// A filter of messages; all conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageFilter(Vec<(MessageProperty, ComparisonOperator, i64)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageOrder {
    pub field: MessageProperty,
    pub is_descending: bool,
}

impl Default for MessageOrder {
    fn default() -> Self {
        Self { field: MessageProperty::Received, is_descending: true }
    }
}

impl MessageProperty {
    fn read(name: &str) -> Option<Self> {
        Some(match name {
            "receivedDateTime" => Self::Received,
            "lastModifiedDateTime" => Self::Modified,
            "isDraft" => Self::IsDraft,
            "isRead" => Self::IsRead,
            _ => return None,
        })
    }

    pub fn of(self, message: &GraphMessage) -> i64 {
        match self {
            Self::Received => message.received,
            Self::Modified => message.modified,
            Self::IsDraft => i64::from(message.is_draft),
            Self::IsRead => i64::from(message.is_read),
        }
    }
}

impl MessageFilter {
    pub fn read(text: &str) -> Result<Self, String> {
        text.split(" and ").map(condition).collect::<Result<_, _>>().map(Self)
    }

    pub fn matches(&self, message: &GraphMessage) -> bool {
        self.0.iter().all(|(field, comparison, wanted)| comparison.holds(field.of(message), *wanted))
    }

    /// Returns whether the filter is `receivedDateTime ge` or `gt`, the only one that delta queries take.
    pub fn is_since_received(&self) -> bool {
        use ComparisonOperator::{Greater, GreaterOrEqual};
        matches!(self.0[..], [(MessageProperty::Received, GreaterOrEqual | Greater, _)])
    }

    /// Returns whether the order is allowed: its property must be the filter's first.
    pub fn allows(&self, order: &MessageOrder) -> bool {
        self.0.first().is_none_or(|(field, _, _)| *field == order.field)
    }
}

impl ComparisonOperator {
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

fn invalid_clause(text: &str) -> String {
    format!("Invalid filter clause: {text:?}")
}

fn condition(text: &str) -> Result<(MessageProperty, ComparisonOperator, i64), String> {
    let mut words = text.split_whitespace();
    let (Some(field), Some(comparison), Some(value), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(invalid_clause(text));
    };
    let field = MessageProperty::read(field).ok_or_else(|| invalid_clause(text))?;
    let comparison = match comparison {
        "eq" => ComparisonOperator::Equal,
        "ne" => ComparisonOperator::NotEqual,
        "ge" => ComparisonOperator::GreaterOrEqual,
        "gt" => ComparisonOperator::Greater,
        "le" => ComparisonOperator::LessOrEqual,
        "lt" => ComparisonOperator::Less,
        _ => return Err(invalid_clause(text)),
    };
    let value = match (field, value) {
        (MessageProperty::IsDraft | MessageProperty::IsRead, "true") => 1,
        (MessageProperty::IsDraft | MessageProperty::IsRead, "false") => 0,
        (MessageProperty::Received | MessageProperty::Modified, instant) => {
            instant.parse::<Timestamp>().map_err(|_| invalid_clause(text))?.as_second()
        }
        _ => return Err(invalid_clause(text)),
    };
    Ok((field, comparison, value))
}

impl MessageOrder {
    pub fn read(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let field = words.next().and_then(MessageProperty::read);
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
    fn malformed_filter_is_refused() {
        for text in [
            "receivedDateTime ge yesterday",
            "receivedDateTime",
            "subject eq 'x'",
            "isDraft eq 1",
            "receivedDateTime ge 2026-02-01T00:00:00Z or isRead eq true",
        ] {
            assert!(MessageFilter::read(text).is_err(), "{text}");
        }
        assert!(MessageOrder::read("receivedDateTime down").is_err());
    }

    #[test]
    fn order_must_match_the_first_filter() {
        let filter = MessageFilter::read("isDraft eq false and receivedDateTime gt 2026-02-01T00:00:00Z").unwrap();

        assert!(!filter.allows(&MessageOrder::read("receivedDateTime desc").unwrap()));
        assert!(filter.allows(&MessageOrder::read("isDraft").unwrap()));
        assert!(!filter.is_since_received());
        assert!(MessageFilter::read("receivedDateTime ge 2026-02-01T00:00:00Z").unwrap().is_since_received());
    }
}
