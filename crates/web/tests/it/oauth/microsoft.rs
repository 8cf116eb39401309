//! What only Microsoft has: accounts of an organization and of a person, and directories that let us in as a whole.

use domain::{ConsentFlow, Provider};
use providers::registry::DECLARATIONS;
use sim::google::Consent;
use web::EdgeSettings;

use super::browser::{Browser, assert_page, decide, parameter};
use super::consent_app::{ConsentApp, on_each_consent_app};
use super::provider_site::{MicrosoftSite, ProviderSite, ZOE, automatic};
use crate::two_tenants::select;

const ANN: &str = MicrosoftSite::ANN;

async fn mailboxes(app: &ConsentApp<MicrosoftSite>) -> Vec<String> {
    select(app, "select provider || ' ' || address || ' ' || state from mailboxes order by address").await
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_connect_work_and_personal_accounts() {
    on_each_consent_app(async |app: &ConsentApp<MicrosoftSite>| {
        app.leaves_jobs(&["sync_mailbox", "watch_mailbox"]);
        let link = app.link(&app.acme_key, &format!("?address={ANN}")).await;
        let sent = Browser::default().open(app, &link).await;
        let url = sent.header("location");
        assert!(url.contains("/common/oauth2/v2.0/authorize?"), "{url}");
        for (name, value) in [
            ("response_type", "code"),
            ("response_mode", "query"),
            ("code_challenge_method", "S256"),
            ("prompt", "select_account"),
            (
                "scope",
                "offline_access+openid+email+https%3A%2F%2Fgraph.microsoft.com%2FUser.Read+https%3A%2F%2Fgraph.microsoft.com%2FMail.Read",
            ),
            ("login_hint", "ann%40contoso.test"),
        ] {
            assert_eq!(parameter(url, name).as_deref(), Some(value), "{url}");
        }

        for address in [ANN, ZOE] {
            let page = app.go_through(&app.acme_key, &format!("?address={address}")).await;
            assert_page(&page, 200, &format!("{address} is connected for acme"));
        }

        assert_eq!(mailboxes(app).await, [format!("outlook {ANN} connecting"), format!("outlook {ZOE} connecting")]);
        assert_eq!(app.secrets("refresh_token").await, 2);
        // Once more it is the same mailbox, with another secret.
        assert_page(&app.go_through(&app.acme_key, &format!("?address={ANN}")).await, 200, "connected");
        assert_eq!((mailboxes(app).await.len(), app.secrets("refresh_token").await), (2, 2));
    })
    .await;
}

/// As `mailroom mailbox authorize outlook` makes it.
async fn authorize_link(app: &ConsentApp<MicrosoftSite>) -> String {
    let state = app.engine.begin_admin_consent("contoso.test").await.unwrap();
    let callback = DECLARATIONS.consent(Provider::Outlook).unwrap().callback_path();
    let redirect_uri = format!("{}{callback}", EdgeSettings::default().public_url);
    app.site.oauth().admin_consent_url("contoso.test", &redirect_uri, &state).unwrap()
}

fn is_authorized(app: &ConsentApp<MicrosoftSite>) -> bool {
    !app.site.world.directory("contoso.test").unwrap().consents.is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn administrator_authorizes_a_directory_or_not() {
    on_each_consent_app(async |app: &ConsentApp<MicrosoftSite>| {
        let before = app.snapshot().await;
        app.site.set_consent(Consent { denied: true, ..automatic() });
        let back = decide(app, &authorize_link(app).await).await;
        let page = Browser::default().open(app, &back).await;
        assert_page(&page, 403, "No administrator of contoso.test gave consent");
        assert!(!is_authorized(app));
        app.site.set_consent(automatic());
        let back = decide(app, &authorize_link(app).await).await;
        assert_page(&Browser::default().open(app, &back).await, 200, "contoso.test has authorised Mailroom");
        assert!(is_authorized(app));
        // It is no consent of an owner, and Google knows nothing of it.
        let state = parameter(&back, "state").unwrap();
        let elsewhere = format!("/v1/oauth/google/callback?state={state}&code=1");
        assert_page(&Browser::default().open(app, &elsewhere).await, 400, "start again");
        let as_owner = format!("/v1/oauth/microsoft/callback?state={state}&code=1");
        assert_page(&Browser::default().open(app, &as_owner).await, 403, "gave consent");
        assert_eq!(app.snapshot().await, before);
    })
    .await;
}
