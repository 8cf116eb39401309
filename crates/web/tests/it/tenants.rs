//! The life of a tenant, by the operator.

use serde_json::{Value, json};
use store::Dialect;
use testkit::{HttpReply, on_each_app};

use crate::two_tenants::TwoTenants;

async fn change(two: &TwoTenants<'_>, body: Value) -> HttpReply {
    two.send("PATCH", &format!("/v1/tenants/{}", two.acme.id), &two.operator, &body).await
}

async fn undelete(two: &TwoTenants<'_>) -> HttpReply {
    two.send("POST", &format!("/v1/tenants/{}/undelete", two.acme.id), &two.operator, &Value::Null).await
}

async fn delete(two: &TwoTenants<'_>) -> HttpReply {
    two.send("DELETE", &format!("/v1/tenants/{}", two.acme.id), &two.operator, &Value::Null).await
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_is_stopped_held_deleted_and_restored() {
    on_each_app(async |app| {
        let two = TwoTenants::without_mail(app).await;
        change(&two, json!({"is_active": false})).await.expect(200);
        two.get("/v1/emails", &two.acme_reader).await.assert_problem(403, "deactivated");
        let changed = change(&two, json!({"is_active": true, "name": "acme & sons", "plan": "vip"})).await;
        assert_eq!(changed.json()["plan"], "vip");
        change(&two, json!({"name": "beta"})).await.assert_problem(409, "name");
        change(&two, json!({"name": ""})).await.assert_problem(422, "name");
        change(&two, json!({"plan": "gold"})).await.assert_problem(422, "plan");

        change(&two, json!({"hold_reason": "a lawsuit"})).await.expect(200);
        delete(&two).await.assert_problem(409, "a lawsuit");
        assert_eq!(change(&two, json!({"hold_reason": null})).await.json()["hold_reason"], Value::Null);
        assert!(delete(&two).await.expect(202).json()["deleted_at"].is_string());
        two.get("/v1/emails", &two.acme_reader).await.assert_problem(403, "deactivated");
        delete(&two).await.assert_problem(409, "already");
        change(&two, json!({"is_active": true})).await.assert_problem(409, "undelete it first");
        let restored = undelete(&two).await.expect(200).json();
        assert_eq!((&restored["deleted_at"], &restored["is_active"]), (&Value::Null, &json!(true)));
        undelete(&two).await.assert_problem(409, "not deleted");
        two.get("/v1/emails", &two.acme_reader).await.expect(200);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn erased_tenant_leaves_nothing_behind() {
    on_each_app(async |app| {
        let two = TwoTenants::new(app).await;
        let acme = two.acme.id;
        delete(&two).await.expect(202);
        undelete(&two).await.expect(200);
        delete(&two).await.expect(202);
        let now = match app.store().dialect() {
            Dialect::Sqlite => "'2026-01-01T00:00:00.000Z'",
            Dialect::Postgres => "now()",
        };
        app.db.run(&format!("update tenants set erasing_at = {now} where id = '{acme}'")).await;
        change(&two, json!({"is_active": true})).await.assert_problem(409, "being erased");
        undelete(&two).await.assert_problem(409, "being erased");
        // Its time comes now; the job of the deletion that was taken back finds that it was.
        let jobs = two.ids("/v1/jobs?kind=erase_tenant&state=scheduled", &two.operator).await;
        assert_eq!(jobs.len(), 2);
        for job in jobs {
            two.send("POST", &format!("/v1/jobs/{job}/retry"), &two.operator, &Value::Null).await.expect(204);
        }
        app.run_jobs_until_idle().await;

        two.get(&format!("/v1/tenants/{acme}"), &two.operator).await.expect(404);
        for table in ["emails", "mailboxes", "api_keys", "ledger", "placements", "blobs", "packs", "events", "audit"] {
            assert_eq!(app.count(&format!("{table} where tenant_id = '{acme}'")).await, 0, "{table}");
        }
        two.get("/v1/emails", &two.acme_reader).await.assert_problem(401, "not valid");
        let audit = two.get("/v1/audit", &two.operator).await.json();
        assert_eq!(audit["items"][0]["action"], "tenant.erase");
        two.get("/v1/emails", &two.beta_reader).await.expect(200);
        two.assert_intact().await;
    })
    .await;
}
