//! Folders and labels of mailboxes.

use std::collections::HashMap;

use domain::{FolderId, MailboxId};

use crate::failpoint::Effect;
use crate::unit::{Insert, InsertBatching};
use crate::value::ColumnType;
use crate::{Row, StoreError, TenantStore, Value, params};

#[derive(Debug, Clone)]
pub struct FolderCount {
    pub id: FolderId,
    pub name: String,
    pub role: Option<String>,
    /// Whether its mail is synced.
    pub is_in_scope: bool,
    pub emails: u64,
}

impl TenantStore {
    /// Returns the ids of folders by name, and makes missing ones. Imported folders are identified by their name.
    pub async fn ensure_folders(
        &self,
        mailbox: MailboxId,
        names: &[String],
    ) -> Result<HashMap<String, FolderId>, StoreError> {
        let found = self.list_folders(mailbox).await?;
        let missing: Vec<&String> = names.iter().filter(|name| !found.contains_key(*name)).collect();
        if missing.is_empty() {
            return Ok(found);
        }
        let mut unit = self.write();
        unit.unit.insert(Insert {
            into: "folders (id, tenant_id, mailbox_id, provider_folder_id, name, delimiter, name_key, last_segment_key, is_imported, created_at)".into(),
            columns: &[
                ("id", ColumnType::Uuid),
                ("tenant_id", ColumnType::Uuid),
                ("mailbox_id", ColumnType::Uuid),
                ("name", ColumnType::Text),
                ("name_key", ColumnType::Text),
                ("last_segment_key", ColumnType::Text),
            ],
            rows: missing.into_iter().map(|name| self.folder_row(mailbox, name)).collect(),
            select: "u.id, u.tenant_id, u.mailbox_id, u.name, u.name, '/', u.name_key, u.last_segment_key, true, mailroom_now()"
                .into(),
            join_where: "",
            on_conflict: "on conflict do nothing".into(),
            batching: InsertBatching::Many,
        });
        unit.commit_at(Effect::MakeFolders).await?;
        self.list_folders(mailbox).await
    }

    /// Lists the folders at the provider, with whether their mail is synced. That of a missing folder is not: when the folder
    /// is back, everything in it has to be listed.
    pub async fn list_folder_scopes(&self, mailbox: MailboxId) -> Result<HashMap<String, bool>, StoreError> {
        let sql = "select provider_folder_id, is_in_scope and gone_at is null and missing_since is null from folders
                   where tenant_id = $1 and mailbox_id = $2";
        let rows = self.query(sql, params![self.id, mailbox]).await?;
        rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
    }

    /// Lists existing folders by name, with the number of emails in each.
    pub async fn list_folder_counts(&self, mailbox: MailboxId) -> Result<Vec<FolderCount>, StoreError> {
        let sql = "select f.id, f.name, f.role, f.is_in_scope,
                       (select count(*) from placements p where p.tenant_id = f.tenant_id
                        and p.mailbox_id = f.mailbox_id and p.folder_id = f.id and p.is_live)
                   from folders f where f.tenant_id = $1 and f.mailbox_id = $2 and f.gone_at is null order by f.name, f.id";
        self.query(sql, params![self.id, mailbox])
            .await?
            .iter()
            .map(|row: &Row| {
                Ok(FolderCount {
                    id: row.get(0)?,
                    name: row.get(1)?,
                    role: row.get(2)?,
                    is_in_scope: row.get(3)?,
                    emails: row.get(4)?,
                })
            })
            .collect()
    }

    fn folder_row(&self, mailbox: MailboxId, name: &str) -> Vec<Value> {
        let key = name.to_lowercase();
        let last_segment = key.rsplit('/').next().unwrap_or_default().to_owned();
        params![FolderId::new(self.clock()), self.id, mailbox, name, key, last_segment]
    }

    async fn list_folders(&self, mailbox: MailboxId) -> Result<HashMap<String, FolderId>, StoreError> {
        let sql = "select provider_folder_id, id from folders where tenant_id = $1 and mailbox_id = $2";
        let rows = self.query(sql, params![self.id, mailbox]).await?;
        rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
    }
}
