//! Against our simulator, with all that it offers and with next to nothing of it: whoever follows a mailbox ends with the
//! truth.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use connectors::imap::{Connection, Imap, Tls, try_out};
use domain::connector::{Account, Cursors, KnownFolder, NoAccess, Page};
use domain::{Clock, Connector, ConnectorError, MailboxId, Secret, SystemClock, TenantId};
use sim::imap::{CAPABILITIES, Fault, Kind, NewAccount, Operation, PASSWORD, Server, World};

use crate::model::{Model, Taken};

const ANN: &str = "ann@imap.example";

/// What old servers offer, what many do, and all.
const OFFERS: [&str; 4] = [
    "IMAP4rev1",
    "IMAP4rev1 AUTH=PLAIN UIDPLUS IDLE LITERAL+ ENABLE CONDSTORE SPECIAL-USE LIST-EXTENDED",
    "IMAP4rev1 SASL-IR AUTH=PLAIN ID ENABLE IDLE QRESYNC CONDSTORE LIST-EXTENDED LIST-STATUS ESEARCH UTF8=ACCEPT",
    CAPABILITIES,
];

struct Place {
    world: Arc<World>,
    connector: Imap,
    account: Account,
    model: Model,
    changes: Cursors,
    _server: Server,
}

impl Place {
    async fn new(messages: usize, seed: u64, capabilities: &str) -> Self {
        let world = Arc::new(World::new(seed, 20, Arc::new(|| SystemClock.now())));
        world.set_capabilities(capabilities);
        assert!(world.create(&NewAccount { address: ANN.to_owned(), messages, seed: Some(seed) }));
        let server = Server::start_here(&world).await.unwrap();
        let connection = Connection {
            host: "127.0.0.1".to_owned(),
            port: server.imap().port(),
            tls: Tls::None,
            user: ANN.to_owned(),
            auth: connectors::imap::Auth::Password,
            authority: None,
            compress: None,
        };
        let account = Account {
            tenant: TenantId::new(&SystemClock),
            mailbox: MailboxId::new(&SystemClock),
            address: ANN.to_owned(),
            settings: serde_json::to_string(&connection).unwrap(),
            secret: Some(Secret::new(PASSWORD.to_owned())),
            folders: Vec::new(),
            sweep_since: None,
            access: Arc::new(NoAccess),
        };
        let (connector, model) = (Imap::default(), Model::default());
        Self { world, connector, account, model, changes: Cursors::new(), _server: server }
    }

    fn take(&mut self, page: &Page, cursors: &mut Cursors) {
        self.model.apply(page, cursors);
        for folder in &page.folders {
            self.account.folders.retain(|known| known.id != folder.id);
            self.account.folders.push(KnownFolder {
                id: folder.id.clone(),
                name: folder.name.clone(),
                role: folder.role,
                delimiter: folder.delimiter.clone(),
                uid_validity: folder.uid_validity,
                is_in_scope: true,
            });
        }
        self.account.folders.retain(|known| !page.gone_folders.contains(&known.id));
    }

    /// Everything that has changed, with its bytes.
    async fn follow(&mut self) -> Result<(), ConnectorError> {
        loop {
            let page = self.connector.changes(&self.account, &self.changes).await?;
            let mut cursors = self.changes.clone();
            self.take(&page, &mut cursors);
            self.changes = cursors;
            if page.is_last {
                return self.fetch().await;
            }
        }
    }

    /// Everything that is there, in the order in which the engine asks for it.
    async fn begin(&mut self) {
        self.follow().await.unwrap();
        let (mut cursors, told) = (Cursors::new(), self.changes.clone());
        loop {
            let page = self.connector.history(&self.account, &cursors, &told, None).await.unwrap();
            self.take(&page, &mut cursors);
            if page.is_last {
                break;
            }
        }
        self.fetch().await.unwrap();
    }

    async fn fetch(&mut self) -> Result<(), ConnectorError> {
        let wanted = self.model.wanted();
        let mut taken = Taken::default();
        let outcome = self.connector.fetch(&self.account, &wanted, &mut taken).await;
        let failed = std::mem::take(&mut taken.failed);
        self.model.take(taken);
        match failed.into_values().find(|error| *error != ConnectorError::Gone) {
            Some(error) => Err(error),
            None => outcome,
        }
    }

    /// Every place with its flags and bytes: as it is told, and as it is.
    fn assert_is_true(&self, what: &str) {
        let truth = self.world.truth(ANN).unwrap();
        let mut is = BTreeMap::new();
        for (name, folder) in &truth.folders {
            for (uid, message) in &folder.messages {
                let flags: BTreeSet<String> =
                    message.flags.iter().map(|flag| flag.trim_start_matches('\\').to_lowercase()).collect();
                let place = (name.clone(), format!("{}.{uid}", folder.uid_validity));
                is.insert(place, format!("{flags:?} {} {}", message.size, message.sha256));
            }
        }
        let mut told = BTreeMap::new();
        for (place, known) in &self.model.places {
            let flags: BTreeSet<&String> = known.flags.iter().collect();
            let hash = self.model.fetched.get(&known.message).map(|(_, hash)| hash.hex()).unwrap_or_default();
            let name = self.model.folders[&place.folder].0.clone();
            told.insert((name, place.uid.clone()), format!("{flags:?} {} {hash}", known.size.unwrap_or(0)));
        }
        assert_eq!(told, is, "{what}");
        let names: BTreeSet<&String> = self.model.folders.values().map(|(name, _)| name).collect();
        assert_eq!(names, truth.folders.keys().collect(), "{what}");
        assert_eq!(self.world.violations(), [], "{what}");
    }
}

#[tokio::test]
async fn everything_that_is_there_comes_whatever_the_server_offers() {
    for offer in OFFERS {
        let mut place = Place::new(1_300, 3, offer).await;
        place.world.step(ANN, 60);
        assert_eq!(try_out(&place.account).await, Ok(()));

        place.begin().await;
        place.follow().await.unwrap();

        place.assert_is_true(offer);
    }
}

#[tokio::test]
async fn whoever_follows_a_mailbox_under_change_ends_with_the_truth_whatever_the_server_offers() {
    for offer in OFFERS {
        let mut place = Place::new(80, 7, offer).await;
        place.begin().await;

        for _ in 0..40 {
            place.world.step(ANN, 12);
            place.follow().await.unwrap();
        }

        place.follow().await.unwrap();
        place.assert_is_true(offer);
    }
}

#[tokio::test]
async fn whoever_follows_a_mailbox_under_faults_ends_with_the_truth() {
    for offer in [OFFERS[0], OFFERS[3]] {
        let mut place = Place::new(60, 9, offer).await;
        place.begin().await;
        let unavailable = Kind::No { code: Some("UNAVAILABLE".to_owned()), text: "Later.".to_owned() };
        let faults = [unavailable, Kind::Bye { text: "Restarting.".to_owned() }, Kind::Cut, Kind::Reset, Kind::CutBody];
        for kind in faults {
            place.world.add_fault(Fault::sometimes(kind, 0.01));
        }
        place.world.add_fault(Fault::sometimes(Kind::Slow { bytes: 512, ms: 1 }, 0.02));
        let mut refused = 0;
        for _ in 0..40 {
            place.world.step(ANN, 12);
            // As the engine does: what fails is asked for again.
            while let Err(e) = place.follow().await {
                assert!(!matches!(e, ConnectorError::CursorExpired | ConnectorError::Unauthorized(_)), "{e}");
                refused += 1;
            }
        }
        place.world.clear_faults();
        place.follow().await.unwrap();

        assert!(refused > 5, "{refused}");
        place.assert_is_true(offer);
    }
}

#[tokio::test]
async fn a_folder_that_is_another_one_under_its_name_is_told_anew() {
    for offer in OFFERS {
        let mut place = Place::new(40, 5, offer).await;
        place.begin().await;
        place.world.apply(ANN, Operation::Renumber { folder: "INBOX".to_owned() }).unwrap();
        place.world.step(ANN, 5);

        // The connection that had it open ends, and another one is made.
        while place.follow().await.is_err() {}
        place.follow().await.unwrap();

        place.assert_is_true(offer);
    }
}

#[tokio::test]
async fn whoever_listens_hears_new_mail_and_a_wrong_password_is_told_as_such() {
    let mut place = Place::new(3, 4, CAPABILITIES).await;
    place.begin().await;
    let listened = place.connector.listen(&place.account, Duration::from_secs(60)).unwrap();
    let mail = async {
        while place.world.listeners(ANN) == 0 {
            tokio::task::yield_now().await;
        }
        place.world.apply(ANN, Operation::deliver()).unwrap();
    };
    let (heard, ()) = tokio::join!(listened, mail);
    assert_eq!(heard, Ok(true));

    place.world.set_password(ANN, "another");
    place.world.disconnect(ANN);
    let fresh = Imap::default();
    let refused = fresh.changes(&place.account, &Cursors::new()).await.unwrap_err();
    assert!(matches!(refused, ConnectorError::Unauthorized(_)), "{refused}");
}
