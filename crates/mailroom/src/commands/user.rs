//! `mailroom user …`

use std::process::ExitCode;

use domain::address::canonical;
use serde_json::{Value, json};
use store::sql::users::{User, UserFilter};
use terminal::{Failure, Output};

use crate::app;
use crate::cli::directory::UserCommand as Command;
use crate::config::Config;

/// Users read at a time.
const PAGE_SIZE: u64 = 1_000;

pub async fn run(config: &Config, command: Command, out: Output) -> Result<ExitCode, Failure> {
    let Command::List { tenant, provider, active, inactive, address } = command;
    let engine = app::open(config).await?;
    let store = app::tenant_store(&engine, &tenant.tenant).await?;
    let address = address.map(|text| {
        canonical(&text).ok_or_else(|| {
            Failure::usage(format!("--address must be an email address, such as me@acme.test, not {text:?}"))
        })
    });
    let is_active = if active { Some(true) } else { inactive.then_some(false) };
    let filter =
        UserFilter { provider: provider.map(Into::into), is_active, left_out: None, address: address.transpose()? };
    let (mut after, mut rows) = (None, Vec::new());
    loop {
        let users = store.list_users(&filter, after, PAGE_SIZE).await?;
        let Some(last) = users.last() else { break };
        after = Some(last.id);
        for user in users {
            if out.json {
                out.object(&user_json(&user))?;
            } else {
                rows.push(row(user));
            }
        }
    }
    match (out.json, rows.is_empty()) {
        (true, _) => {}
        (false, true) => out.line("No users; `mailroom directory discover` reads the directories.")?,
        (false, false) => out.table(["address", "name", "unit", "directory", "mailbox"], &rows)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn row(user: User) -> [String; 5] {
    let mailbox = match (user.is_active, user.left_out) {
        (true, _) => "active".to_owned(),
        (false, Some(reason)) => format!("inactive: they {}", reason.phrase()),
        (false, None) => "not yet".to_owned(),
    };
    let person = user.person;
    let [address, name, unit] = [person.address, person.name, person.unit].map(Option::unwrap_or_default);
    [address, name, unit, user.provider.as_str().to_owned(), mailbox]
}

fn user_json(user: &User) -> Value {
    let person = &user.person;
    json!({
        "id": user.id, "provider": user.provider.as_str(), "provider_user_id": person.id, "address": person.address,
        "aliases": person.aliases, "name": person.name, "unit": person.unit, "is_suspended": person.is_suspended,
        "is_guest": person.is_guest, "is_licensed": person.is_licensed,
        "state": if user.is_active { "active" } else { "inactive" },
        "left_out": user.left_out.map(domain::ExclusionReason::as_str), "mailbox_id": user.mailbox,
        "created_at": user.created_at, "updated_at": user.updated_at,
    })
}
