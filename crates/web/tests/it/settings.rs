//! Settings of tenants, and how their mailboxes inherit them.

use domain::Backfill;
use jiff::SignedDuration;
use serde_json::{Value, json};
use testkit::http::HttpOptions;
use testkit::{AppOptions, HttpReply, on_each_app, on_each_app_with};

use crate::two_tenants::TwoTenants;

async fn change(two: &TwoTenants<'_>, settings: Value) -> HttpReply {
    let path = format!("/v1/tenants/{}", two.acme.id);
    two.send("PATCH", &path, &two.operator, &json!({"settings": settings})).await
}

async fn show(two: &TwoTenants<'_>) -> Value {
    two.get(&format!("/v1/tenants/{}", two.acme.id), &two.operator).await.json()["settings"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_settings_are_changed_field_by_field() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        assert_eq!(show(&two).await, json!({}));
        let all = json!({"backfill": "30d", "folders": ["INBOX"], "exclude": ["Spam"], "interval_seconds": 600,
                         "bytes_per_day": 0});
        assert_eq!(change(&two, all.clone()).await.expect(200).json()["settings"], all);

        change(&two, json!({"interval_seconds": 60, "folders": null, "exclude": null})).await.expect(200);

        assert_eq!(show(&two).await, json!({"backfill": "30d", "interval_seconds": 60, "bytes_per_day": 0}));
        let audit = two.get("/v1/audit", &two.acme_reader).await.json();
        let entry = audit["items"].as_array().unwrap().iter().find(|entry| entry["action"] == "tenant.change").unwrap();
        assert_eq!(entry["after"]["settings"]["backfill"], "30d");
        let new = json!({"name": "gamma", "settings": {"backfill": "none"}});
        let created = two.send("POST", "/v1/tenants", &two.operator, &new).await;
        assert_eq!(created.expect(201).json()["settings"], json!({"backfill": "none"}));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_tenant_settings_are_named() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        for (field, value) in [
            ("backfill", json!("some")),
            ("backfill", json!(30)),
            ("folders", json!([""])),
            ("folders", json!("INBOX")),
            ("exclude", json!(["a\nb"])),
            ("interval_seconds", json!(0)),
            ("interval_seconds", json!(2_592_001)),
            ("bytes_per_day", json!(-1)),
            ("bytes_per_day", json!(1_u64 << 41)),
            ("bakfill", json!("all")),
        ] {
            let mut wrong = json!({"interval_seconds": 60});
            wrong[field] = value;
            change(&two, wrong.clone()).await.assert_problem(422, &format!("settings.{field}"));
            let new = json!({"name": "gamma", "settings": wrong});
            let refused = two.send("POST", "/v1/tenants", &two.operator, &new).await;
            refused.assert_problem(422, &format!("settings.{field}"));
        }
        assert_eq!(show(&two).await, json!({}));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_settings_survive_a_change() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        app.leaves_jobs(&["sync_mailbox"]);
        let new = json!({"address": "me@acme.example", "provider": "imap", "host": "127.0.0.1", "port": 1, "tls": "none",
                         "password": "x"});
        let created = two.send("POST", "/v1/mailboxes", &two.acme_writer, &new).await;
        let path = created.expect(201).header("location").to_owned();
        let connection = created.json()["settings"]["connection"].clone();
        let newer = json!({"colour": {"of": "tomorrow"}, "connection": connection});
        app.db.run(&format!("update mailboxes set settings = '{newer}'")).await;
        app.db.run(r#"update tenants set settings = '{"colour": 7, "backfill": "some"}'"#).await;

        let mailbox = two.send("PATCH", &path, &two.acme_writer, &json!({"interval_seconds": 60})).await;
        let tenant = change(&two, json!({"interval_seconds": 60})).await;

        assert_eq!(mailbox.expect(200).json()["settings"]["colour"], json!({"of": "tomorrow"}));
        assert_eq!(two.get(&path, &two.acme_writer).await.json()["settings"]["colour"], json!({"of": "tomorrow"}));
        let kept = json!({"colour": 7, "backfill": "some", "interval_seconds": 60});
        assert_eq!(tenant.expect(200).json()["settings"], kept);
        change(&two, json!({"backfill": null})).await.expect(200);
        assert_eq!(show(&two).await, json!({"colour": 7, "interval_seconds": 60}));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_setting_that_is_removed_is_inherited() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        app.leaves_jobs(&["sync_mailbox"]);
        let new = json!({"address": "me@acme.example", "provider": "imap", "host": "127.0.0.1", "port": 1, "tls": "none",
                         "password": "x", "folders": ["INBOX"], "exclude": ["Spam"], "interval_seconds": 60,
                         "bytes_per_day": 7});
        let created = two.send("POST", "/v1/mailboxes", &two.acme_writer, &new).await;
        let path = created.expect(201).header("location").to_owned();

        let removed = json!({"folders": null, "exclude": null, "interval_seconds": null, "bytes_per_day": null});
        let changed = two.send("PATCH", &path, &two.acme_writer, &removed).await;

        let connection = created.json()["settings"]["connection"].clone();
        assert_eq!(changed.expect(200).json()["settings"], json!({"connection": connection}));
        assert_eq!(two.get(&path, &two.acme_writer).await.json()["settings"], changed.json()["settings"]);
        change(&two, json!({"interval_seconds": 600})).await.expect(200);
        let mailbox = two.acme.list_mailboxes().await.unwrap().remove(0);
        assert_eq!(mailbox.settings_in_force().interval_seconds, Some(600), "the tenant's");
        two.send("PATCH", &path, &two.acme_writer, &json!({"host": null})).await.assert_problem(422, "host");
    })
    .await;
}

/// Connects a mailbox and returns how many days of its mail are fetched; `None`: all.
async fn connected_days(two: &TwoTenants<'_>, name: &str, requested: Option<&str>) -> Option<i64> {
    let mut new = json!({"address": format!("{name}@acme.example"), "provider": "imap", "host": "127.0.0.1", "port": 1,
                         "tls": "none", "password": "x"});
    if let Some(requested) = requested {
        new["backfill"] = json!(requested);
    }
    let created = two.send("POST", "/v1/mailboxes", &two.acme_writer, &new).await;
    let id = created.expect(201).json()["id"].as_str().unwrap().parse().unwrap();
    let since = two.acme.find_sync_state(id).await.unwrap().unwrap().since?;
    let now = two.app.store().system().now().await.unwrap();
    Some((now.duration_since(since) + SignedDuration::from_hours(1)).as_hours() / 24)
}

#[tokio::test(flavor = "multi_thread")]
async fn backfill_is_requested_inherited_or_configured() {
    let week = Backfill::from_seconds(Some(7 * 86_400));
    on_each_app_with(
        || AppOptions::default().http(HttpOptions::default().setup(move |web| web.backfill = week)),
        async |app| {
            let two = TwoTenants::without_mail(app).await;
            app.leaves_jobs(&["sync_mailbox"]);

            assert_eq!(connected_days(&two, "configured", None).await, Some(7));
            change(&two, json!({"backfill": "30d"})).await.expect(200);
            assert_eq!(connected_days(&two, "inherited", None).await, Some(30));
            assert_eq!(connected_days(&two, "requested", Some("all")).await, None);
            assert_eq!(connected_days(&two, "short", Some("2d")).await, Some(2));
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn description_lists_the_fields_of_all_providers() {
    on_each_app(async |app| {
        let schemas = app.request("GET", "/openapi.json", None, None).await.json()["components"]["schemas"].clone();
        let (new, change) = (&schemas["NewMailbox"], &schemas["MailboxChange"]);

        for field in providers::registry::DECLARATIONS.connection_fields() {
            let described = &change["properties"][field.name];
            assert!(new["properties"][field.name]["type"].is_string(), "{}: {new}", field.name);
            assert_eq!(described.is_object(), field.is_changeable, "{}: {change}", field.name);
        }
        assert_eq!(new["properties"]["tls"]["enum"], json!(["implicit", "starttls", "none"]));
        assert_eq!((&new["additionalProperties"], &change["additionalProperties"]), (&json!(false), &json!(false)));
        assert_eq!(new["required"], json!(["address", "provider"]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn description_shows_the_settings() {
    on_each_app(async |app| {
        let key = app.operator_key().await;
        let schemas = app.get("/openapi.json", &key).await.json()["components"]["schemas"].clone();

        for (name, field) in [("MailboxSettings", "connection"), ("TenantSettings", "backfill")] {
            assert!(schemas[name]["properties"][field].is_object(), "{name}: {}", schemas[name]);
        }
        let shown = schemas["Mailbox"]["properties"]["settings"].to_string();
        assert!(shown.contains("#/components/schemas/MailboxSettings"), "{shown}");
    })
    .await;
}
