//! Search for emails by our own tokens, with the same results on both databases.

use domain::search::{DeletedEmails, PHRASE_GAP, Phrase, SearchQuery};
use domain::{EmailId, MailboxId};
use uuid::Uuid;

use super::ingest::search_second;
use crate::{Dialect, StoreError, TenantStore, Value, params};

/// The page of a search: where it begins, how long it is, and of which mailbox.
#[derive(Debug, Clone, Default)]
pub struct SearchPage {
    pub mailbox: Option<MailboxId>,
    pub start: Option<PageStart>,
    pub limit: u64,
}

/// The start of a page in the list.
#[derive(Debug, Clone, Copy)]
pub enum PageStart {
    At(EmailId),
    After(EmailId),
}

impl PageStart {
    /// Returns how rows compare with the given email when the newest come first.
    pub(super) fn comparison(self) -> (&'static str, EmailId) {
        match self {
            Self::At(id) => ("<=", id),
            Self::After(id) => ("<", id),
        }
    }
}

impl TenantStore {
    /// Returns the ids of matching emails, newest first (by the second, on SQLite).
    pub async fn search(&self, query: &SearchQuery, page: &SearchPage) -> Result<Vec<EmailId>, StoreError> {
        // Few emails are deleted, and an index lists them; it is not one of the text index.
        let lists_deleted = query.deleted == DeletedEmails::Only && !query.has_text();
        let (sql, params) = match self.store.dialect() {
            Dialect::Postgres if !lists_deleted => postgres(query, page),
            _ => {
                let mut sql = SqlBuilder::default();
                (sql.build(self, query, page), sql.params)
            }
        };
        self.query(sql, params).await?.iter().map(|row| row.get(0)).collect()
    }
}

/// Returns a call of the function that may use the text index under row security; see migrations/each_time/2_search.
fn postgres(query: &SearchQuery, page: &SearchPage) -> (String, Vec<Value>) {
    let (start, is_start_found) = match page.start {
        None => (None, false),
        Some(PageStart::At(id)) => (Some(id), true),
        Some(PageStart::After(id)) => (Some(id), false),
    };
    let params = params![
        query.has_text().then(|| tsquery(query)),
        page.mailbox,
        query.after,
        query.before,
        lower_case(&query.labels),
        lower_case(&query.not_labels),
        start,
        is_start_found,
        page.limit,
        match query.deleted {
            DeletedEmails::Hidden => Value::from(true),
            DeletedEmails::Included => Value::Null,
            DeletedEmails::Only => Value::from(false),
        }
    ];
    ("select mailroom_find_emails($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)".to_owned(), params)
}

fn lower_case(labels: &[String]) -> Vec<String> {
    labels.iter().map(|label| label.to_lowercase()).collect()
}

/// A statement under construction.
#[derive(Default)]
struct SqlBuilder {
    params: Vec<Value>,
    conditions: Vec<String>,
}

impl SqlBuilder {
    /// Binds a value and returns its placeholder.
    fn bind(&mut self, value: impl Into<Value>) -> String {
        self.params.push(value.into());
        format!("${}", self.params.len())
    }

    /// Returns the query on SQLite. Without text it is PostgreSQL's, too.
    fn build(&mut self, tenant: &TenantStore, query: &SearchQuery, page: &SearchPage) -> String {
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
        self.conditions.push(format!("e.tenant_id = {id}"));
        match query.deleted {
            DeletedEmails::Hidden => self.conditions.push("e.deleted_at is null".to_owned()),
            DeletedEmails::Included => {}
            DeletedEmails::Only => self.conditions.push("e.deleted_at is not null".to_owned()),
        }
        if let Some((than, start)) = page.start.map(PageStart::comparison) {
            let place = self.bind(start);
            let condition = if order == "e.id" {
                format!("e.id {than} {place}")
            } else {
                let second = self.bind(search_second(start));
                // An email that is gone meanwhile still shows by its id where the page begins.
                format!(
                    "s.rowid {than} coalesce((select search_rowid from emails where tenant_id = {id} and id = {place}),
                                             ({number} << 47) | ({second} << 16))"
                )
            };
            self.conditions.push(condition);
        }
        self.narrow(query, page);
        self.finish(&from, order, page)
    }

    /// Adds conditions for mailbox, dates and labels.
    fn narrow(&mut self, query: &SearchQuery, page: &SearchPage) {
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

    fn finish(&mut self, from: &str, order: &str, page: &SearchPage) -> String {
        let limit = self.bind(page.limit);
        let conditions = self.conditions.join(" and ");
        format!("select e.id from {from} where {conditions} order by {order} desc limit {limit}")
    }
}

/// Returns `(all) NOT (none)` in FTS5's syntax; every token is quoted, so no text can be an operator.
fn fts5(query: &SearchQuery) -> String {
    let all_of: Vec<String> = query.all_of.iter().map(fts5_phrase).collect();
    let none_of: Vec<String> = query.none_of.iter().map(fts5_phrase).collect();
    if none_of.is_empty() {
        return all_of.join(" AND ");
    }
    format!("({}) NOT ({})", all_of.join(" AND "), none_of.join(" OR "))
}

pub(super) fn fts5_phrase(phrase: &Phrase) -> String {
    let words = phrase.tokens.join(" ").replace('"', "\"\"");
    format!("\"{words}\"{}", if phrase.is_prefix { "*" } else { "" })
}

/// Returns the query in PostgreSQL's syntax, without the tenant's lexeme, which the database adds itself.
fn tsquery(query: &SearchQuery) -> String {
    let mut clauses: Vec<String> = query.all_of.iter().map(tsquery_phrase).collect();
    clauses.extend(query.none_of.iter().map(|phrase| format!("!{}", tsquery_phrase(phrase))));
    clauses.join(" & ")
}

pub(super) fn tsquery_phrase(phrase: &Phrase) -> String {
    if phrase.tokens.iter().all(String::is_empty) {
        return format!("'{PHRASE_GAP}'"); // an empty lexeme is a syntax error; a gap is in no index, so nothing matches
    }
    let words: Vec<String> = phrase
        .tokens
        .iter()
        .map(|token: &String| format!("'{}'", token.replace('\\', "\\\\").replace('\'', "''")))
        .collect();
    format!("({}{})", words.join(" <-> "), if phrase.is_prefix { ":*" } else { "" })
}

/// Returns the lexeme that every email of a tenant has, so that a search on PostgreSQL reads one tenant's entries only. No
/// word begins with a colon, so no prefix finds it.
pub(crate) fn tenant_lexeme(tenant: Uuid) -> String {
    format!(":tenant:{}", tenant.simple())
}
