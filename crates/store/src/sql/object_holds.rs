//! Holds on objects: while a backup copies the objects of a snapshot, none is deleted.

use jiff::SignedDuration;
use uuid::Uuid;

use crate::failpoint::{self, Guard};
use crate::{StoreError, SystemStore, Unit, params};

impl SystemStore {
    /// Begins a hold, or extends one that has not expired. It ends by itself, so that a backup that died does not block deletion
    /// for longer than its lease.
    pub async fn hold_objects(&self, id: Uuid, lease: SignedDuration) -> Result<(), StoreError> {
        let expires_at = self.now().await? + lease;
        let mut unit = Unit::default();
        unit.op("delete from object_holds where expires_at <= mailroom_now()", vec![]);
        unit.op(
            "insert into object_holds (id, expires_at) values ($1, $2)
             on conflict (id) do update set expires_at = excluded.expires_at",
            params![id, expires_at],
        );
        self.commit(unit).await.map(drop)
    }

    /// Extends a hold; returns `false` when it had ended, and objects may have been deleted since.
    pub async fn extend_hold(&self, id: Uuid, lease: SignedDuration) -> Result<bool, StoreError> {
        let expires_at = self.now().await? + lease;
        let mut unit = Unit::default();
        let extended = unit.op(
            "update object_holds set expires_at = $2 where id = $1 and expires_at > mailroom_now()",
            params![id, expires_at],
        );
        Ok(self.commit(unit).await?.changed(extended) == 1)
    }

    pub async fn release_hold(&self, id: Uuid) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op("delete from object_holds where id = $1", params![id]);
        self.commit(unit).await.map(drop)
    }

    pub async fn are_objects_held(&self) -> Result<bool, StoreError> {
        if failpoint::is_off(Guard::ObjectsHeld) {
            return Ok(false);
        }
        let sql = "select 1 from object_holds where expires_at > mailroom_now() limit 1";
        Ok(self.query_one(sql, vec![]).await?.is_some())
    }
}
