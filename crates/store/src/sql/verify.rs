//! Consistency checks over the rows of a tenant.

use domain::{MailboxId, PackId, Sha256};
use serde::Serialize;

use super::any;
use super::blobs::{LOCATION_COLUMNS, blob_location};
use crate::blobs::BlobLocation;
use crate::{Dialect, Row, StoreError, SystemStore, TenantStore, Unit, Value, params};

/// An inconsistency, how often it occurs, and one example.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RowDifference {
    pub what: String,
    pub count: u64,
    pub example: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TenantTotals {
    pub emails: u64,
    pub ledger: u64,
    pub placements: u64,
    pub attachments: u64,
    pub blobs: u64,
}

#[derive(Debug, Clone)]
pub struct PackLocation {
    pub id: PackId,
    pub object_key: String,
    pub size_bytes: Option<u64>,
}

/// Checks that find wrong rows by an id as text; the same SQL on both databases. `{l}` and `{e}` stand for the condition on
/// ledger rows or emails that narrows a check to the tenant, or to one of its mailboxes; blobs and index entries belong to
/// the tenant as a whole.
const CHECKS: &[(&str, &str)] = &[
    (
        "ledger rows say processed but have no email",
        "select l.provider_message_id as id from ledger l
         left join emails e on e.tenant_id = l.tenant_id and e.id = l.email_id
         where {l} and l.state = 'processed' and e.id is null",
    ),
    (
        "ledger rows have no live placement though they are not gone",
        "select l.provider_message_id as id from ledger l
         where {l} and l.state <> 'gone' and not exists (
             select 1 from placements p where p.tenant_id = l.tenant_id and p.mailbox_id = l.mailbox_id
             and p.provider_message_id = l.provider_message_id and p.is_live
             and (l.email_id is null or p.email_id = l.email_id))",
    ),
    (
        "messages are gone though they have a live placement",
        "select l.provider_message_id as id from ledger l
         where {l} and l.state = 'gone' and exists (
             select 1 from placements p where p.tenant_id = l.tenant_id and p.mailbox_id = l.mailbox_id
             and p.provider_message_id = l.provider_message_id and p.is_live)",
    ),
    (
        "messages could not be fetched or stored",
        "select l.provider_message_id as id from ledger l where {l} and l.state = 'failed' and l.email_id is null",
    ),
    (
        "emails are not deleted though they are in no folder",
        "select cast(e.id as text) as id from emails e where {e} and e.deleted_at is null and not exists (
             select 1 from placements p where p.tenant_id = e.tenant_id and p.email_id = e.id and p.is_live)
             and not exists (select 1 from restored_emails r where r.tenant_id = e.tenant_id and r.email_id = e.id)",
    ),
    (
        "emails are deleted though they are in a folder",
        "select cast(e.id as text) as id from emails e where {e} and e.deleted_at is not null and exists (
             select 1 from placements p where p.tenant_id = e.tenant_id and p.email_id = e.id and p.is_live)
             and not exists (select 1 from discarded_emails d where d.tenant_id = e.tenant_id and d.email_id = e.id)",
    ),
    (
        "emails have no ledger row",
        "select cast(e.id as text) as id from emails e
         left join ledger l on l.mailbox_id = e.mailbox_id and l.provider_message_id = e.provider_message_id
         where {e} and l.mailbox_id is null",
    ),
    (
        "emails differ from the content that their mailbox knows",
        "select cast(e.id as text) as id from emails e
         left join email_contents c on c.mailbox_id = e.mailbox_id and c.email_id = e.id
         where {e} and c.mailbox_id is null",
    ),
    (
        "emails are stored without their raw bytes",
        "select cast(e.id as text) as id from emails e where {e} and e.raw_blob_sha256 is null",
    ),
    (
        "emails name raw bytes that are not among the blobs",
        "select cast(e.id as text) as id from emails e
         left join blobs b on b.tenant_id = e.tenant_id and b.sha256 = e.raw_blob_sha256
         where {e} and e.raw_blob_sha256 is not null and b.sha256 is null",
    ),
    (
        "attachments are not stored yet",
        "select cast(a.id as text) as id from attachments a
         join emails e on e.tenant_id = a.tenant_id and e.id = a.email_id
         where {e} and a.status in ('pending', 'failed')",
    ),
    (
        "attachments say stored but name no blob",
        "select cast(a.id as text) as id from attachments a
         join emails e on e.tenant_id = a.tenant_id and e.id = a.email_id
         where {e} and a.status = 'stored' and a.blob_sha256 is null",
    ),
    (
        "attachments name bytes that are not among the blobs",
        "select cast(a.id as text) as id from attachments a
         join emails e on e.tenant_id = a.tenant_id and e.id = a.email_id
         left join blobs b on b.tenant_id = a.tenant_id and b.sha256 = a.blob_sha256
         where {e} and a.blob_sha256 is not null and b.sha256 is null",
    ),
    (
        "blobs lie in packs that are not live",
        "select p.object_key as id from blobs b join packs p on p.tenant_id = b.tenant_id and p.id = b.pack_id
         where b.tenant_id = $1 and p.state <> 'live'",
    ),
];

/// Returns the checks of the text index, where the databases differ.
fn index_checks(dialect: Dialect) -> [(&'static str, &'static str); 2] {
    let (missing, dangling) = match dialect {
        Dialect::Sqlite => (
            "select e.id as id from emails e left join email_search_docsize d on d.id = e.search_rowid
             where {e} and d.id is null",
            "select cast(d.id as text) as id from email_search_docsize d left join emails e on e.search_rowid = d.id
             where e.id is null and d.id between (select number from tenants where id = $1) << 47
                                              and (((select number from tenants where id = $1) + 1) << 47) - 1",
        ),
        Dialect::Postgres => (
            "select cast(e.id as text) as id from emails e
             left join email_search s on s.tenant_id = e.tenant_id and s.email_id = e.id
             where {e} and s.email_id is null",
            "select cast(s.email_id as text) as id from email_search s
             left join emails e on e.tenant_id = s.tenant_id and e.id = s.email_id
             where s.tenant_id = $1 and e.id is null",
        ),
    };
    [("emails are not in the text index", missing), ("entries of the text index have no email", dangling)]
}

impl TenantStore {
    pub async fn verify_rows(&self, mailbox: Option<MailboxId>) -> Result<Vec<RowDifference>, StoreError> {
        let mut differences = Vec::new();
        // By mailbox either way: that is what the keys of these tables begin with.
        let condition = match mailbox {
            Some(_) => "{table}.tenant_id = $1 and {table}.mailbox_id = $2",
            None => "{table}.mailbox_id in (select id from mailboxes where tenant_id = $1)",
        };
        let of_ledger = condition.replace("{table}", "l");
        let of_emails = condition.replace("{table}", "e");
        let mut params = params![self.id];
        params.extend(mailbox.map(Value::from));
        for (what, sql) in CHECKS.iter().copied().chain(index_checks(self.store.dialect())) {
            if mailbox.is_some() && !sql.contains('{') {
                continue;
            }
            let sql = sql.replace("{l}", &of_ledger).replace("{e}", &of_emails);
            let sql = format!("select count(*), min(found.id) from ({sql}) found");
            let Some(row) = self.query_one(sql, params.clone()).await? else { continue };
            let count: u64 = row.get(0)?;
            if count > 0 {
                differences.push(RowDifference { what: what.to_owned(), count, example: row.get(1)? });
            }
        }
        Ok(differences)
    }
}

impl SystemStore {
    /// Reads the whole text index, which all tenants share on SQLite, and checks it against itself. To SQLite this is a
    /// write, so others wait for it.
    pub async fn verify_index(&self) -> Result<Option<RowDifference>, StoreError> {
        if self.store.dialect() == Dialect::Postgres {
            return Ok(None); // PostgreSQL checks its indexes with amcheck, which needs a superuser.
        }
        let mut unit = Unit::default();
        unit.op("insert into email_search (email_search) values ('integrity-check')", vec![]);
        match self.commit(unit).await {
            Ok(_) => Ok(None),
            Err(StoreError::Corrupt(what)) => Ok(Some(RowDifference {
                what: "the text index is damaged".to_owned(),
                count: 1,
                example: what.to_string(),
            })),
            Err(e) => Err(e),
        }
    }
}

impl TenantStore {
    pub async fn totals(&self) -> Result<TenantTotals, StoreError> {
        let sql = "select (select count(*) from emails where tenant_id = $1),
                          (select count(*) from ledger
                           where mailbox_id in (select id from mailboxes where tenant_id = $1)),
                          (select count(*) from placements
                           where mailbox_id in (select id from mailboxes where tenant_id = $1) and is_live),
                          (select count(*) from attachments where tenant_id = $1),
                          (select count(*) from blobs where tenant_id = $1)";
        let Some(row) = self.query_one(sql, params![self.id]).await? else { return Ok(TenantTotals::default()) };
        Ok(TenantTotals {
            emails: row.get(0)?,
            ledger: row.get(1)?,
            placements: row.get(2)?,
            attachments: row.get(3)?,
            blobs: row.get(4)?,
        })
    }

    pub async fn list_live_packs(&self) -> Result<Vec<PackLocation>, StoreError> {
        let sql = "select id, object_key, size_bytes from packs where tenant_id = $1 and state = 'live' order by id";
        let rows = self.query(sql, params![self.id]).await?;
        rows.iter()
            .map(|row: &Row| Ok(PackLocation { id: row.get(0)?, object_key: row.get(1)?, size_bytes: row.get(2)? }))
            .collect()
    }

    /// Lists the blobs of a pack in their order.
    pub async fn list_pack_members(&self, id: PackId) -> Result<Vec<BlobLocation>, StoreError> {
        let sql = format!(
            "select {LOCATION_COLUMNS} from blobs b join packs p on p.tenant_id = b.tenant_id and p.id = b.pack_id
             where b.tenant_id = $1 and b.pack_id = $2 order by b.pack_offset"
        );
        self.query(sql, params![self.id, id]).await?.iter().map(blob_location).collect()
    }

    /// Counts the emails that have their original or an attachment among these blobs.
    pub async fn count_emails_with(&self, blobs: Vec<Sha256>) -> Result<u64, StoreError> {
        let dialect = self.store.dialect();
        let sql = format!(
            "select count(*) from (
                 select e.id as id from emails e where e.tenant_id = $1 and {}
                 union select a.email_id as id from attachments a where a.tenant_id = $1 and {}) named",
            any(dialect, "e.raw_blob_sha256", 2),
            any(dialect, "a.blob_sha256", 2)
        );
        self.query_one(sql, params![self.id, blobs]).await?.map_or(Ok(0), |row| row.get(0))
    }
}
