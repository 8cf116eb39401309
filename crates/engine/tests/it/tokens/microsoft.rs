//! The simulated Microsoft, where a refresh token is good for one use: whoever uses one twice loses the consent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use domain::connector::{ConnectorAccount, ConnectorFuture, TokenGrant};
use domain::{Clock, MailboxState, Provider, Secret, SystemClock};
use providers::http::{HttpClient, HttpTimeouts};
use providers::outlook::{MicrosoftOAuth, MicrosoftSettings};
use serde_json::json;
use sim::microsoft::{
    AccountSpec, CLIENT_ID, CLIENT_SECRET, DirectoryChange, MicrosoftClient, MicrosoftServer, MicrosoftWorld,
};
use store::testing::{migrated_sqlite, on_each_database};

use super::race::race;
use super::{SHORT, TokenApp, TokenIssuer};
use testkit::own_process;

const ME: &str = "me@acme.test";

#[derive(Debug)]
struct Microsoft {
    world: Arc<MicrosoftWorld>,
    http: HttpClient,
    oauth: MicrosoftOAuth,
    first: String,
    asked: AtomicU32,
    server: MicrosoftServer,
}

impl Microsoft {
    async fn strict() -> Self {
        let world = Arc::new(MicrosoftWorld::new(7, 20, Arc::new(|| SystemClock.now())));
        assert!(world.create(&AccountSpec { address: ME.to_owned(), messages: 0, seed: None }));
        world.set_strict_refresh(true);
        let server = MicrosoftServer::start_here(world.clone()).await.unwrap();
        let settings = MicrosoftSettings {
            authority_url: server.url(),
            graph_url: server.url(),
            client_id: Some(CLIENT_ID.to_owned()),
            client_secret: Some(Secret::new(CLIENT_SECRET.to_owned())),
            ..MicrosoftSettings::default()
        };
        let http = HttpClient::new(HttpTimeouts::default()).unwrap();
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

impl TokenIssuer for Microsoft {
    const PROVIDER: Provider = Provider::Outlook;

    fn first_secret(&self) -> String {
        self.first.clone()
    }

    fn give<'a>(&'a self, account: &'a ConnectorAccount) -> ConnectorFuture<'a, TokenGrant> {
        Box::pin(async {
            self.asked.fetch_add(1, Ordering::SeqCst);
            self.oauth.obtain_token(account).await
        })
    }

    fn take_back<'a>(&'a self, _: &'a ConnectorAccount) -> ConnectorFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn takes<'a>(&'a self, token: &'a Secret<String>) -> ConnectorFuture<'a, bool> {
        let request =
            self.http.client.get(format!("{}/v1.0/users/{ME}", self.server.url())).bearer_auth(token.expose());
        Box::pin(async move { Ok(self.http.try_send(request).await?.is_ok()) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refresh_token_is_used_once() {
    on_each_database(|db| async move {
        let (app, rounds) = race(db, Microsoft::strict().await, 250).await;

        assert_eq!(app.bank.lost_and_overlapping(), (0, 0));
        assert_eq!((rounds, app.bank.asked()), (250, 250), "once each time that a token was refused");
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_lease_loses_a_consent() {
    if !own_process::is_child() {
        return own_process::run("tokens::microsoft::missing_lease_loses_a_consent", "off=token_lease");
    }
    let folder = tempfile::tempdir().unwrap();
    let db = migrated_sqlite(folder.path()).await;
    let (app, _) = race(db, Microsoft::strict().await, 250).await;

    assert!(app.bank.lost_and_overlapping().0 > 0, "the test above would not notice");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_with_a_new_secret_ends_in_needs_reauth() {
    if !own_process::is_child() {
        return own_process::run(
            "tokens::microsoft::crash_with_a_new_secret_ends_in_needs_reauth",
            "before:store_token=panic",
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let db = migrated_sqlite(folder.path()).await;
    let app = TokenApp::with_tokens(db, Microsoft::strict().await, SHORT).await;
    let mailbox = app.connect(ME).await;

    let dying = app.instance("one", SHORT);
    dying.get(&app.asker(mailbox), None).await.unwrap_err();
    drop(dying);
    assert_eq!(app.bank.asked(), 1);
    app.run_jobs_until_idle().await;

    // What is stored was used before, so with it the consent has ended: the owner is asked, once.
    let now = app.mailbox(mailbox).await;
    assert_eq!(now.state, MailboxState::NeedsReauth);
    assert!(now.state_reason.unwrap().contains("connect it again"));
    let events = app.store.list_events(0, 100).await.unwrap();
    assert_eq!(events.iter().filter(|event| event.data["state"] == "needs_reauth").count(), 1);
    assert_eq!((app.bank.asked(), app.bank.lost_and_overlapping().0), (2, 1));
    for _ in 0..3 {
        app.enqueue_syncs(&[mailbox]).await;
        app.run_jobs_until_idle().await;
    }
    assert_eq!(app.bank.asked(), 2, "nobody asks any more");
    app.finish_jobs().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn surviving_process_keeps_its_token() {
    if !own_process::is_child() {
        return own_process::run("tokens::microsoft::surviving_process_keeps_its_token", "before:store_token=panic");
    }
    let folder = tempfile::tempdir().unwrap();
    let db = migrated_sqlite(folder.path()).await;
    let app = TokenApp::new(db, Microsoft::strict().await).await;
    let mailbox = app.connect(ME).await;
    let (tokens, asker) = (app.instance("one", SHORT), app.asker(mailbox));

    tokens.get(&asker, None).await.unwrap_err();
    let token = tokens.get(&asker, None).await.unwrap();

    assert!(app.bank.takes(&token).await.unwrap());
    assert_eq!(app.bank.asked(), 1);
    let next = tokens.get(&asker, Some(&token)).await.unwrap();
    assert!(app.bank.takes(&next).await.unwrap());
    assert_eq!((app.bank.asked(), app.bank.lost_and_overlapping().0), (2, 0));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_app_secret_concerns_the_operator() {
    on_each_database(|db| async move {
        let app = TokenApp::new(db, Microsoft::strict().await).await;
        app.bank.world.register_client(MicrosoftClient { secret_expired: true, ..MicrosoftClient::for_tests() });
        let mut mailboxes = Vec::new();
        for n in 0..20 {
            mailboxes.push(app.connect(&format!("owner{n}@acme.test")).await);
            let connection = json!({"app_only": true});
            mailboxes.push(app.connect_as(&format!("app{n}@acme.test"), connection, None).await);
        }

        app.run_jobs_until_idle().await;

        assert!(app.bank.asked() <= 8, "{} calls, for it is one app", app.bank.asked());
        for mailbox in mailboxes {
            assert_eq!(app.mailbox(mailbox).await.state, MailboxState::Connecting, "it is not the mailbox's fault");
            let error = app.store.find_sync_state(mailbox).await.unwrap().unwrap().last_error.unwrap();
            assert!(error.contains("expired"), "{error}");
        }
        app.leaves_jobs(&["sync_mailbox"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unconsented_directory_affects_its_own_mailboxes() {
    on_each_database(|db| async move {
        let app = TokenApp::new(db, Microsoft::strict().await).await;
        let world = &app.bank.world;
        assert!(world.create(&AccountSpec { address: "them@other.test".to_owned(), messages: 0, seed: None }));
        world.change_directory(
            "acme.test",
            &DirectoryChange { admin_consent: Some(true), ..DirectoryChange::default() },
        );
        let app_only = || json!({"app_only": true});

        let theirs = app.connect_as("them@other.test", app_only(), None).await;
        let nowhere = app.connect_as("nobody@nowhere.test", app_only(), None).await;
        app.run_jobs_until_idle().await;
        let ours = app.connect_as(ME, app_only(), None).await;
        app.run_jobs_until_idle().await;

        assert_eq!(app.mailbox(ours).await.state, MailboxState::Active);
        for (mailbox, why) in [(theirs, "mailbox authorize outlook"), (nowhere, "--directory")] {
            let mailbox = app.mailbox(mailbox).await;
            assert_eq!(mailbox.state, MailboxState::NeedsReauth);
            assert!(mailbox.state_reason.unwrap().contains(why));
        }
        app.finish_jobs().await;
        app.finish().await;
    })
    .await;
}
