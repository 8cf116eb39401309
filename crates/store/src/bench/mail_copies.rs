//! Copies one tenant's mail to others, as rows: importing a million messages would take an hour.
//!
//! Ids keep their time and half of their hash; the rest has the copy's number in it. Copies have no bytes in blob storage,
//! so their attachments are `skipped` and nothing is named that is not there.

use domain::TenantId;

use crate::sql::search::tenant_lexeme;
use crate::{Database, Dialect, StoreError, SystemStore, postgres, sqlite};

/// How the rows of one table become those of another tenant.
struct TableCopy {
    table: &'static str,
    ids: &'static str,
    same: &'static str,
    others: &'static [(&'static str, &'static str)],
}

/// In the order of their foreign keys.
const TABLES: [TableCopy; 10] = [
    TableCopy {
        table: "mailboxes",
        ids: "id",
        same: "provider, address, state, state_reason, state_since, settings, is_active, version, created_at, updated_at",
        others: &[],
    },
    TableCopy {
        table: "folders",
        ids: "id, mailbox_id",
        same: "provider_folder_id, name, name_key, last_segment_key, role, delimiter, uid_validity, created_at, is_in_scope",
        others: &[],
    },
    TableCopy {
        table: "ledger",
        ids: "mailbox_id, email_id",
        same: "provider_message_id, state, reason, revision, attempts, size_bytes, raw_sha256, first_seen_at,
               processing_started_at, processing_completed_at, received_at, is_backfill",
        others: &[],
    },
    TableCopy { table: "email_contents", ids: "mailbox_id, email_id", same: "raw_sha256, unit", others: &[] },
    TableCopy {
        table: "emails",
        ids: "id, mailbox_id",
        same:
            "provider, provider_message_id, internet_message_id, message_id_hash, thread_id, conversation_id, subject,
               from_name, from_address, body_text, body_html, sent_at, received_at, processed_at, processing_status,
               has_attachments, size_bytes, raw_sha256, headers, defects, deleted_at, created_at",
        others: &[],
    },
    TableCopy { table: "email_recipients", ids: "email_id", same: "position, kind, address, name", others: &[] },
    TableCopy {
        table: "attachments",
        ids: "id, email_id",
        same:
            "position, part_path, filename, content_type, sniffed_type, size_bytes, sha256, md5, is_inline, content_id,
               message, created_at",
        others: &[("status", "'skipped'")],
    },
    TableCopy {
        table: "placements",
        ids: "mailbox_id, folder_id, email_id",
        same: "provider_uid, provider_message_id, flags, is_live, created_at, updated_at, listing",
        others: &[],
    },
    TableCopy { table: "events", ids: "mailbox_id, email_id", same: "seq, type, is_backfill, data, at", others: &[] },
    TableCopy { table: "tenant_counters", ids: "", same: "event_seq", others: &[] },
];

/// Copies all mail of one tenant to each of the others, which have none yet, and calls `on_copied` after each.
pub async fn copy_mail(
    system: &SystemStore,
    from: TenantId,
    to: &[TenantId],
    mut on_copied: impl FnMut(usize),
) -> Result<(), StoreError> {
    let dialect = system.store.dialect();
    let (before, after) = around(dialect);
    run_text(system, before).await?;
    for (n, to) in to.iter().enumerate() {
        run_text(system, script(dialect, from, *to, n + 1)).await?;
        on_copied(n + 1);
    }
    for text in after {
        run_text(system, (*text).to_owned()).await?;
    }
    Ok(())
}

/// Runs statements beside the writer: no other process uses the database.
async fn run_text(system: &SystemStore, text: String) -> Result<(), StoreError> {
    match &*system.store.database {
        Database::Sqlite(db) => {
            let connection = db.migration_connection()?;
            let ran = tokio::task::spawn_blocking(move || {
                connection.pragma_update(None, "cache_size", -(256 << 10))?;
                connection.execute_batch(&text)
            });
            ran.await.map_err(|e| StoreError::other(e.to_string()))?.map_err(sqlite::error)
        }
        Database::Postgres(db) => db.client().await?.batch_execute(&text).await.map_err(postgres::error),
    }
}

/// Returns the statements to run once, before and after all copies. The text index of SQLite has no text to copy, so its tokens are put together
/// again from their places; that of PostgreSQL is faster made as a whole.
fn around(dialect: Dialect) -> (String, &'static [&'static str]) {
    match dialect {
        Dialect::Sqlite => (
            "create virtual table copied_vocabulary using fts5vocab(email_search, instance);
             create table copied_tokens as
                 select doc as id, group_concat(term, ' ' order by offset) as tokens from copied_vocabulary group by doc;
             drop table copied_vocabulary"
                .to_owned(),
            &["drop table copied_tokens", "pragma wal_checkpoint(truncate)"],
        ),
        Dialect::Postgres => (
            "set role mailroom_system; drop index email_search_tokens; reset role".to_owned(),
            &[
                "set role mailroom_system; set maintenance_work_mem = '512MB';
                 create index email_search_tokens on email_search using gin (tokens); reset maintenance_work_mem; reset role",
                // As the server does by itself within minutes, in the middle of what is measured.
                "vacuum",
                "do $$ begin
                     if (select rolsuper from pg_roles where rolname = session_user) then execute 'checkpoint'; end if;
                 end $$",
            ],
        ),
    }
}

fn script(dialect: Dialect, from: TenantId, to: TenantId, n: usize) -> String {
    let begin = match dialect {
        Dialect::Sqlite => "begin immediate".to_owned(),
        // What is copied refers to what is copied; a superuser need not have it looked up ten million times.
        Dialect::Postgres => "begin; select set_config('session_replication_role', 'replica', true)
                              where (select rolsuper from pg_roles where rolname = session_user);
                              set local role mailroom_system"
            .to_owned(),
    };
    let mut statements = vec![begin];
    statements.extend(TABLES.iter().map(|table| table.statement(dialect, from, to, n)));
    statements.push(search(dialect, from, to, n));
    statements.push("commit".to_owned());
    statements.join(";\n")
}

impl TableCopy {
    fn statement(&self, dialect: Dialect, from: TenantId, to: TenantId, n: usize) -> String {
        let mut columns = vec!["tenant_id".to_owned(), self.same.to_owned()];
        let mut values = vec![format!("'{to}'"), self.same.to_owned()];
        for id in self.ids.split(", ").filter(|id| !id.is_empty()) {
            columns.push(id.to_owned());
            values.push(renamed(dialect, id, n));
        }
        for (column, value) in self.others {
            columns.push((*column).to_owned());
            values.push((*value).to_owned());
        }
        if self.table == "emails" && dialect == Dialect::Sqlite {
            columns.push("search_rowid".to_owned());
            values.push(row_number("search_rowid", to));
        }
        let (columns, values) = (columns.join(", "), values.join(", "));
        let table = self.table;
        format!("insert into {table} ({columns}) select {values} from {table} where tenant_id = '{from}'")
    }
}

fn renamed(dialect: Dialect, id: &str, n: usize) -> String {
    match dialect {
        Dialect::Sqlite => format!("substr({id}, 1, 24) || 'c0b1{n:04x}' || substr({id}, 33)"),
        Dialect::Postgres => format!("(left({id}::text, 24) || 'c0b1{n:04x}' || substr({id}::text, 33))::uuid"),
    }
}

/// Returns the row number of the copy: the tenant's number is in the upper bits.
fn row_number(of: &str, tenant: TenantId) -> String {
    format!("({of} & ((1 << 47) - 1)) | (select number << 47 from tenants where id = '{tenant}')")
}

fn search(dialect: Dialect, from: TenantId, to: TenantId, n: usize) -> String {
    match dialect {
        Dialect::Sqlite => {
            let id = row_number("id", to);
            format!("insert into email_search (rowid, tokens) select {id}, tokens from copied_tokens order by id")
        }
        Dialect::Postgres => {
            let (was, is) = (tenant_lexeme(from.0), tenant_lexeme(to.0));
            let (email, mailbox) = (renamed(dialect, "email_id", n), renamed(dialect, "mailbox_id", n));
            format!(
                "insert into email_search (tenant_id, email_id, mailbox_id, received_at, is_live, tokens)
                 select '{to}', {email}, {mailbox}, received_at, is_live,
                        ts_delete(tokens, '{was}') || '''{is}'':1'::tsvector
                 from email_search where tenant_id = '{from}'"
            )
        }
    }
}
