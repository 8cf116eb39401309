//! The simulated Microsoft, where a refresh token is good for one use: whoever uses one twice loses the consent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use connectors::http::{Deadlines, Http};
use connectors::microsoft::{MicrosoftOAuth, MicrosoftSettings};
use domain::connector::{Account, Answer, Grant};
use domain::{Clock, MailboxState, Provider, Secret, SystemClock};
use serde_json::json;
use sim::microsoft::{CLIENT_ID, CLIENT_SECRET, Client, DirectoryChange, NewAccount, Server, World};
use store::testing::{migrated_sqlite, on_each_database};

use super::race::race;
use super::{Giver, SHORT, Scene};
use crate::alone::alone;

const ME: &str = "me@acme.test";

#[derive(Debug)]
struct Microsoft {
    world: Arc<World>,
    http: Http,
    oauth: MicrosoftOAuth,
    first: String,
    asked: AtomicU32,
    server: Server,
}

impl Microsoft {
    async fn strict() -> Self {
        let world = Arc::new(World::new(7, 20, Arc::new(|| SystemClock.now())));
        assert!(world.create(&NewAccount { address: ME.to_owned(), messages: 0, seed: None }));
        world.set_strict_refresh(true);
        let server = Server::start_here(world.clone()).await.unwrap();
        let settings = MicrosoftSettings {
            authority_url: server.url(),
            graph_url: server.url(),
            client_id: Some(CLIENT_ID.to_owned()),
            client_secret: Some(Secret::new(CLIENT_SECRET.to_owned())),
            ..MicrosoftSettings::default()
        };
        let http = Http::new(Deadlines::default()).unwrap();
        let oauth = MicrosoftOAuth::new(http.clone(), settings);
        let first = world.grant(ME).unwrap().refresh_token.unwrap();
        Self { world, http, oauth, first, asked: AtomicU32::new(0), server }
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }

    /// Consents that ended because something was used twice, and refreshes that met.
    fn lost_and_overlapping(&self) -> (u64, u64) {
        let counts = &self.world.token_counts()[ME];
        (counts.families_revoked, counts.overlapping)
    }
}

impl Giver for Microsoft {
    const PROVIDER: Provider = Provider::Outlook;

    fn first_secret(&self) -> String {
        self.first.clone()
    }

    fn give<'a>(&'a self, account: &'a Account) -> Answer<'a, Grant> {
        Box::pin(async {
            self.asked.fetch_add(1, Ordering::SeqCst);
            self.oauth.grant(account).await
        })
    }

    fn take_back<'a>(&'a self, _: &'a Account) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn takes<'a>(&'a self, token: &'a Secret<String>) -> Answer<'a, bool> {
        let request =
            self.http.client.get(format!("{}/v1.0/users/{ME}", self.server.url())).bearer_auth(token.expose());
        Box::pin(async move { Ok(self.http.done(request).await?.is_ok()) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_refresh_token_is_used_twice_however_many_ask() {
    on_each_database(|db| async move {
        let (scene, rounds) = race(&db, Microsoft::strict().await, 250).await;

        assert_eq!(scene.bank.lost_and_overlapping(), (0, 0));
        assert_eq!((rounds, scene.bank.asked()), (250, 250), "once each time that a token was refused");
    })
    .await;
}

#[test]
fn without_the_lease_a_consent_is_lost() {
    alone("tokens::microsoft::loses_a_consent", "off=token_lease");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by another test, with the lease switched off"]
async fn loses_a_consent() {
    let folder = tempfile::tempdir().unwrap();
    let db = migrated_sqlite(folder.path()).await;
    let (scene, _) = race(&db, Microsoft::strict().await, 250).await;

    assert!(scene.bank.lost_and_overlapping().0 > 0, "the test above would not notice");
}

#[test]
fn who_dies_with_a_new_refresh_token_in_hand_ends_in_needs_reauth_and_not_in_silence() {
    alone("tokens::microsoft::ends_in_needs_reauth", "before:store_token=panic");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by another test, with a failpoint that panics"]
async fn ends_in_needs_reauth() {
    let folder = tempfile::tempdir().unwrap();
    let db = migrated_sqlite(folder.path()).await;
    let mut scene = Scene::new(&db, Microsoft::strict().await).await;
    scene.settings = SHORT;
    let mailbox = scene.connect(ME).await;

    let dying = scene.instance(&db, "one", SHORT);
    dying.get(&scene.asker(mailbox), None).await.unwrap_err();
    drop(dying);
    assert_eq!(scene.bank.asked(), 1);
    scene.work(&db).await;

    // What is stored was used before, so with it the consent has ended: the owner is asked, once.
    let now = scene.mailbox(mailbox).await;
    assert_eq!(now.state, MailboxState::NeedsReauth);
    assert!(now.state_reason.unwrap().contains("connect it again"));
    let events = scene.store.list_events(0, 100).await.unwrap();
    assert_eq!(events.iter().filter(|event| event.data["state"] == "needs_reauth").count(), 1);
    assert_eq!((scene.bank.asked(), scene.bank.lost_and_overlapping().0), (2, 1));
    for _ in 0..3 {
        scene.ask_to_sync(&[mailbox]).await;
        scene.work(&db).await;
    }
    assert_eq!(scene.bank.asked(), 2, "nobody asks any more");
}

#[test]
fn who_outlives_it_still_has_what_came() {
    alone("tokens::microsoft::still_has_it", "before:store_token=panic");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by another test, with a failpoint that panics"]
async fn still_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let db = migrated_sqlite(folder.path()).await;
    let scene = Scene::new(&db, Microsoft::strict().await).await;
    let mailbox = scene.connect(ME).await;
    let (tokens, asker) = (scene.instance(&db, "one", SHORT), scene.asker(mailbox));

    tokens.get(&asker, None).await.unwrap_err();
    let token = tokens.get(&asker, None).await.unwrap();

    assert!(scene.bank.takes(&token).await.unwrap());
    assert_eq!(scene.bank.asked(), 1);
    let next = tokens.get(&asker, Some(&token)).await.unwrap();
    assert!(scene.bank.takes(&next).await.unwrap());
    assert_eq!((scene.bank.asked(), scene.bank.lost_and_overlapping().0), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_has_expired_is_nobodys_but_the_operators() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Microsoft::strict().await).await;
        scene.bank.world.register_client(Client { secret_expired: true, ..Client::for_tests() });
        let mut mailboxes = Vec::new();
        for n in 0..20 {
            mailboxes.push(scene.connect(&format!("owner{n}@acme.test")).await);
            let connection = json!({"app_only": true});
            mailboxes.push(scene.connect_as(&format!("app{n}@acme.test"), connection, None).await);
        }

        scene.work(&db).await;

        assert!(scene.bank.asked() <= 8, "{} calls, for it is one app", scene.bank.asked());
        for mailbox in mailboxes {
            assert_eq!(scene.mailbox(mailbox).await.state, MailboxState::Connecting, "it is not the mailbox's fault");
            let error = scene.store.find_sync(mailbox).await.unwrap().unwrap().last_error.unwrap();
            assert!(error.contains("expired"), "{error}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_has_not_let_us_in_concerns_its_own_mailboxes_only() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Microsoft::strict().await).await;
        let world = &scene.bank.world;
        assert!(world.create(&NewAccount { address: "them@other.test".to_owned(), messages: 0, seed: None }));
        world.change_directory(
            "acme.test",
            &DirectoryChange { admin_consent: Some(true), ..DirectoryChange::default() },
        );
        let app_only = || json!({"app_only": true});

        let theirs = scene.connect_as("them@other.test", app_only(), None).await;
        let nowhere = scene.connect_as("nobody@nowhere.test", app_only(), None).await;
        scene.work(&db).await;
        let ours = scene.connect_as(ME, app_only(), None).await;
        scene.work(&db).await;

        assert_eq!(scene.mailbox(ours).await.state, MailboxState::Active);
        for (mailbox, why) in [(theirs, "mailbox authorize outlook"), (nowhere, "--directory")] {
            let mailbox = scene.mailbox(mailbox).await;
            assert_eq!(mailbox.state, MailboxState::NeedsReauth);
            assert!(mailbox.state_reason.unwrap().contains(why));
        }
    })
    .await;
}
