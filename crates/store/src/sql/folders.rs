//! Folders and labels.

use std::collections::HashMap;

use domain::{FolderId, MailboxId};

use crate::failpoint::{self, Effect};
use crate::unit::{By, Insert};
use crate::value::Kind;
use crate::{StoreError, TenantStore, Value, params};

impl TenantStore {
    /// The ids of folders by name, made now where there are none. Imported folders are known by their name.
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
            into: "folders (id, tenant_id, mailbox_id, provider_folder_id, name, delimiter, name_key, last_segment_key, created_at)".into(),
            columns: &[
                ("id", Kind::Uuid),
                ("tenant_id", Kind::Uuid),
                ("mailbox_id", Kind::Uuid),
                ("name", Kind::Text),
                ("name_key", Kind::Text),
                ("last_segment_key", Kind::Text),
            ],
            rows: missing.into_iter().map(|name| self.folder_row(mailbox, name)).collect(),
            select: "u.id, u.tenant_id, u.mailbox_id, u.name, u.name, '/', u.name_key, u.last_segment_key, mailroom_now()"
                .into(),
            join_where: "",
            on_conflict: "on conflict do nothing".into(),
            by: By::Many,
        });
        failpoint::before(Effect::MakeFolders);
        unit.commit().await?;
        failpoint::after(Effect::MakeFolders);
        self.list_folders(mailbox).await
    }

    /// Of the folders at a provider, whether mail is taken in from them.
    pub async fn list_folder_scopes(&self, mailbox: MailboxId) -> Result<HashMap<String, bool>, StoreError> {
        let sql = "select provider_folder_id, is_in_scope and gone_at is null from folders
                   where tenant_id = $1 and mailbox_id = $2";
        let rows = self.query(sql, params![self.id, mailbox]).await?;
        rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
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
