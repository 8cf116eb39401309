//! The Gmail search operators that the simulator supports. Others are refused.

use super::account::{GmailAccount, GmailMessage};
use super::labels::LabelId;
use crate::letter_pool::LetterPool;

#[derive(Debug, Clone, PartialEq)]
enum SearchCondition {
    /// Seconds since 1970. As at Gmail, `after` is inclusive and `before` exclusive.
    After(i64),
    Before(i64),
    Label(Option<LabelId>),
    Anywhere,
    MessageId(String),
    From(String),
    Subject(String),
    HasAttachment,
}

/// A parsed search; all conditions must hold.
#[derive(Debug, Default)]
pub struct Search {
    conditions: Vec<(SearchCondition, bool)>,
}

impl Search {
    /// Parses a search. The error names what is not supported.
    pub fn parse(text: &str, account: &GmailAccount) -> Result<Self, String> {
        let mut search = Self::default();
        for word in words(text) {
            let (bare, is_wanted) = match word.strip_prefix('-') {
                Some(bare) => (bare, false),
                None => (word.as_str(), true),
            };
            let (operator, value) = bare.split_once(':').ok_or_else(|| format!("{word:?} has no operator"))?;
            search.conditions.push(condition(&operator.to_lowercase(), value, is_wanted, account)?);
        }
        Ok(search)
    }

    /// Returns whether the search includes a label that listings leave out by default.
    pub fn reaches(&self, label: LabelId) -> bool {
        let reaching = [SearchCondition::Anywhere, SearchCondition::Label(Some(label))];
        self.conditions.iter().any(|(condition, is_wanted)| *is_wanted && reaching.contains(condition))
    }

    pub fn matches(&self, message: &GmailMessage, letters: &LetterPool) -> bool {
        self.conditions.iter().all(|(condition, is_wanted)| condition.holds(message, letters) == *is_wanted)
    }
}

fn parse_seconds(value: &str) -> Result<i64, String> {
    value.parse().map_err(|_| format!("{value:?} is not in seconds since 1970"))
}

fn condition(
    operator: &str,
    value: &str,
    is_wanted: bool,
    account: &GmailAccount,
) -> Result<(SearchCondition, bool), String> {
    let condition = match operator {
        "after" => SearchCondition::After(parse_seconds(value)?),
        "before" => SearchCondition::Before(parse_seconds(value)?),
        "in" if value.eq_ignore_ascii_case("anywhere") => SearchCondition::Anywhere,
        "in" => {
            let label = match value.to_lowercase().as_str() {
                "inbox" => LabelId::INBOX,
                "sent" => LabelId::SENT,
                "draft" | "drafts" => LabelId::DRAFT,
                "chat" | "chats" => LabelId::CHAT,
                "spam" => LabelId::SPAM,
                "trash" => LabelId::TRASH,
                _ => return Err(format!("in:{value} is not known")),
            };
            SearchCondition::Label(Some(label))
        }
        // In a search, a label's name has hyphens in place of spaces.
        "label" => SearchCondition::Label(account.labels.ids().find(|id| {
            id.to_string().eq_ignore_ascii_case(value)
                || account
                    .labels
                    .name(*id)
                    .replace([' ', '/'], "-")
                    .eq_ignore_ascii_case(&value.replace([' ', '/'], "-"))
        })),
        "is" => match value.to_lowercase().as_str() {
            "unread" => SearchCondition::Label(Some(LabelId::UNREAD)),
            "read" => return Ok((SearchCondition::Label(Some(LabelId::UNREAD)), !is_wanted)),
            "starred" => SearchCondition::Label(Some(LabelId::STARRED)),
            _ => return Err(format!("is:{value} is not known")),
        },
        "rfc822msgid" => SearchCondition::MessageId(value.trim_matches(['<', '>']).to_owned()),
        "from" => SearchCondition::From(value.to_lowercase()),
        "subject" => SearchCondition::Subject(value.to_lowercase()),
        "has" if value == "attachment" => SearchCondition::HasAttachment,
        _ => return Err(format!("{operator}:{value} is not known")),
    };
    Ok((condition, is_wanted))
}

impl SearchCondition {
    fn holds(&self, message: &GmailMessage, letters: &LetterPool) -> bool {
        match self {
            Self::After(seconds) => message.internal_date >= seconds.saturating_mul(1_000),
            Self::Before(seconds) => message.internal_date < seconds.saturating_mul(1_000),
            Self::Label(label) => label.is_some_and(|label| message.labels.contains(&label)),
            Self::Anywhere => true,
            Self::MessageId(id) => letters.message_id(&message.content).as_deref() == Some(id),
            Self::From(text) => letters.facts(&message.content).from.contains(text),
            Self::Subject(text) => letters.facts(&message.content).subject.contains(text),
            Self::HasAttachment => letters.facts(&message.content).has_attachment,
        }
    }
}

/// Splits at spaces, except within double quotes.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for letter in text.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            letter if letter.is_whitespace() && !is_quoted => words.push(String::new()),
            letter => words.last_mut().into_iter().for_each(|word| word.push(letter)),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::super::account::NewGmailMessage;
    use super::*;
    use crate::letter_pool::Content;

    fn found(account: &GmailAccount, letters: &LetterPool, query: &str) -> usize {
        let search = Search::parse(query, account).unwrap();
        account.messages.values().filter(|message| search.matches(message, letters)).count()
    }

    #[test]
    fn search_matches_its_conditions() {
        let letters = LetterPool::new(1, 2);
        let mut account = GmailAccount::new(1);
        let travel = account.labels.create("My Travel".into()).unwrap();
        let raw = b"From: Ann <ann@x.test>\r\nSubject: Two words\r\nMessage-ID: <1@x.test>\r\n\r\nHi\r\n";
        let content = Content::Own(bytes::Bytes::from_static(raw));
        let labels = vec![LabelId::INBOX, LabelId::UNREAD, travel];
        account.add(NewGmailMessage { content: content.clone(), labels, internal_date: 5_000, thread: None });
        account.add(NewGmailMessage { content, labels: vec![LabelId::SPAM], internal_date: 9_500, thread: None });

        for (query, count) in [
            ("", 2),
            ("after:5 before:6", 1),
            ("after:6", 1),
            ("in:inbox", 1),
            ("-in:inbox", 1),
            ("-in:chats -in:drafts", 2),
            ("label:my-travel is:unread", 1),
            ("label:nothing", 0),
            ("is:read", 1),
            ("-is:read", 1),
            ("rfc822msgid:<1@x.test>", 2),
            ("from:ANN@x.test subject:\"two words\"", 2),
            ("has:attachment", 0),
        ] {
            assert_eq!(found(&account, &letters, query), count, "{query}");
        }
        for unknown in ["hello", "larger:5M", "in:snoozed", "is:muted", "after:2024/01/01", "filename:x"] {
            assert!(Search::parse(unknown, &account).is_err(), "{unknown}");
        }
    }

    #[test]
    fn search_reaches_spam_only_on_request() {
        let account = GmailAccount::new(1);
        let reaches = |query| Search::parse(query, &account).unwrap().reaches(LabelId::SPAM);

        assert!(reaches("in:spam") && reaches("in:anywhere") && reaches("label:spam"));
        assert!(!reaches("in:trash") && !reaches("-in:spam") && !reaches(""));
    }
}
