//! The smallest things worth storing.

use domain::{
    Address, AttachmentId, AttachmentStatus, EmailId, Flags, MailboxId, PackId, PlanTier, Provider, Recipient,
    RecipientKind, Sha256,
};
use jiff::Timestamp;
use store::blobs::{Blobs, PackBuilder};
use store::sql::ingest::{NewAttachment, NewEmail, NewPlacement};
use store::sql::mailboxes::Mailbox;
use store::{CommitOutcome, OpId, Store, StoreError, TenantStore, TenantUnit};

pub async fn tenant(store: &Store, name: &str) -> TenantStore {
    let tenant = store.system().create_tenant(name, PlanTier::Standard).await.unwrap().expect("a free name");
    store.tenant(tenant.id)
}

pub async fn mailbox(tenant: &TenantStore) -> Mailbox {
    tenant.ensure_files_mailbox("me@acme.test").await.unwrap()
}

pub fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// An email whose raw bytes are its subject.
pub fn email(mailbox: MailboxId, subject: &str, received_at: Timestamp) -> NewEmail {
    let sha256 = Sha256::of(subject.as_bytes());
    let provider_message_id = format!("sha256:{sha256}");
    let id = EmailId::derive(received_at, mailbox, &provider_message_id);
    NewEmail {
        id,
        mailbox,
        provider: Provider::Files,
        provider_message_id,
        internet_message_id: Some("1@acme.test".into()),
        subject: Some(subject.into()),
        from: Some(Address { name: Some("Ann".into()), address: "Ann@Acme.test".into() }),
        recipients: vec![
            recipient(RecipientKind::To, "bob@acme.test"),
            recipient(RecipientKind::Cc, "Carol@acme.test"),
        ],
        body_text: Some("hello".into()),
        body_html: None,
        sent_at: Some(received_at),
        received_at,
        size_bytes: subject.len() as u64,
        raw_sha256: sha256,
        content_key: sha256,
        thread_id: None,
        revision: None,
        is_backfill: true,
        raw_is_stored: true,
        processing_started_at: received_at,
        headers: serde_json::json!([["Subject", subject]]).to_string(),
        defects: vec!["bad_date".into()],
        attachments: vec![],
        tokens: subject.to_lowercase(),
    }
}

pub fn recipient(kind: RecipientKind, address: &str) -> Recipient {
    Recipient { kind, address: Address { name: None, address: address.into() } }
}

pub fn attachment(email: EmailId, bytes: &[u8]) -> NewAttachment {
    NewAttachment {
        id: AttachmentId::derive(email, "2"),
        part_path: "2".into(),
        filename: Some("a.txt".into()),
        content_type: "text/plain".into(),
        sniffed_type: None,
        size_bytes: bytes.len() as u64,
        sha256: Sha256::of(bytes),
        md5: "0".repeat(32),
        is_inline: false,
        content_id: None,
        message: Some(serde_json::json!({"subject": "inner"})),
        status: AttachmentStatus::Stored,
    }
}

/// Blobs of the given bytes, durable and named by the unit.
pub async fn pack(tenant: &TenantStore, blobs: &Blobs, unit: &mut TenantUnit, contents: &[&[u8]]) -> PackId {
    let mut builder = PackBuilder::new().unwrap();
    for content in contents {
        builder.add(Sha256::of(content), content).unwrap();
    }
    let pack = builder.finish().unwrap();
    let id = PackId::new(tenant.clock());
    let key = Blobs::pack_key(tenant.id, id);
    tenant.announce_pack(id, &key).await.unwrap();
    blobs.write(&key, pack.bytes.clone()).await.unwrap();
    unit.record_pack(id, pack.bytes.len() as u64, &pack.members);
    id
}

/// Records emails with their raw bytes and their place in INBOX, as an import does.
pub async fn record(
    tenant: &TenantStore,
    blobs: &Blobs,
    emails: Vec<NewEmail>,
) -> Result<(CommitOutcome, OpId), StoreError> {
    let mut unit = tenant.write();
    let subjects: Vec<String> = emails.iter().filter_map(|email| email.subject.clone()).collect();
    let contents: Vec<&[u8]> = subjects.iter().map(String::as_bytes).collect();
    pack(tenant, blobs, &mut unit, &contents).await;
    let folders = tenant.ensure_folders(emails[0].mailbox, &["INBOX".into()]).await?;
    let placements: Vec<NewPlacement> = emails
        .iter()
        .map(|email| NewPlacement {
            mailbox: email.mailbox,
            folder: folders["INBOX"],
            provider_message_id: email.provider_message_id.clone(),
            provider_uid: email.provider_message_id.clone(),
            flags: Flags::from_names(["seen"]),
        })
        .collect();
    let stored = unit.record_emails(emails, &[]).emails;
    unit.record_placements(&placements);
    Ok((unit.commit().await?, stored))
}

pub fn blobs(folder: &tempfile::TempDir) -> Blobs {
    Blobs::local(folder.path()).unwrap()
}
