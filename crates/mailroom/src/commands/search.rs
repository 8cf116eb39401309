//! `mailroom search`

use std::process::ExitCode;

use domain::EmailId;
use domain::search::SearchOrder;
use engine::archive::search::{RANKED_WINDOW, SearchError, SearchHit, SearchRequest, SearchResults};
use serde_json::json;
use store::TenantStore;
use terminal::{Failure, Output, count, note, one_line};

use super::email;
use crate::app;
use crate::cli;
use crate::config::Config;

/// Hits shown on a terminal by default; programs get all.
const TERMINAL_LIMIT: u64 = 20;

/// Emails read at a time.
const PAGE_SIZE: u64 = 200;

/// Whole emails read at a time; they may be large.
const WHOLE_EMAILS_PER_READ: usize = 20;

pub async fn run(config: &Config, args: &cli::SearchArgs, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    let store = app::tenant_store(&engine, &args.tenant.tenant).await?;
    let mailbox = app::find_mailbox(&store, args.mailbox.as_deref()).await?.map(|mailbox| mailbox.id);
    let is_for_a_person = out.is_terminal() && !out.json && !args.full;
    let mut left = args.limit.unwrap_or(if is_for_a_person { TERMINAL_LIMIT } else { u64::MAX });
    let mut search = SearchRequest {
        mailbox,
        includes_deleted: args.include_deleted,
        limit: 0,
        order: if args.ranked { SearchOrder::Ranked } else { SearchOrder::Newest },
        cursor: args.cursor.clone(),
        marks: marks(out),
    };
    let mut shown = 0;
    while left > 0 {
        search.limit = left.min(PAGE_SIZE);
        let SearchResults { hits, next_cursor } = engine.search(&store, &args.query, &search).await.map_err(failure)?;
        if args.full {
            print_whole(&store, &hits, out).await?;
        } else {
            hits.iter().try_for_each(|hit| print_line(hit, out))?;
        }
        shown += hits.len() as u64;
        left -= (hits.len() as u64).min(left);
        search.cursor = next_cursor;
        if search.cursor.is_none() {
            break;
        }
    }
    conclude(shown, search.cursor.as_deref(), args.ranked, out);
    Ok(ExitCode::SUCCESS)
}

/// Returns the marks around a match: bold on a terminal, else asterisks.
fn marks(out: Output) -> (&'static str, &'static str) {
    if out.is_terminal() && !out.json { ("\u{1b}[1m", "\u{1b}[0m") } else { ("**", "**") }
}

fn failure(e: SearchError) -> Failure {
    match e {
        SearchError::Query(_) => Failure::usage(e.to_string()),
        SearchError::Cursor => Failure::usage(format!("--cursor {e}")),
        SearchError::Store(e) => e.into(),
    }
}

async fn print_whole(store: &TenantStore, hits: &[SearchHit], out: Output) -> Result<(), Failure> {
    let ids: Vec<EmailId> = hits.iter().map(|hit| hit.email.id).collect();
    for ids in ids.chunks(WHOLE_EMAILS_PER_READ) {
        for email in store.get_emails(ids).await? {
            if out.json { out.object(&email)? } else { email::print(&email, out)? }
        }
    }
    Ok(())
}

fn print_line(hit: &SearchHit, out: Output) -> Result<(), Failure> {
    let email = &hit.email;
    if out.json {
        return out.object(&json!({
            "id": email.id, "mailbox_id": email.mailbox_id, "subject": email.subject, "from": email.from,
            "received_at": email.received_at, "folders": email.folders, "has_attachments": email.has_attachments,
            "deleted_at": email.deleted_at, "snippet": hit.snippet,
        }));
    }
    let from = email.from.as_ref().map_or("(no sender)", |from| from.name.as_deref().unwrap_or(&from.address));
    let subject = email.subject.as_deref().unwrap_or("(no subject)");
    let clip = if email.has_attachments { " +" } else { "" };
    let state = if email.deleted_at.is_some() { "  [deleted]" } else { "" };
    let date = email.received_at.strftime("%Y-%m-%d %H:%M");
    out.line(&format!("{date}  {}  {}{clip}{state}", one_line(from, 30), one_line(subject, 90)))?;
    out.line(&format!("    {}", hit.snippet))?;
    out.line(&format!("    {}", email.id))
}

fn conclude(shown: u64, cursor: Option<&str>, is_ranked: bool, out: Output) {
    match cursor {
        None if out.json => {}
        None if shown == 0 => note("Nothing found."),
        None if is_ranked && shown >= RANKED_WINDOW => {
            note(&format!(
                "{} found: the newest matches, best first; narrow the search to rank older ones.",
                count(shown)
            ));
        }
        None => note(&format!("{} found.", count(shown))),
        Some(cursor) => note(&format!("{} shown; more with --limit N, or with --cursor {cursor}", count(shown))),
    }
}
