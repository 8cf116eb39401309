//! Operations on mailboxes, emails, directories and webhooks.

use std::sync::Arc;

use content::files::MailFileFormat;
use domain::{EmailId, MailboxSettings, Provider, Secret};
use engine::Progress;
use engine::archive::export::ExportFormat;
use engine::archive::import::{Batching, Import};
use engine::archive::reindex::ReindexScope;
use engine::delivery::webhooks::WebhookRequest;
use engine::directory::DiscoveryMode;
use engine::operations::emails::{self, ExportRequest};
use engine::operations::mailboxes::{self, MailErasure, ResumeRequest};
use engine::operations::webhooks::{self, WebhookChange};
use engine::operations::{Operation, Refusal, directories};
use outbound::http::AddressPolicy;
use serde_json::json;
use store::sql::directories::{Directory, DirectoryDefinition};
use store::sql::webhook_deliveries::ResendFilter;
use store::sql::webhooks::Webhook;

use super::subject::{Subject, connect_request};

pub async fn perform(operation: &Operation, subject: &Subject<'_>) -> Result<(), Refusal> {
    match operation.name.split_once('.').unwrap().0 {
        "mailbox" => on_mailbox(operation, subject).await,
        "email" => on_email(operation, subject).await,
        "directory" => on_directory(operation, subject).await,
        _ => on_webhook(operation, subject).await,
    }
}

async fn on_mailbox(operation: &Operation, subject: &Subject<'_>) -> Result<(), Refusal> {
    let (call, tenant, mailbox) = (subject.call().await, subject.tenant.id, &subject.mailbox);
    let settings = MailboxSettings { interval_seconds: Some(60), ..mailbox.settings.clone() };
    let done = match operation.name {
        "mailbox.create" => mailboxes::create(&call, tenant, &connect_request("new@acme.test")).await,
        "mailbox.connect" => mailboxes::connect(&call, tenant, &connect_request("new@acme.test")).await,
        "mailbox.reconnect" => {
            let secret = Secret::new("s".to_owned());
            mailboxes::reconnect(&call, mailbox, settings, Some(&secret)).await
        }
        "mailbox.change" => mailboxes::change(&call, mailbox, settings, None).await,
        "mailbox.pause" => mailboxes::pause(&call, tenant, mailbox.id).await,
        "mailbox.resume" => mailboxes::resume(&call, tenant, mailbox.id, ResumeRequest::default()).await,
        "mailbox.sync" => mailboxes::sync(&call, tenant, mailbox.id).await,
        "mailbox.apply_removals" => {
            let held =
                format!("update sync_states set removals_held_since = updated_at where mailbox_id = '{}'", mailbox.id);
            subject.app.db.run(&held).await;
            mailboxes::apply_removals(&call, tenant, mailbox.id).await
        }
        "mailbox.disconnect" => mailboxes::delete(&call, tenant, mailbox.id, MailErasure::None).await,
        "mailbox.erase" => mailboxes::delete(&call, tenant, mailbox.id, MailErasure::ByJob).await,
        other => panic!("{other} has no case"),
    };
    done.map(drop)
}

async fn on_email(operation: &Operation, subject: &Subject<'_>) -> Result<(), Refusal> {
    let (app, tenant) = (subject.app, subject.tenant.id);
    match operation.name {
        "email.delete" => emails::delete(&subject.call().await, tenant, email(subject).await).await,
        "email.restore" => emails::restore(&subject.call().await, tenant, email(subject).await).await,
        "email.purge" => {
            let ids: Vec<EmailId> = subject.tenant.list_email_ids(files(subject).await.id, 1).await?;
            emails::purge(&subject.call().await, tenant, &ids).await.map(drop)
        }
        "email.import" => {
            let path = subject.path("two.eml");
            std::fs::write(&path, "Subject: two\n\nhello").unwrap();
            let batching = Batching { messages: 10, bytes: 1 << 20, in_flight: 1 };
            let import = Import { paths: vec![path.clone()], format: MailFileFormat::Eml, folder: None, batching };
            let opened = import.open(&app.engine.limits, &app.engine.spool).unwrap();
            let (call, mailbox) = (subject.call().await, files(subject).await);
            let progress = Arc::new(Progress::default());
            emails::import(&call, &mailbox, &[path], opened, progress, Arc::new(|_: &str| {})).await.map(drop)
        }
        "email.export" => {
            let out = subject.path("out.mbox");
            let request = ExportRequest {
                query: String::new(),
                includes_deleted: false,
                mailbox: None,
                format: ExportFormat::Mbox,
                out,
            };
            emails::export(&subject.call().await, tenant, &request, &Progress::default()).await.map(drop)
        }
        "email.reindex" => emails::reindex(&subject.call().await, tenant, ReindexScope::All, None).await.map(drop),
        other => panic!("{other} has no case"),
    }
}

async fn files(subject: &Subject<'_>) -> store::sql::mailboxes::Mailbox {
    subject.app.mailbox(&subject.tenant, "files@acme.test").await
}

async fn email(subject: &Subject<'_>) -> EmailId {
    subject.tenant.list_email_ids(files(subject).await.id, 1).await.unwrap()[0]
}

async fn on_directory(operation: &Operation, subject: &Subject<'_>) -> Result<(), Refusal> {
    let tenant = subject.tenant.id;
    match operation.name {
        "directory.put" => directories::put(&subject.call().await, tenant, None, &definition()).await.map(drop),
        "directory.delete" => directories::delete(&subject.call().await, tenant, &directory(subject).await).await,
        "directory.discover" => {
            let providers = [directory(subject).await.provider];
            directories::discover(&subject.call().await, tenant, &providers, DiscoveryMode::Usual).await
        }
        other => panic!("{other} has no case"),
    }
}

fn definition() -> DirectoryDefinition {
    DirectoryDefinition {
        provider: Provider::Gmail,
        settings: json!({"administrator": "admin@acme.test"}),
        rules: json!({}),
        backfill_seconds: None,
        interval_seconds: 3600,
        is_paused: true,
    }
}

/// The tenant's directory, made if there is none.
async fn directory(subject: &Subject<'_>) -> Directory {
    let store = &subject.tenant;
    let mut unit = store.write();
    unit.put_directory(&definition(), None, subject.mailbox.created_at);
    drop(unit.commit().await);
    store.find_directory(Provider::Gmail).await.unwrap().unwrap()
}

async fn on_webhook(operation: &Operation, subject: &Subject<'_>) -> Result<(), Refusal> {
    let (tenant, policy) = (subject.tenant.id, AddressPolicy::default());
    if operation.name == "webhook.create" {
        let call = subject.call().await;
        return webhooks::create(&call, tenant, &policy, request()).await.map(drop);
    }
    let id = webhook(subject).await.id;
    match operation.name {
        "webhook.change" => {
            let change = WebhookChange { is_paused: Some(true), ..WebhookChange::default() };
            webhooks::change(&subject.call().await, tenant, id, &policy, change).await.map(drop)
        }
        "webhook.delete" => webhooks::delete(&subject.call().await, tenant, id).await,
        "webhook.rotate" => {
            let keep_old_for = std::time::Duration::from_secs(60);
            webhooks::rotate(&subject.call().await, tenant, id, None, keep_old_for).await.map(drop)
        }
        "webhook.ping" => webhooks::ping(&subject.call().await, tenant, id).await,
        "webhook.resend" => {
            let since = subject.mailbox.created_at;
            webhooks::resend_since(&subject.call().await, tenant, id, since, ResendFilter::Failed).await
        }
        other => panic!("{other} has no case"),
    }
}

fn request() -> WebhookRequest {
    WebhookRequest { url: "https://hook.invalid/".to_owned(), ..WebhookRequest::default() }
}

/// A new webhook of the tenant.
async fn webhook(subject: &Subject<'_>) -> Webhook {
    let operator = domain::Actor::Operator.into();
    let call = engine::operations::Invocation::begin(&subject.app.engine, &operator).await.unwrap();
    webhooks::create(&call, subject.tenant.id, &AddressPolicy::default(), request()).await.unwrap().webhook
}
