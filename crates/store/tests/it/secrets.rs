use domain::{SecretId, SecretKind, TenantId};
use store::sql::secrets::{MasterFingerprint, MasterKeyState, SealedSecret, WrappedKey};
use store::testing::{TestDatabase, on_each_database};
use store::{Precondition, Store, StoreError, TenantStore};

use crate::samples::tenant;

fn wrapped(version: u32, bytes: &[u8], master: &str) -> WrappedKey {
    WrappedKey { version, wrapped: bytes.to_vec(), master: master.to_owned() }
}

fn secret(store: &Store, ciphertext: &[u8]) -> SealedSecret {
    let id = SecretId::new(store.clock());
    SealedSecret { id, kind: SecretKind::Password, key_version: 1, ciphertext: ciphertext.to_vec() }
}

/// A tenant with a key, so that it may have secrets.
async fn ready(db: &TestDatabase) -> TenantStore {
    db.store.system().record_first_master_key("one").await.unwrap();
    let acme = tenant(&db.store, "acme").await;
    db.store.system().add_tenant_key(acme.id, &wrapped(1, b"k1", "one")).await.unwrap();
    acme
}

async fn put(store: &TenantStore, secret: &SealedSecret) {
    let mut unit = store.write();
    unit.put_secret(secret);
    unit.commit().await.unwrap();
}

#[tokio::test]
async fn secret_belongs_to_its_tenant_alone() {
    on_each_database(|db| async move {
        let acme = ready(&db).await;
        let other = tenant(&db.store, "other").await;
        // 32 bytes, which look like a hash.
        let first = secret(&db.store, &[7; 32]);
        let second = SealedSecret { ciphertext: b"another".to_vec(), kind: SecretKind::RefreshToken, ..first.clone() };

        put(&acme, &first).await;
        assert_eq!(acme.find_secret(first.id).await.unwrap(), Some(first.clone()));
        assert_eq!(other.find_secret(first.id).await.unwrap(), None);
        put(&acme, &second).await;
        assert_eq!(acme.find_secret(first.id).await.unwrap(), Some(second));
        let mut unit = acme.write();
        unit.delete_secret(first.id);
        unit.commit().await.unwrap();

        assert_eq!(acme.find_secret(first.id).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn secret_commits_with_its_unit() {
    on_each_database(|db| async move {
        let acme = ready(&db).await;
        let kept = secret(&db.store, b"kept");
        let mut unit = acme.write();
        unit.put_secret(&kept);
        unit.put_secret(&SealedSecret { key_version: 9, ..secret(&db.store, b"of no key") });

        assert!(unit.commit().await.is_err());
        assert_eq!(acme.find_secret(kept.id).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn one_of_many_first_keys_stays() {
    on_each_database(|db| async move {
        db.store.system().record_first_master_key("one").await.unwrap();
        let acme = tenant(&db.store, "acme").await;
        let stores = [db.store.clone(), db.second_store()];
        let tries = (0..20_u8).map(|n| {
            let (store, id) = (stores[usize::from(n % 2)].clone(), acme.id);
            tokio::spawn(async move { store.system().add_tenant_key(id, &wrapped(1, &[n], "one")).await })
        });

        for outcome in tries.collect::<Vec<_>>() {
            outcome.await.unwrap().unwrap();
        }
        assert_eq!(acme.list_keys().await.unwrap().len(), 1);
    })
    .await;
}

fn assert_refused(outcome: Result<(), StoreError>) {
    assert!(matches!(outcome, Err(StoreError::Precondition(Precondition::MasterKeyChanged))), "{outcome:?}");
}

#[tokio::test]
async fn only_the_current_master_key_wraps() {
    on_each_database(|db| async move {
        let (acme, system) = (ready(&db).await, db.store.system());
        system.announce_master_key("two").await.unwrap();

        assert_refused(system.add_tenant_key(acme.id, &wrapped(2, b"x", "two")).await);
        system.switch_master_key("one", "two").await.unwrap();
        assert_refused(system.add_tenant_key(acme.id, &wrapped(2, b"x", "one")).await);
        assert_refused(system.switch_master_key("one", "two").await);
        system.add_tenant_key(acme.id, &wrapped(2, b"x", "two")).await.unwrap();
    })
    .await;
}

/// A tenant's first key is made while the master key changes: either that key is wrapped by the new one, or a search for what
/// the old one wraps finds it.
#[tokio::test]
async fn no_key_slips_behind_a_master_key_switch() {
    on_each_database(|db| async move {
        let system = db.store.system();
        system.record_first_master_key("0").await.unwrap();
        for round in 0..20_u32 {
            let (old, new) = (round.to_string(), (round + 1).to_string());
            let fresh = tenant(&db.store, &format!("tenant {round}")).await;
            system.announce_master_key(&new).await.unwrap();
            let second = db.second_store();
            let key = wrapped(1, b"x", &old);
            let adds = tokio::spawn(async move { second.system().add_tenant_key(fresh.id, &key).await });

            system.switch_master_key(&old, &new).await.unwrap();
            let found: Vec<TenantId> = system.list_tenants_wrapped_by(&old).await.unwrap();

            let was_added = adds.await.unwrap().is_ok();
            assert_eq!(found.contains(&fresh.id), was_added, "round {round}");
            db.run(&format!("delete from tenant_keys where master = '{old}'")).await;
            assert!(system.forget_master_key(&old).await.unwrap());
        }
    })
    .await;
}

fn master(fingerprint: &str, state: MasterKeyState) -> MasterFingerprint {
    MasterFingerprint { fingerprint: fingerprint.to_owned(), state }
}

#[tokio::test]
async fn first_master_fingerprint_stays() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let known = async || system.list_master_fingerprints().await.unwrap();
        let second = db.second_store();
        let second = second.system();
        let (a, b) = tokio::join!(system.record_first_master_key("a"), second.record_first_master_key("b"));
        a.and(b).unwrap();
        let [first] = known().await.try_into().unwrap();
        assert_eq!(first.state, MasterKeyState::Current);
        let acme = tenant(&db.store, "acme").await;
        system.add_tenant_key(acme.id, &wrapped(1, b"x", &first.fingerprint)).await.unwrap();

        system.announce_master_key("lost").await.unwrap();
        system.announce_master_key("next").await.unwrap();
        system.announce_master_key("next").await.unwrap();
        assert!(system.switch_master_key(&first.fingerprint, "lost").await.is_err());
        assert!(!system.forget_master_key(&first.fingerprint).await.unwrap(), "it is in force");
        system.switch_master_key(&first.fingerprint, "next").await.unwrap();
        assert!(!system.forget_master_key(&first.fingerprint).await.unwrap(), "it wraps something");
        let pairs = [(wrapped(1, b"x", &first.fingerprint), wrapped(1, b"y", "next"))];
        assert!(system.rotate_tenant_key(acme.id, &pairs, &wrapped(2, b"z", "next")).await.unwrap());
        assert!(!system.rotate_tenant_key(acme.id, &pairs, &wrapped(3, b"z", "next")).await.unwrap());
        assert!(system.forget_master_key(&first.fingerprint).await.unwrap());

        assert_eq!(known().await, [master("next", MasterKeyState::Current)]);
        assert_eq!(acme.list_keys().await.unwrap(), [wrapped(1, b"y", "next"), wrapped(2, b"z", "next")]);
    })
    .await;
}

#[tokio::test]
async fn unused_tenant_keys_are_deleted_but_the_previous() {
    on_each_database(|db| async move {
        let (acme, system) = (ready(&db).await, db.store.system());
        for version in 2..=4 {
            system.add_tenant_key(acme.id, &wrapped(version, b"k", "one")).await.unwrap();
        }
        put(&acme, &SealedSecret { key_version: 2, ..secret(&db.store, b"of the second") }).await;

        assert!(system.rotate_tenant_key(acme.id, &[], &wrapped(5, b"k", "one")).await.unwrap());

        let versions: Vec<u32> = acme.list_keys().await.unwrap().iter().map(|key| key.version).collect();
        assert_eq!(versions, [2, 4, 5]);
    })
    .await;
}

/// A secret, and the same one sealed again.
fn again(old: &SealedSecret) -> (SealedSecret, SealedSecret) {
    (old.clone(), SealedSecret { key_version: 2, ciphertext: b"again".to_vec(), ..old.clone() })
}

#[tokio::test]
async fn changed_secret_is_not_overwritten_by_resealing() {
    on_each_database(|db| async move {
        let acme = ready(&db).await;
        db.store.system().add_tenant_key(acme.id, &wrapped(2, b"k2", "one")).await.unwrap();
        let (changed, deleted, same) =
            (secret(&db.store, b"changed"), secret(&db.store, b"deleted"), secret(&db.store, b"same"));
        for secret in [&changed, &deleted, &same] {
            put(&acme, secret).await;
        }
        let listed = acme.list_secrets_under_old_keys(None, 2).await.unwrap();
        let rest = acme.list_secrets_under_old_keys(listed.last().map(|last| last.id), 2).await.unwrap();
        assert_eq!((listed.len(), rest.len()), (2, 1));
        let newer = SealedSecret { ciphertext: b"newer".to_vec(), ..changed.clone() };
        put(&acme, &newer).await;
        let mut unit = acme.write();
        unit.delete_secret(deleted.id);
        unit.commit().await.unwrap();

        let put = acme.replace_sealed(&[again(&changed), again(&deleted), again(&same)]).await.unwrap();

        assert_eq!(put, 1);
        assert_eq!(acme.find_secret(changed.id).await.unwrap(), Some(newer));
        assert_eq!(acme.find_secret(deleted.id).await.unwrap(), None);
        assert_eq!(acme.find_secret(same.id).await.unwrap(), Some(again(&same).1));
    })
    .await;
}
