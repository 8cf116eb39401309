//! P8: what opens mailboxes is found nowhere, keys are checked at the start, and a rotation that dies anywhere ends well.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use domain::{Secret, SecretId, SecretKind, SystemClock, TenantId};
use engine::Vault;
use engine::credentials::secrets::{KeySource, VaultError};
use jobs::{Job, JobError, JobKind, JobKinds, SystemRandom, Worker, WorkerSettings, new_job};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::failpoint::{Effect, VARIABLE};
use store::{Location, Store};

use crate::installation::{CommandOutput, PROGRAM, TestInstallation, block_on, files_below, on_each_database};
use crate::processes::{RunningProcess, UnprivilegedUser, wait_until};

const WEB_ANYWHERE: (&str, &str) = ("MAILROOM_SERVER__LISTEN", "127.0.0.1:0");

fn key_file(mailroom: &TestInstallation) -> PathBuf {
    mailroom.data_dir().join("master.key")
}

fn extra(mailroom: &TestInstallation, extension: &str) -> PathBuf {
    mailroom.data_dir().join(format!("master.key.{extension}"))
}

/// Opens the same database and key, without the program.
fn vault(mailroom: &TestInstallation) -> (Store, Vault) {
    let location = match mailroom.url() {
        None => Location::Sqlite { path: mailroom.data_dir().join("mailroom.db"), connections: 2 },
        Some(url) => Location::Postgres { url: url.to_owned(), connections: 2 },
    };
    let store = Store::open(&location, Arc::new(SystemClock)).unwrap();
    (store.clone(), Vault::new(store, KeySource::File(key_file(mailroom))))
}

fn make_tenant(mailroom: &TestInstallation, name: &str) -> TenantId {
    mailroom.ok(&["tenant", "create", name]);
    let made = mailroom.tenants().into_iter().find(|tenant| tenant["name"] == name).unwrap();
    made["id"].as_str().unwrap().parse().unwrap()
}

fn put(mailroom: &TestInstallation, tenant: TenantId, kind: SecretKind, plain: &str) -> SecretId {
    block_on(async {
        let (store, vault) = vault(mailroom);
        let id = SecretId::new(&SystemClock);
        let sealed = vault.seal(tenant, id, kind, &Secret::new(plain.to_owned())).await.unwrap();
        let mut unit = store.tenant(tenant).write();
        unit.put_secret(&sealed);
        unit.commit().await.unwrap();
        id
    })
}

fn open(mailroom: &TestInstallation, tenant: TenantId, id: SecretId, kind: SecretKind) -> Result<String, VaultError> {
    let found = block_on(async { vault(mailroom).1.open_text(tenant, id, kind).await });
    found.map(|secret| secret.unwrap().expose().clone())
}

/// Starts a server and waits until it is up. Its output goes into a file.
fn start(mut command: Command, said: &Path) -> RunningProcess {
    let out = File::create(said).unwrap();
    command.envs([WEB_ANYWHERE]).stdout(out.try_clone().unwrap()).stderr(out);
    let mut running = RunningProcess::spawn(&mut command);
    wait_until("a server is up", || running.has_ended() || fs::read_to_string(said).unwrap().contains(" listens on "));
    assert!(!running.has_ended(), "{}", fs::read_to_string(said).unwrap());
    running
}

/// Returns the output of a server from its start to its end.
fn serve(mailroom: &TestInstallation, variables: &[(&str, &str)], meanwhile: impl FnOnce(&RunningProcess)) -> String {
    let said = mailroom.path("serve.txt");
    let mut command = mailroom.command(PROGRAM, &["serve"]);
    command.envs(variables.iter().copied());
    let running = start(command, &said);
    meanwhile(&running);
    running.terminate();
    assert_eq!(running.finish().code, Some(0));
    fs::read_to_string(said).unwrap()
}

fn refused_start(mailroom: &TestInstallation, variables: &[(&str, &str)], says: &[&str]) {
    let variables = [variables, &[WEB_ANYWHERE]].concat();
    mailroom.run_with(&variables, &["serve"]).assert_refused(2, says);
}

fn fingerprints(mailroom: &TestInstallation) -> Vec<String> {
    mailroom.select("select fingerprint from key_fingerprints where name = 'master' order by fingerprint")
}

#[test]
fn start_needs_the_key_of_the_database() {
    on_each_database(|mailroom| {
        mailroom.ok(&["tenant", "list"]);
        assert!(!key_file(mailroom).exists(), "who has no secrets needs no key");
        assert!(mailroom.ok(&["doctor"]).text().contains("none yet; the first start creates"));

        serve(mailroom, &[], |_| {});

        let path = key_file(mailroom);
        let shown = path.to_str().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let [wanted] = fingerprints(mailroom).try_into().unwrap();
        assert!(mailroom.ok(&["doctor"]).text().contains(&format!("master key {wanted}, the one of this database")));
        let key = fs::read_to_string(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        refused_start(mailroom, &[], &["can be read or written by others (mode 644)", &format!("chmod 600 {shown}`")]);
        assert!(mailroom.run(&["doctor"]).text().contains("BAD  keys"));
        fs::remove_file(&path).unwrap();
        refused_start(mailroom, &[], &[&wanted, &format!("there is none at {shown}")]);
        assert!(!path.exists());
        mailroom.ok(&["tenant", "list"]);
        let other = mailroom.write("other.key", "ab".repeat(32));
        fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
        refused_start(
            mailroom,
            &[("MAILROOM_SECRETS__KEY_FILE", &other)],
            &[&wanted, &format!("the one in {other} is")],
        );
        refused_start(mailroom, &[("MAILROOM_SECRETS__KEY", &"ab".repeat(32))], &[&wanted, "the setting secrets.key"]);
        refused_start(
            mailroom,
            &[("MAILROOM_SECRETS__KMS_URL", "https://x")],
            &["secrets.kms_url", "not supported yet"],
        );
        let both = [("MAILROOM_SECRETS__KEY", "x"), ("MAILROOM_SECRETS__KEY_FILE", other.as_str())];
        refused_start(mailroom, &both, &["are both given"]);
        serve(mailroom, &[("MAILROOM_SECRETS__KEY", key.trim())], |_| {});
        assert!(!path.exists());
        assert_eq!(fingerprints(mailroom), [wanted]);
    });
}

#[test]
fn concurrent_servers_share_one_key() {
    let mailroom = TestInstallation::postgres();

    let running: Vec<RunningProcess> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..3)
            .map(|n| {
                let said = mailroom.path(&format!("server {n}"));
                let mailroom = &mailroom;
                scope.spawn(move || start(mailroom.command(PROGRAM, &["serve"]), &said))
            })
            .collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });

    assert_eq!(fingerprints(&mailroom).len(), 1);
    for server in running {
        server.terminate();
        assert_eq!(server.finish().code, Some(0));
    }
}

#[test]
fn server_leaves_no_core_dump() {
    let mailroom = TestInstallation::sqlite();
    let nobody = UnprivilegedUser::new(&mailroom);
    fs::create_dir(mailroom.data_dir()).unwrap();
    nobody.owns(&mailroom.data_dir());

    let running = start(nobody.command(&mailroom, &["serve"]), &mailroom.path("serve.txt"));

    let process = PathBuf::from(format!("/proc/{}", running.id()));
    let limits = fs::read_to_string(process.join("limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().collect::<Vec<_>>()[4..6], ["0", "0"], "{core}");
    // The system gives what is about a process that is not dumpable to root, whoever it runs as.
    assert_eq!(fs::metadata(process.join("environ")).unwrap().uid(), 0);
    running.terminate();
    assert_eq!(running.finish().code, Some(0));
}

/// Creates three tenants with a secret of each kind.
fn fill(mailroom: &TestInstallation) -> Vec<(TenantId, SecretId, SecretKind, String)> {
    let mut secrets = Vec::new();
    for name in ["acme", "other", "third"] {
        let tenant = make_tenant(mailroom, name);
        for kind in SecretKind::ALL {
            let plain = format!("{name} {}", kind.as_str());
            secrets.push((tenant, put(mailroom, tenant, kind, &plain), kind, plain));
        }
    }
    secrets
}

fn rotate(mailroom: &TestInstallation, failpoints: &str) -> CommandOutput {
    CommandOutput::of(mailroom.command(PROGRAM, &["secrets", "rotate", "--json"]).env(VARIABLE, failpoints))
}

/// Rotates keys, with a death at each effect. Also in the middle of a rotation, secrets can be read.
fn dies_at_each(mailroom: &TestInstallation) {
    let secrets = fill(mailroom);
    let assert_readable = |when: &str| {
        for (tenant, id, kind, plain) in &secrets {
            assert_eq!(&open(mailroom, *tenant, *id, *kind).unwrap(), plain, "{when}");
        }
    };
    // These are over before there is anything to rotate.
    let at_start = [Effect::RecordMasterKey, Effect::RecordOperatorKey, Effect::MakeTenantKey];
    let here = Effect::SECRETS.iter().filter(|effect| !at_start.contains(effect));
    for (effect, moment) in here.flat_map(|effect| ["before", "after"].map(|moment| (effect, moment))) {
        // The second pass is in the middle of what is done tenant by tenant.
        let pass = if [Effect::RotateTenantKey, Effect::SealAgain].contains(effect) { 2 } else { 1 };
        let failpoint = format!("{moment}:{}=crash@{pass}", effect.name());
        let before = fingerprints(mailroom);

        let died = rotate(mailroom, &failpoint);
        assert_eq!(died.code, None, "{failpoint} was never reached: {died}");
        assert_readable(&failpoint);
        let done = rotate(mailroom, "");

        assert_eq!(done.code, Some(0), "{failpoint}: {done}");
        assert_readable(&failpoint);
        let now = fingerprints(mailroom);
        assert_eq!(now.len(), 1, "{failpoint}");
        assert_ne!(now, before, "{failpoint}");
        assert!(!extra(mailroom, "old").exists() && !extra(mailroom, "new").exists(), "{failpoint}");
        assert_eq!(mailroom.select("select distinct master from tenant_keys"), now, "{failpoint}");
        let old = "select s.kind from secrets s where key_version <
                   (select max(version) from tenant_keys k where k.tenant_id = s.tenant_id)";
        assert_eq!(mailroom.select(old), Vec::<String>::new(), "{failpoint}");
    }
}

#[test]
fn interrupted_rotation_completes_when_repeated_on_sqlite() {
    dies_at_each(&TestInstallation::sqlite());
}

#[test]
fn interrupted_rotation_completes_when_repeated_on_postgresql() {
    dies_at_each(&TestInstallation::postgres());
}

#[test]
fn interrupted_first_start_completes_when_repeated() {
    on_each_database(|mailroom| {
        for effect in [Effect::MakeKeyFile, Effect::RecordMasterKey, Effect::RecordOperatorKey] {
            for moment in ["before", "after"] {
                mailroom.ok(&["tenant", "list"]);
                mailroom.sql("delete from key_fingerprints");
                let _ = fs::remove_file(key_file(mailroom));
                let failpoint = format!("{moment}:{}=crash", effect.name());
                let variables = [(VARIABLE, failpoint.as_str()), WEB_ANYWHERE];
                assert_eq!(mailroom.run_with(&variables, &["serve"]).code, None, "{failpoint}");

                serve(mailroom, &[], |_| {});

                assert_eq!(fingerprints(mailroom).len(), 1, "{failpoint}");
            }
        }
    });
}

#[test]
fn rotation_reports_what_it_did() {
    let mailroom = TestInstallation::sqlite();
    fill(&mailroom);
    let [before] = fingerprints(&mailroom).try_into().unwrap();
    let new = mailroom.write("new.key", "ab".repeat(32));

    let open = mailroom.run(&["secrets", "rotate", "--new-key-file", &new]);
    open.assert_refused(2, &["chmod 600"]);
    fs::set_permissions(&new, Permissions::from_mode(0o600)).unwrap();
    let rotated = mailroom.object(&["secrets", "rotate", "--new-key-file", &new]);

    let [now] = fingerprints(&mailroom).try_into().unwrap();
    assert_eq!(
        (rotated["tenants"].as_u64(), rotated["secrets"].as_u64()),
        (Some(3), Some(3 * SecretKind::ALL.len() as u64))
    );
    assert_eq!((&rotated["fingerprint"], &rotated["retired"]), (&Value::from(now), &Value::from(vec![before])));
    mailroom.run(&["secrets", "rotate", "--new-key-file", &new]).assert_refused(2, &["is the one that is in force"]);
    let told = mailroom.ok(&["secrets", "rotate"]).text();
    let all = 3 * SecretKind::ALL.len();
    assert!(told.contains(&format!("New keys: 3 tenants. Re-encrypted: {all} secrets.")), "{told}");
    assert!(!key_file(&mailroom).with_extension("key.old").exists());
}

/// A text that occurs nowhere by chance, in the forms in which it may be written.
struct Canary {
    plain: String,
    forms: Vec<Vec<u8>>,
}

impl Canary {
    fn is_at_rest(&self, mailroom: &TestInstallation) -> bool {
        everything_at_rest(mailroom).iter().any(|(_, bytes)| self.is_in(bytes))
    }

    fn new(kind: &str) -> Self {
        let plain = format!("Canary-{kind}-{}", SecretId::new(&SystemClock).0.simple());
        let bytes = plain.as_bytes();
        let mut forms = vec![bytes.to_vec(), plain.escape_debug().to_string().into_bytes()];
        let hex = domain::hash::hex(bytes);
        forms.extend([hex.to_uppercase().into_bytes(), hex.into_bytes()]);
        // As a list of numbers, the way that bytes are printed for us.
        forms.push(format!("{:?}", &bytes[2..12]).trim_matches(['[', ']']).as_bytes().to_vec());
        for engine in [STANDARD, URL_SAFE] {
            // Wherever it begins in a longer text; the ends depend on what stands beside it.
            for before in 0..3 {
                let encoded = engine.encode([vec![b'x'; before], bytes.to_vec()].concat()).into_bytes();
                forms.push(encoded[4..encoded.len() - 4].to_vec());
            }
        }
        Self { plain, forms }
    }

    fn is_in(&self, bytes: &[u8]) -> bool {
        self.forms.iter().any(|form| bytes.windows(form.len()).any(|window| window == form.as_slice()))
    }
}

/// Logs of this process.
#[derive(Clone, Default)]
struct Logs(Arc<Mutex<Vec<u8>>>);

impl Write for Logs {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Logs {
    /// Collects what this thread logs while this runs.
    fn of<T>(&self, work: impl FnOnce() -> T) -> T {
        let logs = self.clone();
        let subscriber = tracing_subscriber::fmt().with_env_filter("trace").with_writer(move || logs.clone()).finish();
        tracing::subscriber::with_default(subscriber, work)
    }
}

/// Returns everything that the database holds as text, and the files of SQLite.
fn everything_at_rest(mailroom: &TestInstallation) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<(String, Vec<u8>)> = Vec::new();
    for file in files_below(&mailroom.path("")) {
        found.push((file.display().to_string(), fs::read(&file).unwrap()));
    }
    if let Some(url) = mailroom.url() {
        let dump = Command::new("pg_dump").arg("--inserts").arg(store::testing::admin_url(url)).output().unwrap();
        assert!(String::from_utf8_lossy(&dump.stdout).contains("INSERT INTO public.secrets"), "{dump:?}");
        found.push(("pg_dump".to_owned(), dump.stdout));
    }
    found
}

#[test]
fn secret_canaries_are_found_nowhere() {
    on_each_database(|mailroom| {
        let acme = make_tenant(mailroom, "acme");
        let logs = Logs::default();
        let mut said = Vec::new();
        let trace = [("MAILROOM_LOG__LEVEL", "trace")];
        let canaries: Vec<(SecretKind, Canary)> =
            SecretKind::ALL.into_iter().map(|kind| (kind, Canary::new(kind.as_str()))).collect();

        let ids: Vec<SecretId> =
            logs.of(|| canaries.iter().map(|(kind, canary)| put(mailroom, acme, *kind, &canary.plain)).collect());
        // While the database is open, so that its log exists too.
        let at_rest = {
            let (store, _vault) = vault(mailroom);
            block_on(async { store.system().list_tenants().await }).unwrap();
            put(mailroom, acme, SecretKind::Password, &canaries[0].1.plain);
            everything_at_rest(mailroom)
        };
        let has_log = at_rest.iter().any(|(name, _)| name.ends_with("-wal"));
        assert!(!mailroom.is_sqlite() || has_log, "the log was looked at");
        // Everything that reads them, and everything that can go wrong with them.
        logs.of(|| {
            for ((kind, canary), id) in canaries.iter().zip(&ids) {
                assert_eq!(open(mailroom, acme, *id, *kind).unwrap(), canary.plain);
                let other = if *kind == SecretKind::Password { SecretKind::AccessToken } else { SecretKind::Password };
                let e = open(mailroom, acme, *id, other).unwrap_err();
                said.push((format!("{e} {e:?}"), "an error"));
                leave_a_dead_letter(mailroom, acme, *id, other);
            }
        });
        let dead = mailroom.objects(&["dead-letters", "list"]);
        assert_eq!(dead.len(), canaries.len());
        assert!(dead[0].to_string().contains("cannot be decrypted"), "{dead:?}");
        let rotated = mailroom.run_with(&trace, &["secrets", "rotate"]);
        assert_eq!(rotated.code, Some(0), "{rotated}");
        let served = serve(mailroom, &trace, |_| {
            assert_eq!(mailroom.run_with(&trace, &["doctor"]).code, Some(0));
            wait_until("more is logged than by default", || {
                fs::read_to_string(mailroom.path("serve.txt")).unwrap().contains("INFO")
            });
        });
        mailroom.ok(&["backup", "--out", "backup"]);
        said.extend([(rotated.to_string(), "secrets rotate"), (served, "serve")]);
        said.push((String::from_utf8_lossy(&logs.0.lock().unwrap()).into_owned(), "logs"));

        let said = said.into_iter().map(|(text, name)| (name.to_owned(), text.into_bytes()));
        let everything: Vec<_> = at_rest.into_iter().chain(everything_at_rest(mailroom)).chain(said).collect();
        for (name, bytes) in &everything {
            for (_, canary) in &canaries {
                assert!(!canary.is_in(bytes), "{name} holds {}", canary.plain);
            }
        }
        assert!(everything.len() > 5);
        assert_found_when_it_is_there(mailroom, acme, &canaries[0].1);
    });
}

#[derive(Serialize, Deserialize)]
struct ReadSecret {
    secret: SecretId,
    kind: String,
}

impl Job for ReadSecret {
    const KIND: &'static str = "read_secret";
}

/// A job that opens a secret under another kind, and fails with the error.
fn leave_a_dead_letter(mailroom: &TestInstallation, tenant: TenantId, secret: SecretId, kind: SecretKind) {
    let (store, vault) = vault(mailroom);
    let reads = JobKind::new(move |held: jobs::JobContext, job: ReadSecret| {
        let vault = vault.clone();
        async move {
            let kind = SecretKind::parse(&job.kind).unwrap();
            let outcome = vault.open(held.tenant(), job.secret, kind).await;
            let e = outcome.expect_err("it is of another kind");
            Err(JobError::Fatal { class: "secrets", message: format!("{e}: {e:?}") })
        }
    });
    let settings = WorkerSettings {
        name: "reader".to_owned(),
        lease: Duration::from_secs(10),
        poll: Duration::from_millis(200),
        io_slots: 1,
        cpu_slots: 1,
        remote_slots: 1,
        grace: Duration::from_secs(10),
    };
    block_on(async {
        let job = new_job(&ReadSecret { secret, kind: kind.as_str().to_owned() }, &SystemClock, None).unwrap();
        let id = job.id;
        let mut unit = store.tenant(tenant).write();
        unit.enqueue(vec![job]);
        unit.commit().await.unwrap();
        let worker = Worker::start(store.clone(), JobKinds::default().with(reads), settings, Arc::new(SystemRandom));
        let has_ended = async || !store.system().find_job(id).await.unwrap().unwrap().is_live();
        store::testing::wait_until("the secret is read", has_ended).await;
        worker.shut_down().await;
    });
}

/// Checks that the search finds a secret that is not encrypted, also as bytes in a row.
fn assert_found_when_it_is_there(mailroom: &TestInstallation, tenant: TenantId, canary: &Canary) {
    assert!(!canary.is_at_rest(mailroom));
    let bytes = domain::hash::hex(canary.plain.as_bytes());
    let literal = if mailroom.is_sqlite() { format!("x'{bytes}'") } else { format!("'\\x{bytes}'") };
    mailroom.sql(&format!("update secrets set ciphertext = {literal} where tenant_id = '{tenant}'"));
    assert!(canary.is_at_rest(mailroom), "a secret in plain is not found");
    assert!(canary.is_in(format!("{:?}", canary.plain.as_bytes()).as_bytes()));
    assert!(canary.is_in(STANDARD.encode(format!("user\0{}!", canary.plain)).as_bytes()));
}

#[test]
fn settings_do_not_show_the_key() {
    let mailroom = TestInstallation::sqlite();
    let key = "ab".repeat(32);

    let shown = mailroom.run_with(&[("MAILROOM_SECRETS__KEY", &key)], &["config", "show"]);

    assert!(shown.text().contains("secrets.key ") && shown.text().contains("***"), "{shown}");
    assert!(!shown.text().contains(&key[..16]), "{shown}");
    let wrong = mailroom.run_with(&[("MAILROOM_SECRETS__KEY", "hunter2")], &["secrets", "rotate"]);
    wrong.assert_refused(2, &["64 hexadecimal digits"]);
}
