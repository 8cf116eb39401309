//! What the work costs at least: one thread, the same parser, plain rows, FTS5, SHA-256, and attachments as files that
//! nobody syncs. `make bench` measures Mailroom against it, to show what the pipeline adds and what it saves.

use std::path::Path;
use std::time::Instant;

use content::files::{self, MailFileFormat};
use content::mime;
use content::spool::Spool;
use domain::{MessageLimits, Sha256};
use rusqlite::{Connection, params};

const BATCH: usize = 500;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, mbox, folder] = args.as_slice() else { anyhow::bail!("usage: floor MBOX FOLDER") };
    let started = Instant::now();
    run(Path::new(mbox), Path::new(folder))?;
    #[expect(clippy::print_stdout, reason = "this is a program, and this its answer")]
    {
        println!("{{\"seconds\":{}}}", started.elapsed().as_secs_f64());
    }
    Ok(())
}

fn run(mbox: &Path, folder: &Path) -> anyhow::Result<()> {
    let limits = MessageLimits::default();
    let mut db = Connection::open(folder.join("floor.db"))?;
    db.pragma_update(None, "journal_mode", "wal")?;
    db.pragma_update(None, "synchronous", "normal")?;
    db.execute_batch(
        "create table emails (id integer primary key, sha256 text unique, message_id text, subject text, sender text,
             sent_at text, body_text text, body_html text, headers text);
         create table recipients (email_id integer, position integer, address text, primary key (email_id, position));
         create table attachments (email_id integer, position integer, filename text, sha256 text, size integer);
         create virtual table search using fts5(subject, sender, body, content='');",
    )?;
    let mut messages = files::open(mbox, MailFileFormat::Mbox, &limits, &Spool::new(folder))?.peekable();
    let mut id = 0_i64;
    while messages.peek().is_some() {
        let transaction = db.transaction()?;
        for found in messages.by_ref().take(BATCH) {
            id += 1;
            store(&transaction, folder, id, &found?.raw.read()?, &limits)?;
        }
        transaction.commit()?;
    }
    Ok(())
}

fn store(db: &Connection, folder: &Path, id: i64, raw: &[u8], limits: &MessageLimits) -> anyhow::Result<()> {
    let sha256 = Sha256::of(raw).hex();
    let email = mime::parse(raw, limits);
    std::fs::write(folder.join(&sha256), raw)?;
    let sender = email.from.as_ref().map(|from| from.address.as_str());
    let headers = serde_json::to_string(&email.headers)?;
    db.prepare_cached("insert into emails values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?.execute(params![
        id,
        sha256,
        email.message_id,
        email.subject,
        sender,
        email.sent_at.map(|time| time.to_string()),
        email.body_text,
        email.body_html,
        headers
    ])?;
    for (position, recipient) in email.recipients.iter().enumerate() {
        db.prepare_cached("insert into recipients values (?1, ?2, ?3)")?.execute(params![
            id,
            position as i64,
            recipient.address.address
        ])?;
    }
    for (position, attachment) in email.attachments.iter().enumerate() {
        let sha256 = attachment.content.sha256().hex();
        std::fs::write(folder.join(&sha256), attachment.content.in_memory())?;
        db.prepare_cached("insert into attachments values (?1, ?2, ?3, ?4, ?5)")?.execute(params![
            id,
            position as i64,
            attachment.filename,
            sha256,
            attachment.content.len() as i64
        ])?;
    }
    db.prepare_cached("insert into search (rowid, subject, sender, body) values (?1, ?2, ?3, ?4)")?
        .execute(params![id, email.subject, sender, email.body_text])?;
    Ok(())
}
