//! Which messages there are.

use jiff::civil::Date;

use super::answer::Answer;
use super::command::Command;
use super::error::{ImapError, Step};
use super::fetch::MONTHS;
use super::lex::number;
use super::uid_set::Gathered;
use super::{Client, UidSet};

/// Which messages are looked for: all, or those that meet each condition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Search {
    /// Arrived on this day, by the server's clock, or later.
    pub since: Option<Date>,
    pub within: Option<UidSet>,
}

impl Client {
    /// The UIDs of the messages that meet it.
    pub async fn search(&mut self, search: &Search) -> Result<UidSet, ImapError> {
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
        let mut found = Gathered::new(self.settings.limits.ranges);
        let mut refused = None;
        self.wire.most = self.settings.limits.search;
        self.run_all(
            Step::Search,
            commands,
            |answer| note(answer, &mut found),
            |_, refusal| {
                refused = refused.take().or(refusal);
                Ok(())
            },
        )
        .await?;
        let found = found.into_set();
        // `n:*` also finds the last message before n.
        let found = search.within.as_ref().map_or(found.clone(), |within| found.intersection(within));
        refused.map_or(Ok(found), |refusal| Err(ImapError::Refused(refusal)))
    }
}

fn note(answer: &Answer<'_>, found: &mut Gathered) -> Result<bool, ImapError> {
    if let Some(mut words) = answer.data("SEARCH") {
        loop {
            words.spaces();
            // A `(MODSEQ 5)` may close the list.
            let Some(word) = words.atom() else { return Ok(true) };
            found.add_one(number(word).ok_or(ImapError::Protocol("a SEARCH that makes no sense"))?)?;
        }
    }
    let Some(mut words) = answer.data("ESEARCH") else { return Ok(false) };
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
        let set = words.atom().and_then(UidSet::parse).ok_or(ImapError::Protocol("an ESEARCH that makes no sense"))?;
        found.add(set.ranges())?;
    }
}
