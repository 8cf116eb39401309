//! What must not work with any provider: a person comes back with something else than they were sent with.

use std::time::Duration;

use domain::Sha256;
use sim::google::Consent;
use store::Store;
use testkit::wait_until;

use super::browser::{Browser, assert_page, parameter, without};
use super::consent_app::{ConsentApp, on_each_consent_app};
use super::provider_site::{GoogleSite, MicrosoftSite, ProviderSite, automatic};

#[tokio::test(flavor = "multi_thread")]
async fn forged_google_callback_changes_nothing() {
    on_each_consent_app(assert_forgery_changes_nothing::<GoogleSite>).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_microsoft_callback_changes_nothing() {
    on_each_consent_app(assert_forgery_changes_nothing::<MicrosoftSite>).await;
}

async fn assert_forgery_changes_nothing<S: ProviderSite>(app: &ConsentApp<S>) {
    app.leaves_jobs(&["sync_mailbox", "watch_mailbox"]);
    let connected = app.go_through(&app.beta_key, &format!("?address={}", S::BOB)).await;
    assert_page(&connected, 200, "connected");
    let before = app.snapshot().await;
    let mut browser = Browser::default();
    let link = app.link(&app.acme_key, &format!("?address={}", S::ANN)).await;
    let back = browser.consent(app, &link).await;
    let state = parameter(&back, "state").unwrap();

    // A state that is made up, altered, or missing.
    assert_page(&browser.open(app, &back.replace(&state, "AAAA")).await, 400, "start again");
    let last = if state.ends_with('A') { 'B' } else { 'A' };
    let altered = format!("{}{last}", &state[..state.len() - 1]);
    assert_page(&browser.open(app, &back.replace(&state, &altered)).await, 400, "start again");
    assert_page(&browser.open(app, &without(&back, "state")).await, 400, "start again");
    // Another tenant's state, by whoever got hold of it.
    let foreign = Browser::default().consent(app, &app.link(&app.beta_key, "").await).await;
    let foreign_state = parameter(&foreign, "state").unwrap();
    assert_page(&browser.open(app, &back.replace(&state, &foreign_state)).await, 403, "another browser");
    // Another browser, with no cookie or with one of its own.
    assert_page(&Browser::default().open(app, &back).await, 403, "another browser");
    let mut other = Browser::default();
    other.consent(app, &app.link(&app.acme_key, "").await).await;
    assert_page(&other.open(app, &back).await, 403, "another browser");
    // What went to one provider comes back from another.
    let elsewhere = back.replace(&format!("/oauth/{}/", S::NAME), &format!("/oauth/{}/", S::OTHER));
    assert_page(&browser.open(app, &elsewhere).await, 400, "start again");
    // As JSON for a client that accepts it.
    let accept = [("Accept", "application/json")];
    app.request_with("GET", &back, None, None, &accept).await.assert_problem(403, "another browser");
    assert_eq!(app.snapshot().await, before);
    // The code is still good: nobody has used it.
    assert_page(&browser.open(app, &back).await, 200, "connected");
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_google_consent_is_explained_and_not_kept() {
    on_each_consent_app(assert_incomplete_is_not_kept::<GoogleSite>).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_microsoft_consent_is_explained_and_not_kept() {
    on_each_consent_app(assert_incomplete_is_not_kept::<MicrosoftSite>).await;
}

async fn assert_incomplete_is_not_kept<S: ProviderSite>(app: &ConsentApp<S>) {
    let before = app.snapshot().await;
    app.site.set_consent(Consent { denied: true, ..automatic() });
    assert_page(&app.go_through(&app.acme_key, "").await, 403, "did not give your consent");
    app.site.assert_withdrawn(0, "");

    app.site.set_consent(Consent { unticked: vec![S::READ.to_owned()], ..automatic() });
    let page = app.go_through(&app.acme_key, "").await;
    assert_page(&page, 403, "tick the box");
    app.site.assert_withdrawn(1, &page.text());

    app.site.set_consent(Consent { account: Some(S::BOB.to_owned()), ..automatic() });
    let page = app.go_through(&app.acme_key, &format!("?address={}", S::ANN)).await;
    assert_page(&page, 409, "another account");
    app.site.assert_withdrawn(2, &page.text());

    app.site.set_consent(automatic());
    let mut browser = Browser::default();
    let back = browser.consent(app, &app.link(&app.acme_key, "").await).await;
    assert_page(&browser.open(app, &without(&back, "code")).await, 400, "no code");
    let back = browser.consent(app, &app.link(&app.acme_key, "").await).await;
    let refused = format!("{}&error=server_error", without(&back, "code"));
    assert_page(&browser.open(app, &refused).await, 400, "refused the request");
    let made_up = app.link(&app.acme_key, "").await.replace("ticket=", "ticket=A");
    assert_page(&Browser::default().open(app, &made_up).await, 400, "not valid");
    let link = app.link(&app.acme_key, "").await;
    let elsewhere = link.replace(&format!("/oauth/{}/", S::NAME), &format!("/oauth/{}/", S::OTHER));
    assert_page(&Browser::default().open(app, &elsewhere).await, 400, "not valid");
    assert_eq!(app.snapshot().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn google_callback_is_valid_once() {
    on_each_consent_app(assert_callback_is_valid_once::<GoogleSite>).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn microsoft_callback_is_valid_once() {
    on_each_consent_app(assert_callback_is_valid_once::<MicrosoftSite>).await;
}

async fn assert_callback_is_valid_once<S: ProviderSite>(app: &ConsentApp<S>) {
    app.leaves_jobs(&["sync_mailbox", "watch_mailbox"]);
    let mut browser = Browser::default();
    let link = app.link(&app.acme_key, &format!("?address={}", S::ANN)).await;
    let back = browser.consent(app, &link).await;
    let cookies = browser.cookies.clone();
    assert_page(&browser.open(app, &back).await, 200, "connected");
    assert!(browser.cookies.is_empty(), "it is not needed any more");
    let before = app.snapshot().await;

    assert_page(&Browser { cookies }.open(app, &back).await, 400, "used before");
    assert_eq!(app.snapshot().await, before);
}

/// The lease of an account's consent, held by somebody else.
struct HeldGrant {
    store: Store,
    name: String,
    token: u64,
}

impl HeldGrant {
    async fn acquire(store: &Store, address: &str) -> Self {
        let name = format!("grant:gmail:{}", &Sha256::of(address.as_bytes()).hex()[..32]);
        let token = store.system().acquire_lease(&name, "other", Duration::from_secs(600)).await.unwrap().unwrap();
        Self { store: store.clone(), name, token }
    }

    async fn release(self) {
        self.store.system().release_lease(&self.name, "other", self.token).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn callback_during_a_revocation_asks_to_begin_again() {
    on_each_consent_app(async |app: &ConsentApp<GoogleSite>| {
        app.leaves_jobs(&["sync_mailbox", "watch_mailbox"]);
        let before = app.snapshot().await;
        let held = HeldGrant::acquire(app.store(), GoogleSite::ANN).await;

        // Whether it was known before whose account it is, or not.
        for query in [format!("?address={}", GoogleSite::ANN), String::new()] {
            assert_page(&app.go_through(&app.acme_key, &query).await, 409, "by another request");
        }
        assert_eq!((app.snapshot().await, app.site.revocations()), (before, 0), "others may need what was given");
        held.release().await;
        wait_until("what came to nothing is revoked", async || app.site.revocations() == 1).await;
        assert_page(&app.go_through(&app.acme_key, "").await, 200, "connected");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mailbox_is_connected_though_the_page_was_closed() {
    on_each_consent_app(async |app: &ConsentApp<GoogleSite>| {
        app.leaves_jobs(&["sync_mailbox", "watch_mailbox"]);
        let held = HeldGrant::acquire(app.store(), GoogleSite::ANN).await;
        let mut browser = Browser::default();
        let back = browser.consent(app, &app.link(&app.acme_key, "").await).await;

        tokio::select! {
            reply = app.send(browser.request(&back)) => panic!("answered too soon: {reply:?}"),
            () = wait_until("the code is exchanged", async || app.site.exchanges() == 1) => {}
        }
        app.request("GET", "/healthz", None, None).await.expect(200);
        held.release().await;
        wait_until("the mailbox is connected", async || app.state(GoogleSite::ANN).await == "connecting").await;
    })
    .await;
}
