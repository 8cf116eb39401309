//! P8 at rest: what is sealed opens for its tenant, in its row, as its kind, with the master key, and not otherwise.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use domain::{PlanTier, Secret, SecretId, SecretKind, TenantId};
use engine::Vault;
use engine::credentials::secrets::{KeySource, VaultError, VaultStatus};
use store::testing::{TestDatabase, on_each_database};
use store::{Precondition, Store, StoreError};

const KIND: SecretKind = SecretKind::Password;

fn vault(store: &Store, path: &Path) -> Vault {
    Vault::new(store.clone(), KeySource::File(path.to_owned()))
}

fn given(store: &Store, keys: &str) -> Vault {
    Vault::new(store.clone(), KeySource::Given(Secret::new(keys.to_owned())))
}

fn extra(path: &Path, extension: &str) -> PathBuf {
    PathBuf::from(format!("{}.{extension}", path.display()))
}

async fn tenant(store: &Store, name: &str) -> TenantId {
    store.system().create_tenant(name, PlanTier::Standard).await.unwrap().unwrap().id
}

async fn put(vault: &Vault, store: &Store, tenant: TenantId, id: SecretId, plain: &str) {
    let sealed = vault.seal(tenant, id, KIND, &Secret::new(plain.to_owned())).await.unwrap();
    let mut unit = store.tenant(tenant).write();
    unit.put_secret(&sealed);
    unit.commit().await.unwrap();
}

/// Stores a secret while keys are rotated. One that was sealed two rotations before it is stored is refused, and sealed
/// again.
async fn put_during_rotations(vault: &Vault, store: &Store, tenant: TenantId, id: SecretId, plain: &str) {
    loop {
        let sealed = vault.seal(tenant, id, KIND, &Secret::new(plain.to_owned())).await.unwrap();
        let mut unit = store.tenant(tenant).write();
        unit.put_secret(&sealed);
        match unit.commit().await {
            Err(StoreError::Precondition(Precondition::ReferentGone)) => {}
            outcome => return drop(outcome.unwrap()),
        }
    }
}

async fn opened(vault: &Vault, tenant: TenantId, id: SecretId) -> String {
    vault.open_text(tenant, id, KIND).await.unwrap().unwrap().expose().clone()
}

async fn refused(vault: &Vault) -> String {
    match vault.unlock().await {
        Err(VaultError::Key(sentence)) => sentence,
        other => panic!("{other:?}"),
    }
}

fn assert_damaged(outcome: Result<Option<Secret<Vec<u8>>>, VaultError>) {
    assert!(matches!(outcome, Err(VaultError::Damaged(_))), "{outcome:?}");
}

#[tokio::test]
async fn stored_secret_is_read_back_with_the_key() {
    on_each_database(|db| async move {
        let folder = tempfile::tempdir().unwrap();
        let (path, acme) = (folder.path().join("keys/master.key"), tenant(&db.store, "acme").await);
        let id = SecretId::new(db.store.clock());
        let first = vault(&db.store, &path);

        assert_eq!(first.status().await.unwrap(), VaultStatus::None);
        put(&first, &db.store, acme, id, "hunter2").await;
        let second = vault(&db.second_store(), &path);

        assert_eq!(opened(&first, acme, id).await, "hunter2");
        assert_eq!(opened(&second, acme, id).await, "hunter2");
        assert_eq!(second.open(acme, SecretId::new(db.store.clock()), KIND).await.unwrap(), None);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert_eq!(second.status().await.unwrap(), VaultStatus::Ready(first.unlock().await.unwrap()));
    })
    .await;
}

#[tokio::test]
async fn ciphertext_opens_only_in_its_place() {
    on_each_database(|db| async move {
        let folder = tempfile::tempdir().unwrap();
        let vault = vault(&db.store, &folder.path().join("master.key"));
        let (acme, other) = (tenant(&db.store, "acme").await, tenant(&db.store, "other").await);
        let [id, second] = [(); 2].map(|()| SecretId::new(db.store.clock()));
        put(&vault, &db.store, acme, id, "hunter2").await;
        put(&vault, &db.store, acme, second, "hunter3").await;
        put(&vault, &db.store, other, id, "hunter4").await;
        let set = |from: (TenantId, SecretId), to: (TenantId, SecretId)| {
            format!(
                "update secrets set ciphertext = (select ciphertext from secrets where tenant_id = '{}' and id = '{}')
                 where tenant_id = '{}' and id = '{}'",
                from.0, from.1, to.0, to.1
            )
        };

        assert_damaged(vault.open(acme, id, SecretKind::RefreshToken).await);
        db.run(&set((acme, id), (acme, second))).await;
        assert_damaged(vault.open(acme, second, KIND).await);
        db.run(&set((acme, id), (other, id))).await;
        assert_damaged(vault.open(other, id, KIND).await);
        // Together with its key.
        db.run(&format!(
            "update tenant_keys set wrapped = (select wrapped from tenant_keys where tenant_id = '{acme}')
             where tenant_id = '{other}'"
        ))
        .await;
        let fresh = Vault::new(db.store.clone(), KeySource::File(folder.path().join("master.key")));
        assert_damaged(fresh.open(other, id, KIND).await);
        let error = fresh.open(other, id, KIND).await.unwrap_err().to_string();
        assert!(error.contains("cannot be decrypted") && !error.contains("hunter"), "{error}");
        assert_eq!(opened(&fresh, acme, id).await, "hunter2");
    })
    .await;
}

#[tokio::test]
async fn concurrent_starts_agree_on_one_key() {
    on_each_database(|db| async move {
        let folder = tempfile::tempdir().unwrap();
        let (path, acme) = (folder.path().join("master.key"), tenant(&db.store, "acme").await);
        let tries = (0..8).map(|n| {
            let store = if n % 2 == 0 { db.store.clone() } else { db.second_store() };
            let (vault, id) = (vault(&store, &path), SecretId::new(db.store.clock()));
            tokio::spawn(async move {
                put(&vault, &store, acme, id, &format!("secret {n}")).await;
                (id, format!("secret {n}"))
            })
        });
        let tries: Vec<_> = tries.collect();

        let fresh = vault(&db.store, &path);
        for outcome in tries {
            let (id, plain) = outcome.await.unwrap();
            assert_eq!(opened(&fresh, acme, id).await, plain);
        }
        assert_eq!(db.store.tenant(acme).list_keys().await.unwrap().len(), 1);
        assert_eq!(db.store.system().list_master_fingerprints().await.unwrap().len(), 1);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    })
    .await;
}

/// Several machines, each with a folder of its own: one key or no start.
#[tokio::test]
async fn concurrent_starts_elsewhere_name_the_key() {
    on_each_database(|db| async move {
        let folders: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
        let vaults: Vec<_> =
            folders.iter().map(|folder| vault(&db.second_store(), &folder.path().join("master.key"))).collect();
        let tries: Vec<_> =
            vaults.iter().cloned().map(|vault| tokio::spawn(async move { vault.unlock().await })).collect();
        let mut outcomes = Vec::new();
        for outcome in tries {
            outcomes.push(outcome.await.unwrap());
        }

        let [current] = db.store.system().list_master_fingerprints().await.unwrap().try_into().unwrap();
        let ready: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).collect();
        assert_eq!(ready, [&current.fingerprint]);
        for (outcome, folder) in outcomes.iter().zip(&folders) {
            let path = folder.path().join("master.key");
            assert_eq!(path.exists(), outcome.is_ok());
            if let Err(e) = outcome {
                let wanted =
                    format!("the fingerprint {}, and there is none at {}", current.fingerprint, path.display());
                assert!(e.to_string().contains(&wanted), "{e}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn wrong_key_is_refused_with_advice() {
    on_each_database(|db| async move {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("master.key");
        let right = vault(&db.store, &path).unlock().await.unwrap();
        let line = fs::read_to_string(&path).unwrap();
        let say = async || refused(&vault(&db.store, &path)).await;

        fs::remove_file(&path).unwrap();
        let missing = say().await;
        assert!(missing.contains(&right) && missing.contains(path.to_str().unwrap()), "{missing}");
        assert!(!path.exists(), "no second key is made");
        fs::write(&path, format!("{}\n", "ab".repeat(32))).unwrap();
        let open = say().await;
        assert!(open.contains("mode 644") && open.contains(&format!("chmod 600 {}", path.display())), "{open}");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let wrong = say().await;
        assert!(wrong.contains(&format!("the fingerprint {right}")) && wrong.contains("the one in"), "{wrong}");
        fs::write(&path, line.replacen("mr_master1_", "mr_master1_0", 1)).unwrap();
        let damaged = say().await;
        assert!(damaged.contains("the key is truncated, or has something added"), "{damaged}");
        assert!(!damaged.contains(&line[11..30]));
        fs::write(&path, &line).unwrap();
        for mode in [0o640, 0o604, 0o620] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(say().await.contains("chmod 600"), "{mode:o}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        assert_eq!(vault(&db.store, &path).unlock().await.unwrap(), right);
        assert_eq!(given(&db.store, line.trim()).unlock().await.unwrap(), right);
        let other = refused(&given(&db.store, &"cd".repeat(32))).await;
        assert!(other.contains(&right) && other.contains("the setting secrets.key"), "{other}");
        let nonsense = refused(&given(&db.store, "hunter2")).await;
        assert!(nonsense.contains("64 hexadecimal digits") && !nonsense.contains("hunter2"), "{nonsense}");
    })
    .await;
}

#[tokio::test]
async fn existing_key_file_is_used() {
    on_each_database(|db| async move {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("master.key");
        let key = "ab".repeat(32);
        fs::write(&path, &key).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();

        let vault = vault(&db.store, &path);
        let VaultStatus::Unused(unused) = vault.status().await.unwrap() else { panic!() };

        assert_eq!(vault.unlock().await.unwrap(), unused);
        assert_eq!(fs::read_to_string(&path).unwrap(), key);
    })
    .await;
}

/// Tenants with secrets, and who reads them meanwhile.
async fn filled(db: &TestDatabase, vault: &Vault) -> Vec<(TenantId, SecretId, String)> {
    let mut secrets = Vec::new();
    for name in ["acme", "other", "third"] {
        let tenant = tenant(&db.store, name).await;
        for n in 0..3 {
            let (id, plain) = (SecretId::new(db.store.clock()), format!("{name} {n}"));
            put(vault, &db.store, tenant, id, &plain).await;
            secrets.push((tenant, id, plain));
        }
    }
    secrets
}

#[tokio::test]
async fn rotation_reencrypts_everything() {
    on_each_database(|db| async move {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("master.key");
        let server = vault(&db.second_store(), &path);
        let secrets = filled(&db, &server).await;
        let (acme, id, _) = secrets[0].clone();
        let before = db.store.tenant(acme).find_secret(id).await.unwrap().unwrap();
        let old = server.unlock().await.unwrap();
        let old_line = fs::read_to_string(&path).unwrap();

        let rotated = vault(&db.store, &path).rotate(None).await.unwrap();

        assert_eq!((rotated.tenants, rotated.secrets, rotated.damaged.len()), (3, 9, 0));
        assert_eq!(rotated.retired, [old]);
        let after = db.store.tenant(acme).find_secret(id).await.unwrap().unwrap();
        assert_eq!((before.key_version, after.key_version), (1, 2));
        assert_ne!(before.ciphertext, after.ciphertext);
        for (tenant, id, plain) in &secrets {
            assert_eq!(&opened(&server, *tenant, *id).await, plain);
        }
        put(&server, &db.store, acme, id, "newer").await;
        assert_eq!(opened(&vault(&db.store, &path), acme, id).await, "newer");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let refused = refused(&given(&db.store, &old_line)).await;
        assert!(refused.contains(&rotated.fingerprint), "{refused}");
        // A second one takes away the keys that nothing needs.
        vault(&db.store, &path).rotate(None).await.unwrap();
        let versions = db.store.tenant(acme).list_keys().await.unwrap();
        assert_eq!(versions.iter().map(|key| key.version).collect::<Vec<_>>(), [2, 3]);
    })
    .await;
}

#[tokio::test]
async fn secret_stored_during_a_rotation_is_kept() {
    on_each_database(|db| async move {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("master.key");
        let server = vault(&db.second_store(), &path);
        let secrets = filled(&db, &server).await;
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let writers: Vec<_> = secrets
            .iter()
            .map(|(tenant, id, _)| {
                let (server, store, stopped) = (server.clone(), db.store.clone(), stopped.clone());
                let (tenant, id) = (*tenant, *id);
                tokio::spawn(async move {
                    let mut round = 0_u32;
                    while !*stopped.borrow() || round == 0 {
                        round += 1;
                        put_during_rotations(&server, &store, tenant, id, &format!("round {round}")).await;
                        assert_eq!(opened(&server, tenant, id).await, format!("round {round}"));
                    }
                    format!("round {round}")
                })
            })
            .collect();
        // New tenants come meanwhile, too.
        let (newcomers, store, stopped) = (server.clone(), db.store.clone(), stopped.clone());
        let newcomers = tokio::spawn(async move {
            let mut made = Vec::new();
            while !*stopped.borrow() {
                let tenant = tenant(&store, &format!("newcomer {}", made.len())).await;
                let id = SecretId::new(store.clock());
                put_during_rotations(&newcomers, &store, tenant, id, "new").await;
                made.push((tenant, id));
            }
            made
        });

        for _ in 0..5 {
            vault(&db.store, &path).rotate(None).await.unwrap();
        }
        stop.send_replace(true);

        let fresh = vault(&db.store, &path);
        for ((tenant, id, _), writer) in secrets.iter().zip(writers) {
            let last = writer.await.unwrap();
            assert_eq!(opened(&fresh, *tenant, *id).await, last);
        }
        let newcomers = newcomers.await.unwrap();
        assert!(!newcomers.is_empty());
        for (tenant, id) in newcomers {
            assert_eq!(opened(&fresh, tenant, id).await, "new");
        }
    })
    .await;
}

#[tokio::test]
async fn predistributed_key_is_rotated_to() {
    on_each_database(|db| async move {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (here, there) = (here.path().join("master.key"), there.path().join("master.key"));
        let vault_here = vault(&db.store, &here);
        let secrets = filled(&db, &vault_here).await;
        fs::copy(&here, &there).unwrap();
        let elsewhere = vault(&db.second_store(), &there);
        elsewhere.unlock().await.unwrap();
        for path in [&here, &there] {
            fs::write(extra(path, "new"), "ef".repeat(32)).unwrap();
            fs::set_permissions(extra(path, "new"), Permissions::from_mode(0o600)).unwrap();
        }

        let rotated = vault_here.rotate(None).await.unwrap();

        assert_eq!(rotated.fingerprint, given(&db.store, &"ef".repeat(32)).unlock().await.unwrap());
        for (tenant, id, plain) in &secrets {
            assert_eq!(&opened(&elsewhere, *tenant, *id).await, plain);
        }
        assert_eq!(vault(&db.store, &there).unlock().await.unwrap(), rotated.fingerprint, "it starts again, too");
    })
    .await;
}

#[tokio::test]
async fn key_from_settings_is_rotated_to_another() {
    on_each_database(|db| async move {
        let (old, new) = ("ab".repeat(32), "cd".repeat(32));
        let secrets = filled(&db, &given(&db.store, &old)).await;
        let alone = given(&db.store, &old).rotate(None).await.unwrap_err().to_string();
        assert!(alone.contains("both keys, separated by a comma"), "{alone}");
        let server = given(&db.second_store(), &format!("{old},{new}"));
        server.unlock().await.unwrap();

        let rotated = given(&db.store, &format!("{old},{new}")).rotate(None).await.unwrap();

        assert_eq!(rotated.secrets, 9);
        for (tenant, id, plain) in &secrets {
            assert_eq!(&opened(&server, *tenant, *id).await, plain);
            assert_eq!(&opened(&given(&db.store, &new), *tenant, *id).await, plain);
        }
        assert!(refused(&given(&db.store, &old)).await.contains(&rotated.fingerprint));
    })
    .await;
}

#[tokio::test]
async fn rotation_names_damaged_secrets() {
    on_each_database(|db| async move {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("master.key");
        let secrets = filled(&db, &vault(&db.store, &path)).await;
        let (_, damaged, _) = secrets[0];
        let (lost, _, _) = secrets[8];
        db.run(&format!("update secrets set kind = 'access_token' where id = '{damaged}'")).await;
        db.run(&format!("update tenant_keys set version = version, wrapped = ciphertext from (select ciphertext from secrets limit 1) s where tenant_id = '{lost}'")).await;

        let rotated = vault(&db.store, &path).rotate(None).await.unwrap();

        assert_eq!((rotated.tenants, rotated.secrets), (2, 5));
        assert!(rotated.retired.is_empty(), "something needs it still");
        let told = rotated.damaged.join("; ");
        assert!(told.contains(&damaged.to_string()) && told.contains(&lost.to_string()), "{told}");
        assert!(extra(&path, "old").exists());
        for (tenant, id, plain) in &secrets[1..6] {
            assert_eq!(&opened(&vault(&db.store, &path), *tenant, *id).await, plain);
        }
    })
    .await;
}
