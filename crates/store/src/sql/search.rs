//! Finding emails by our own tokens, the same set on both databases.

use domain::search::{GAP, Phrase, Query};
use domain::{EmailId, MailboxId};
use uuid::Uuid;

use super::ingest::search_second;
use crate::{Dialect, StoreError, TenantStore, Value, params};

/// What to find besides the query, and how much of it.
#[derive(Debug, Clone, Default)]
pub struct Page {
    pub mailbox: Option<MailboxId>,
    pub start: Option<Start>,
    pub limit: u64,
}

/// Where in the list to begin.
#[derive(Debug, Clone, Copy)]
pub enum Start {
    At(EmailId),
    After(EmailId),
}

impl Start {
    /// How rows compare with the given email when the newest come first.
    pub(super) fn comparison(self) -> (&'static str, EmailId) {
        match self {
            Self::At(id) => ("<=", id),
            Self::After(id) => ("<", id),
        }
    }
}

impl TenantStore {
    /// Ids of matching emails that are not deleted, newest first (by the second, on SQLite).
    pub async fn search(&self, query: &Query, page: &Page) -> Result<Vec<EmailId>, StoreError> {
        let (sql, params) = match self.store.dialect() {
            Dialect::Sqlite => {
                let mut sql = Sql::default();
                (sql.sqlite(self, query, page), sql.params)
            }
            Dialect::Postgres => postgres(query, page),
        };
        self.query(sql, params).await?.iter().map(|row| row.get(0)).collect()
    }
}

/// Through the function that may use the text index under row security; see migrations/each_time/2_search.
fn postgres(query: &Query, page: &Page) -> (String, Vec<Value>) {
    let labels = |labels: &[String]| Value::from(labels.iter().map(|label| label.to_lowercase()).collect::<Vec<_>>());
    let (start, is_start_found) = match page.start {
        None => (None, false),
        Some(Start::At(id)) => (Some(id), true),
        Some(Start::After(id)) => (Some(id), false),
    };
    let params = params![
        query.has_text().then(|| tsquery(query)),
        page.mailbox,
        query.after,
        query.before,
        labels(&query.labels),
        labels(&query.not_labels),
        start,
        is_start_found,
        page.limit
    ];
    ("select mailroom_search($1, $2, $3, $4, $5, $6, $7, $8, $9)".to_owned(), params)
}

/// A statement under construction.
#[derive(Default)]
struct Sql {
    params: Vec<Value>,
    conditions: Vec<String>,
}

impl Sql {
    /// Binds a value and gives its place.
    fn bind(&mut self, value: impl Into<Value>) -> String {
        self.params.push(value.into());
        format!("${}", self.params.len())
    }

    fn sqlite(&mut self, tenant: &TenantStore, query: &Query, page: &Page) -> String {
        let id = self.bind(tenant.id);
        let number = format!("(select number from tenants where id = {id})");
        // The rows of one tenant are one range of the index; see migrations/0001.
        let range = format!("between {number} << 47 and (({number} + 1) << 47) - 1");
        let mut from = "emails e".to_owned();
        let mut order = "e.id";
        if !query.all_of.is_empty() {
            // `cross join` pins the order: the index first, then the few emails it names.
            from = "email_search s cross join emails e on e.search_rowid = s.rowid".to_owned();
            order = "s.rowid";
            let matching = self.bind(fts5(query));
            self.conditions.push(format!("email_search match {matching} and s.rowid {range}"));
        } else if !query.none_of.is_empty() {
            let none_of: Vec<String> = query.none_of.iter().map(fts5_phrase).collect();
            let matching = self.bind(none_of.join(" OR "));
            self.conditions.push(format!(
                "e.search_rowid not in (select rowid from email_search where email_search match {matching} and rowid {range})"
            ));
        }
        self.conditions.push(format!("e.tenant_id = {id} and e.deleted_at is null"));
        if let Some((than, start)) = page.start.map(Start::comparison) {
            let (place, second) = (self.bind(start), self.bind(search_second(start)));
            self.conditions.push(match order {
                "e.id" => format!("e.id {than} {place}"),
                // An email that is gone meanwhile still tells by its id where the list stood.
                _ => format!(
                    "s.rowid {than} coalesce((select search_rowid from emails where tenant_id = {id} and id = {place}),
                                             ({number} << 47) | ({second} << 16))"
                ),
            });
        }
        self.narrow(query, page);
        self.finish(&from, order, page)
    }

    /// Mailbox, dates and labels.
    fn narrow(&mut self, query: &Query, page: &Page) {
        if let Some(mailbox) = page.mailbox {
            let mailbox = self.bind(mailbox);
            self.conditions.push(format!("e.mailbox_id = {mailbox}"));
        }
        if let Some(after) = query.after {
            let after = self.bind(after);
            self.conditions.push(format!("e.received_at >= {after}"));
        }
        if let Some(before) = query.before {
            let before = self.bind(before);
            self.conditions.push(format!("e.received_at < {before}"));
        }
        let labels = query.labels.iter().map(|label| (label, ""));
        for (label, negation) in labels.chain(query.not_labels.iter().map(|label| (label, "not "))) {
            // Compared in lower case, whole or by the last segment of the path.
            let name = self.bind(label.to_lowercase());
            self.conditions.push(format!(
                "{negation}exists (select 1 from placements p join folders f on f.tenant_id = p.tenant_id and f.id = p.folder_id
                  where p.tenant_id = e.tenant_id and p.email_id = e.id and p.is_live
                  and (f.name_key = {name} or f.last_segment_key = {name}))"
            ));
        }
    }

    fn finish(&mut self, from: &str, order: &str, page: &Page) -> String {
        let limit = self.bind(page.limit);
        let conditions = self.conditions.join(" and ");
        format!("select e.id from {from} where {conditions} order by {order} desc limit {limit}")
    }
}

/// `(all) NOT (none)` in FTS5's language; every token is quoted, so no text can be an operator.
fn fts5(query: &Query) -> String {
    let all_of: Vec<String> = query.all_of.iter().map(fts5_phrase).collect();
    let none_of: Vec<String> = query.none_of.iter().map(fts5_phrase).collect();
    match none_of.is_empty() {
        true => all_of.join(" AND "),
        false => format!("({}) NOT ({})", all_of.join(" AND "), none_of.join(" OR ")),
    }
}

fn fts5_phrase(phrase: &Phrase) -> String {
    let words = phrase.tokens.join(" ").replace('"', "\"\"");
    format!("\"{words}\"{}", if phrase.is_prefix { "*" } else { "" })
}

/// Without the tenant's lexeme, which the database adds itself.
fn tsquery(query: &Query) -> String {
    let mut clauses: Vec<String> = query.all_of.iter().map(tsquery_phrase).collect();
    clauses.extend(query.none_of.iter().map(|phrase| format!("!{}", tsquery_phrase(phrase))));
    clauses.join(" & ")
}

fn tsquery_phrase(phrase: &Phrase) -> String {
    if phrase.tokens.iter().all(String::is_empty) {
        return format!("'{GAP}'"); // an empty lexeme is a syntax error; a gap is in no index, so nothing matches
    }
    let quoted = |token: &String| format!("'{}'", token.replace('\\', "\\\\").replace('\'', "''"));
    let words: Vec<String> = phrase.tokens.iter().map(quoted).collect();
    format!("({}{})", words.join(" <-> "), if phrase.is_prefix { ":*" } else { "" })
}

/// One per email, so that a search on PostgreSQL reads one tenant's entries only. No word begins with a colon, so no
/// prefix finds it.
pub(crate) fn tenant_lexeme(tenant: Uuid) -> String {
    format!(":tenant:{}", tenant.simple())
}
