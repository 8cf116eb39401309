//! Searches messages (UID SEARCH).

use jiff::civil::Date;

use super::command::Command;
use super::error::{ImapError, Step};
use super::fetch::MONTHS;
use super::lex::number;
use super::response::ServerResponse;
use super::uid_set::UidCollector;
use super::{Client, UidSet};

/// Criteria of a search: all messages, or those that meet each criterion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchCriteria {
    /// Received on this day, by the server's clock, or later.
    pub since: Option<Date>,
    pub within: Option<UidSet>,
}

impl Client {
    /// Returns the UIDs of the matching messages.
    pub async fn search(&mut self, search: &SearchCriteria) -> Result<UidSet, ImapError> {
        let since = search.since.map(|day| {
            let month = MONTHS[usize::from(day.month().unsigned_abs()) - 1];
            format!("SINCE {}-{month}-{:04}", day.day(), day.year())
        });
        let returned = if self.capabilities.has("ESEARCH") { "RETURN (ALL) " } else { "" };
        let conditions: Vec<String> = match &search.within {
            None => vec![since.unwrap_or_else(|| "ALL".to_owned())],
            Some(within) => {
                let since = since.map(|since| format!(" {since}")).unwrap_or_default();
                within.chunks().iter().map(|chunk| format!("UID {chunk}{since}")).collect()
            }
        };
        let commands = conditions.iter().map(|condition| Command::new(&format!("UID SEARCH {returned}{condition}")));
        let commands = commands.collect();
        let mut found = UidCollector::new(self.settings.limits.ranges);
        let mut refused = None;
        self.wire.max_response_bytes = self.settings.limits.search_bytes;
        self.run_pipelined(
            Step::Search,
            commands,
            |response| note(response, &mut found),
            |_, refusal| {
                refused = refused.take().or(refusal);
                Ok(())
            },
        )
        .await?;
        let found = found.into_set();
        // `n:*` also matches the last message before n.
        let found = search.within.as_ref().map_or(found.clone(), |within| found.intersection(within));
        refused.map_or(Ok(found), |refusal| Err(ImapError::Refused(refusal)))
    }
}

fn note(response: &ServerResponse<'_>, found: &mut UidCollector) -> Result<bool, ImapError> {
    if let Some(mut words) = response.data("SEARCH") {
        loop {
            words.spaces();
            // The list may end with `(MODSEQ 5)`.
            let Some(word) = words.atom() else { return Ok(true) };
            found.add_one(number(word).ok_or(ImapError::Protocol("a SEARCH response is malformed"))?)?;
        }
    }
    let Some(mut words) = response.data("ESEARCH") else { return Ok(false) };
    if words.peek() == Some(b'(') {
        words.value();
    }
    loop {
        words.spaces();
        let Some(word) = words.atom() else { return Ok(true) };
        if word.eq_ignore_ascii_case(b"UID") {
            continue;
        }
        words.spaces();
        if !word.eq_ignore_ascii_case(b"ALL") {
            words.value();
            continue;
        }
        let set =
            words.atom().and_then(UidSet::parse).ok_or(ImapError::Protocol("an ESEARCH response is malformed"))?;
        found.add(set.ranges())?;
    }
}
