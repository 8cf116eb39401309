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
use engine::secrets::{KeySource, VaultError};
use jobs::{Job, JobError, Kind, Kinds, Settings, SystemDice, Worker, new_job};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::failpoint::{Effect, VARIABLE};
use store::{Location, Store};

use crate::place::{Done, PROGRAM, Place, block_on, files_below, on_each_database};
use crate::processes::{Nobody, Running, wait_until};

const WEB_ANYWHERE: (&str, &str) = ("MAILROOM_SERVER__LISTEN", "127.0.0.1:0");

fn key_file(place: &Place) -> PathBuf {
    place.data_dir().join("master.key")
}

fn extra(place: &Place, extension: &str) -> PathBuf {
    place.data_dir().join(format!("master.key.{extension}"))
}

/// The same database and key, without the program.
fn vault(place: &Place) -> (Store, Vault) {
    let location = match place.url() {
        None => Location::Sqlite { path: place.data_dir().join("mailroom.db"), connections: 2 },
        Some(url) => Location::Postgres { url: url.to_owned(), connections: 2 },
    };
    let store = Store::open(&location, Arc::new(SystemClock)).unwrap();
    (store.clone(), Vault::new(store, KeySource::File(key_file(place))))
}

fn make_tenant(place: &Place, name: &str) -> TenantId {
    place.ok(&["tenant", "create", name]);
    let made = place.tenants().into_iter().find(|tenant| tenant["name"] == name).unwrap();
    made["id"].as_str().unwrap().parse().unwrap()
}

fn put(place: &Place, tenant: TenantId, kind: SecretKind, plain: &str) -> SecretId {
    block_on(async {
        let (store, vault) = vault(place);
        let id = SecretId::new(&SystemClock);
        let sealed = vault.seal(tenant, id, kind, &Secret::new(plain.to_owned())).await.unwrap();
        let mut unit = store.tenant(tenant).write();
        unit.put_secret(&sealed);
        unit.commit().await.unwrap();
        id
    })
}

fn open(place: &Place, tenant: TenantId, id: SecretId, kind: SecretKind) -> Result<String, VaultError> {
    let found = block_on(async { vault(place).1.open_text(tenant, id, kind).await });
    found.map(|secret| secret.unwrap().expose().clone())
}

/// A server, once it has come up. What it says goes into a file.
fn start(mut command: Command, said: &Path) -> Running {
    let out = File::create(said).unwrap();
    command.envs([WEB_ANYWHERE]).stdout(out.try_clone().unwrap()).stderr(out);
    let mut running = Running::spawn(&mut command);
    wait_until("a server is up", || running.has_ended() || fs::read_to_string(said).unwrap().contains(" listens on "));
    assert!(!running.has_ended(), "{}", fs::read_to_string(said).unwrap());
    running
}

/// What a server said from its start to its end.
fn serve(place: &Place, variables: &[(&str, &str)], meanwhile: impl FnOnce(&Running)) -> String {
    let said = place.path("serve.txt");
    let mut command = place.command(PROGRAM, &["serve"]);
    command.envs(variables.iter().copied());
    let running = start(command, &said);
    meanwhile(&running);
    running.terminate();
    assert_eq!(running.finish().code, Some(0));
    fs::read_to_string(said).unwrap()
}

fn refused_start(place: &Place, variables: &[(&str, &str)], says: &[&str]) {
    let variables = [variables, &[WEB_ANYWHERE]].concat();
    place.run_with(&variables, &["serve"]).assert_refused(2, says);
}

fn fingerprints(place: &Place) -> Vec<String> {
    place.select("select fingerprint from key_fingerprints where name = 'master' order by fingerprint")
}

#[test]
fn a_start_needs_the_key_of_the_database() {
    on_each_database(|place| {
        place.ok(&["tenant", "list"]);
        assert!(!key_file(place).exists(), "who has no secrets needs no key");
        assert!(place.ok(&["doctor"]).text().contains("none yet; the first start makes"));

        serve(place, &[], |_| {});

        let path = key_file(place);
        let shown = path.to_str().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let [wanted] = fingerprints(place).try_into().unwrap();
        assert!(place.ok(&["doctor"]).text().contains(&format!("master key {wanted}, the one of this database")));
        let key = fs::read_to_string(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        refused_start(place, &[], &["can be read or written by others (mode 644)", &format!("chmod 600 {shown}`")]);
        assert!(place.run(&["doctor"]).text().contains("BAD  keys"));
        fs::remove_file(&path).unwrap();
        refused_start(place, &[], &[&wanted, &format!("there is none at {shown}")]);
        assert!(!path.exists());
        place.ok(&["tenant", "list"]);
        let other = place.write("other.key", "ab".repeat(32));
        fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
        refused_start(place, &[("MAILROOM_SECRETS__KEY_FILE", &other)], &[&wanted, &format!("the one in {other} is")]);
        refused_start(place, &[("MAILROOM_SECRETS__KEY", &"ab".repeat(32))], &[&wanted, "the setting secrets.key"]);
        refused_start(place, &[("MAILROOM_SECRETS__KMS_URL", "https://x")], &["secrets.kms_url", "a later release"]);
        let both = [("MAILROOM_SECRETS__KEY", "x"), ("MAILROOM_SECRETS__KEY_FILE", other.as_str())];
        refused_start(place, &both, &["are both given"]);
        serve(place, &[("MAILROOM_SECRETS__KEY", key.trim())], |_| {});
        assert!(!path.exists());
        assert_eq!(fingerprints(place), [wanted]);
    });
}

#[test]
fn servers_that_start_at_once_share_one_key() {
    let place = Place::postgres();

    let running: Vec<Running> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..3)
            .map(|n| {
                let said = place.path(&format!("server {n}"));
                let place = &place;
                scope.spawn(move || start(place.command(PROGRAM, &["serve"]), &said))
            })
            .collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });

    assert_eq!(fingerprints(&place).len(), 1);
    for server in running {
        server.terminate();
        assert_eq!(server.finish().code, Some(0));
    }
}

#[test]
fn a_server_leaves_no_image_of_its_memory() {
    let place = Place::sqlite();
    let nobody = Nobody::new(&place);
    fs::create_dir(place.data_dir()).unwrap();
    nobody.owns(&place.data_dir());

    let running = start(nobody.command(&place, &["serve"]), &place.path("serve.txt"));

    let process = PathBuf::from(format!("/proc/{}", running.id()));
    let limits = fs::read_to_string(process.join("limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().collect::<Vec<_>>()[4..6], ["0", "0"], "{core}");
    // The system gives what is about a process that is not dumpable to root, whoever it runs as.
    assert_eq!(fs::metadata(process.join("environ")).unwrap().uid(), 0);
    running.terminate();
    assert_eq!(running.finish().code, Some(0));
}

/// Three tenants with a secret of each kind.
fn fill(place: &Place) -> Vec<(TenantId, SecretId, SecretKind, String)> {
    let mut secrets = Vec::new();
    for name in ["acme", "other", "third"] {
        let tenant = make_tenant(place, name);
        for kind in SecretKind::ALL {
            let plain = format!("{name} {}", kind.as_str());
            secrets.push((tenant, put(place, tenant, kind, &plain), kind, plain));
        }
    }
    secrets
}

fn rotate(place: &Place, failpoints: &str) -> Done {
    Done::of(place.command(PROGRAM, &["secrets", "rotate", "--json"]).env(VARIABLE, failpoints))
}

/// Also in the middle of it, a server starts and what is stored can be read.
fn dies_at_each(place: &Place) {
    let secrets = fill(place);
    let assert_readable = |when: &str| {
        for (tenant, id, kind, plain) in &secrets {
            assert_eq!(&open(place, *tenant, *id, *kind).unwrap(), plain, "{when}");
        }
    };
    // These are over before there is anything to rotate.
    let at_start = [Effect::RecordMasterKey, Effect::RecordOperatorKey, Effect::MakeTenantKey];
    let here = Effect::SECRETS.iter().filter(|effect| !at_start.contains(effect));
    for (effect, moment) in here.flat_map(|effect| ["before", "after"].map(|moment| (effect, moment))) {
        // The second pass is in the middle of what is done tenant by tenant.
        let pass = if [Effect::RotateTenantKey, Effect::SealAgain].contains(effect) { 2 } else { 1 };
        let failpoint = format!("{moment}:{}=crash@{pass}", effect.name());
        let before = fingerprints(place);

        let died = rotate(place, &failpoint);
        assert_eq!(died.code, None, "{failpoint} was never reached: {died}");
        assert_readable(&failpoint);
        let done = rotate(place, "");

        assert_eq!(done.code, Some(0), "{failpoint}: {done}");
        assert_readable(&failpoint);
        let now = fingerprints(place);
        assert_eq!(now.len(), 1, "{failpoint}");
        assert_ne!(now, before, "{failpoint}");
        assert!(!extra(place, "old").exists() && !extra(place, "new").exists(), "{failpoint}");
        assert_eq!(place.select("select distinct master from tenant_keys"), now, "{failpoint}");
        let old = "select s.kind from secrets s where key_version <
                   (select max(version) from tenant_keys k where k.tenant_id = s.tenant_id)";
        assert_eq!(place.select(old), Vec::<String>::new(), "{failpoint}");
    }
}

#[test]
fn a_rotation_that_dies_anywhere_ends_well_when_it_is_repeated_on_sqlite() {
    dies_at_each(&Place::sqlite());
}

#[test]
fn a_rotation_that_dies_anywhere_ends_well_when_it_is_repeated_on_postgresql() {
    dies_at_each(&Place::postgres());
}

#[test]
fn a_first_start_that_dies_anywhere_ends_well_when_it_is_repeated() {
    on_each_database(|place| {
        for effect in [Effect::MakeKeyFile, Effect::RecordMasterKey, Effect::RecordOperatorKey] {
            for moment in ["before", "after"] {
                place.ok(&["tenant", "list"]);
                place.sql("delete from key_fingerprints");
                let _ = fs::remove_file(key_file(place));
                let failpoint = format!("{moment}:{}=crash", effect.name());
                let variables = [(VARIABLE, failpoint.as_str()), WEB_ANYWHERE];
                assert_eq!(place.run_with(&variables, &["serve"]).code, None, "{failpoint}");

                serve(place, &[], |_| {});

                assert_eq!(fingerprints(place).len(), 1, "{failpoint}");
            }
        }
    });
}

#[test]
fn a_rotation_tells_what_it_did() {
    let place = Place::sqlite();
    fill(&place);
    let [before] = fingerprints(&place).try_into().unwrap();
    let new = place.write("new.key", "ab".repeat(32));

    let open = place.run(&["secrets", "rotate", "--new-key-file", &new]);
    open.assert_refused(2, &["chmod 600"]);
    fs::set_permissions(&new, Permissions::from_mode(0o600)).unwrap();
    let rotated = place.object(&["secrets", "rotate", "--new-key-file", &new]);

    let [now] = fingerprints(&place).try_into().unwrap();
    assert_eq!(
        (rotated["tenants"].as_u64(), rotated["secrets"].as_u64()),
        (Some(3), Some(3 * SecretKind::ALL.len() as u64))
    );
    assert_eq!((&rotated["fingerprint"], &rotated["retired"]), (&Value::from(now), &Value::from(vec![before])));
    place.run(&["secrets", "rotate", "--new-key-file", &new]).assert_refused(2, &["is the one that is in force"]);
    let told = place.ok(&["secrets", "rotate"]).text();
    let all = 3 * SecretKind::ALL.len();
    assert!(told.contains(&format!("New keys: 3 tenants. Encrypted anew: {all} secrets.")), "{told}");
    assert!(!key_file(&place).with_extension("key.old").exists());
}

/// A text that occurs nowhere by chance, in the forms in which it may be written.
struct Canary {
    plain: String,
    forms: Vec<Vec<u8>>,
}

impl Canary {
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
    /// Everything that is logged while this runs, by this thread.
    fn of<T>(&self, work: impl FnOnce() -> T) -> T {
        let logs = self.clone();
        let subscriber = tracing_subscriber::fmt().with_env_filter("trace").with_writer(move || logs.clone()).finish();
        tracing::subscriber::with_default(subscriber, work)
    }
}

/// Everything that the database holds, as text, and the files of an embedded one.
fn everything_at_rest(place: &Place) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<(String, Vec<u8>)> = Vec::new();
    for file in files_below(&place.path("")) {
        found.push((file.display().to_string(), fs::read(&file).unwrap()));
    }
    if let Some(url) = place.url() {
        let dump = Command::new("pg_dump").arg("--inserts").arg(store::testing::admin_url(url)).output().unwrap();
        assert!(String::from_utf8_lossy(&dump.stdout).contains("INSERT INTO public.secrets"), "{dump:?}");
        found.push(("pg_dump".to_owned(), dump.stdout));
    }
    found
}

#[test]
fn a_canary_of_each_kind_is_found_nowhere() {
    on_each_database(|place| {
        let acme = make_tenant(place, "acme");
        let logs = Logs::default();
        let mut said = Vec::new();
        let trace = [("MAILROOM_LOG__LEVEL", "trace")];
        let canaries: Vec<(SecretKind, Canary)> =
            SecretKind::ALL.into_iter().map(|kind| (kind, Canary::new(kind.as_str()))).collect();

        let ids: Vec<SecretId> =
            logs.of(|| canaries.iter().map(|(kind, canary)| put(place, acme, *kind, &canary.plain)).collect());
        // While somebody has the database open, so that its log is there too.
        let at_rest = {
            let (store, _vault) = vault(place);
            block_on(async { store.system().list_tenants().await }).unwrap();
            put(place, acme, SecretKind::Password, &canaries[0].1.plain);
            everything_at_rest(place)
        };
        let is_log = |(name, _): &(String, Vec<u8>)| name.ends_with("-wal");
        assert!(!place.is_sqlite() || at_rest.iter().any(is_log), "the log was looked at");
        // Everything that reads them, and everything that can go wrong with them.
        logs.of(|| {
            for ((kind, canary), id) in canaries.iter().zip(&ids) {
                assert_eq!(open(place, acme, *id, *kind).unwrap(), canary.plain);
                let other = if *kind == SecretKind::Password { SecretKind::AccessToken } else { SecretKind::Password };
                let e = open(place, acme, *id, other).unwrap_err();
                said.push((format!("{e} {e:?}"), "an error"));
                leave_a_dead_letter(place, acme, *id, other);
            }
        });
        let dead = place.objects(&["dead-letters", "list"]);
        assert_eq!(dead.len(), canaries.len());
        assert!(dead[0].to_string().contains("cannot be decrypted"), "{dead:?}");
        let rotated = place.run_with(&trace, &["secrets", "rotate"]);
        assert_eq!(rotated.code, Some(0), "{rotated}");
        let served = serve(place, &trace, |_| {
            assert_eq!(place.run_with(&trace, &["doctor"]).code, Some(0));
            let said = || fs::read_to_string(place.path("serve.txt")).unwrap();
            wait_until("more is logged than by default", || said().contains("INFO"));
        });
        place.ok(&["backup", "--out", "backup"]);
        said.extend([(rotated.to_string(), "secrets rotate"), (served, "serve")]);
        said.push((String::from_utf8_lossy(&logs.0.lock().unwrap()).into_owned(), "logs"));

        let said = said.into_iter().map(|(text, name)| (name.to_owned(), text.into_bytes()));
        let everything: Vec<_> = at_rest.into_iter().chain(everything_at_rest(place)).chain(said).collect();
        for (name, bytes) in &everything {
            for (_, canary) in &canaries {
                assert!(!canary.is_in(bytes), "{name} holds {}", canary.plain);
            }
        }
        assert!(everything.len() > 5);
        assert_found_when_it_is_there(place, acme, &canaries[0].1);
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

/// A job that opens a secret as what it is not, and says so.
fn leave_a_dead_letter(place: &Place, tenant: TenantId, secret: SecretId, kind: SecretKind) {
    let (store, vault) = vault(place);
    let reads = Kind::new(move |held: jobs::Held, job: ReadSecret| {
        let vault = vault.clone();
        async move {
            let kind = SecretKind::parse(&job.kind).unwrap();
            let outcome = vault.open(held.tenant(), job.secret, kind).await;
            let e = outcome.expect_err("it is of another kind");
            Err(JobError::Fatal { class: "secrets", message: format!("{e}: {e:?}") })
        }
    });
    let settings = Settings {
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
        let worker = Worker::start(store.clone(), Kinds::default().with(reads), settings, Arc::new(SystemDice));
        while store.system().find_job(id).await.unwrap().unwrap().is_live() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        worker.shut_down().await;
    });
}

/// The search above has teeth: it finds what is not encrypted, also as bytes in a row.
fn assert_found_when_it_is_there(place: &Place, tenant: TenantId, canary: &Canary) {
    let found = |place: &Place| everything_at_rest(place).iter().any(|(_, bytes)| canary.is_in(bytes));
    assert!(!found(place));
    let bytes = domain::hash::hex(canary.plain.as_bytes());
    let literal = if place.is_sqlite() { format!("x'{bytes}'") } else { format!("'\\x{bytes}'") };
    place.sql(&format!("update secrets set ciphertext = {literal} where tenant_id = '{tenant}'"));
    assert!(found(place), "a secret in plain is not found");
    assert!(canary.is_in(format!("{:?}", canary.plain.as_bytes()).as_bytes()));
    assert!(canary.is_in(STANDARD.encode(format!("user\0{}!", canary.plain)).as_bytes()));
}

#[test]
fn settings_do_not_show_the_key() {
    let place = Place::sqlite();
    let key = "ab".repeat(32);

    let shown = place.run_with(&[("MAILROOM_SECRETS__KEY", &key)], &["config", "show"]);

    assert!(shown.text().contains("secrets.key ") && shown.text().contains("***"), "{shown}");
    assert!(!shown.text().contains(&key[..16]), "{shown}");
    let wrong = place.run_with(&[("MAILROOM_SECRETS__KEY", "hunter2")], &["secrets", "rotate"]);
    wrong.assert_refused(2, &["64 hexadecimal digits"]);
}
