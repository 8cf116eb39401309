//! `mailroom email show` and `restore`, and `purge`

use std::io::Seek;
use std::process::ExitCode;

use domain::{Address, EmailId};
use engine::operations::{Invocation, emails};
use engine::{Engine, MAX_BUFFERED_BLOB_BYTES};
use serde_json::json;
use store::TenantStore;
use store::blobs::ReadError;
use store::sql::emails::Email;
use terminal::{Failure, Output, one_line, size};

use super::purge;
use crate::app;
use crate::cli;
use crate::config::Config;

pub async fn run(config: &Config, command: cli::EmailCommand, out: Output) -> Result<ExitCode, Failure> {
    match command {
        cli::EmailCommand::Show { id, tenant, raw } => show(config, &id, &tenant.tenant, raw, out).await,
        cli::EmailCommand::Restore { ids, tenant } => restore(config, &parse_ids(&ids)?, &tenant.tenant, out).await,
        cli::EmailCommand::Purge { ids, tenant, query, mailbox, include_deleted, yes } => {
            let selection = match query {
                Some(query) => purge::PurgeSelection::Query { query, mailbox, include_deleted },
                None => purge::PurgeSelection::Ids(parse_ids(&ids)?),
            };
            purge::run(config, &tenant.tenant, selection, yes, out).await
        }
    }
}

fn parse_id(id: &str) -> Result<EmailId, Failure> {
    id.parse().map_err(|_| Failure::usage(format!("{id:?} is not the id of an email; `mailroom search` shows ids")))
}

fn parse_ids(ids: &[String]) -> Result<Vec<EmailId>, Failure> {
    ids.iter().map(|id| parse_id(id)).collect()
}

async fn restore(config: &Config, ids: &[EmailId], tenant: &str, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    let store = app::tenant_store(&engine, tenant).await?;
    let origin = app::origin();
    for id in ids {
        let call = Invocation::begin(&engine, &origin).await?;
        emails::restore(&call, store.id, *id).await.map_err(app::refused)?;
        if out.json {
            out.object(&json!({"id": id, "restored": true}))?;
        } else {
            out.line(&format!("{id} is not deleted any more."))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(config: &Config, id: &str, tenant: &str, raw: bool, out: Output) -> Result<ExitCode, Failure> {
    let parsed = parse_id(id)?;
    let engine = app::open(config).await?;
    let store = app::tenant_store(&engine, tenant).await?;
    let Some(email) = store.find_email(parsed).await? else {
        return Err(Failure::problem(format!("this tenant has no email {id}; `mailroom search` shows its emails")));
    };
    if raw {
        print_raw(&engine, &store, &email, out).await?;
    } else if out.json {
        out.object(&email)?;
    } else {
        print(&email, out)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the original bytes after their hash has been verified; a large message is copied to an unnamed temporary file.
async fn print_raw(engine: &Engine, store: &TenantStore, email: &Email, out: Output) -> Result<(), Failure> {
    let place = engine.find_raw_location(store, email).await?;
    if place.size_bytes <= MAX_BUFFERED_BLOB_BYTES {
        return out.bytes(&engine.read_blob(store, place).await?);
    }
    let mut file = match engine.blobs.read_to(&place, tempfile::tempfile()?).await {
        Ok(file) => file,
        Err(ReadError::Store(e)) => return Err(e.into()),
        Err(ReadError::Writer(e)) => {
            return Err(Failure::problem(format!(
                "cannot write a temporary file ({e}); set TMPDIR to a disk with free space"
            )));
        }
    };
    file.rewind()?;
    out.copy(&mut file)
}

pub fn print(email: &Email, out: Output) -> Result<(), Failure> {
    print_field(out, "Id", &email.id.to_string())?;
    print_field(out, "Subject", email.subject.as_deref().unwrap_or_default())?;
    print_field(out, "From", &email.from.as_ref().map(person).unwrap_or_default())?;
    for (name, people) in [("To", &email.to), ("Cc", &email.cc), ("Bcc", &email.bcc), ("Reply-To", &email.reply_to)] {
        if !people.is_empty() {
            print_field(out, name, &people.iter().map(person).collect::<Vec<_>>().join(", "))?;
        }
    }
    print_field(out, "Received", &email.received_at.to_string())?;
    if let Some(sent) = email.sent_at {
        print_field(out, "Sent", &sent.to_string())?;
    }
    if let Some(deleted) = email.deleted_at {
        print_field(out, "Deleted", &deleted.to_string())?;
    }
    print_field(out, "Folders", &email.folders.join(", "))?;
    if !email.flags.is_empty() {
        print_field(out, "Flags", &email.flags.join(", "))?;
    }
    print_field(out, "Size", &size(email.size_bytes))?;
    for attachment in &email.attachments {
        let name = attachment.filename.as_deref().unwrap_or("(no name)");
        print_field(
            out,
            "Attachment",
            &format!("{name}, {}, {}", attachment.content_type, size(attachment.size_bytes)),
        )?;
    }
    if let Some(defects) = email.defects.as_array().filter(|defects| !defects.is_empty()) {
        let names: Vec<&str> = defects.iter().filter_map(|defect| defect.as_str()).collect();
        print_field(out, "Defects", &names.join(", "))?;
    }
    out.line("")?;
    for line in email.body_text.as_deref().unwrap_or_default().lines() {
        out.line(&one_line(line, usize::MAX))?;
    }
    out.line("")
}

fn print_field(out: Output, name: &str, value: &str) -> Result<(), Failure> {
    out.line(&format!("{name:<12}{}", one_line(value, 500)))
}

fn person(address: &Address) -> String {
    match &address.name {
        Some(name) => format!("{name} <{}>", address.address),
        None => address.address.clone(),
    }
}
