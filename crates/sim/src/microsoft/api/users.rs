//! People: who one is, and who there is in a directory.

use serde_json::{Value, json};

use super::super::world::{Mailbox, World};
use super::call::Entered;
use super::select;
use crate::answer::Answer;

pub fn show(world: &World, mailbox: &Mailbox) -> Value {
    json!({
        "@odata.context": format!("{}/v1.0/$metadata#users/$entity", world.url()),
        "id": mailbox.id,
        "userPrincipalName": mailbox.address,
        "mail": mailbox.address,
        "displayName": mailbox.name(),
        "givenName": null,
        "surname": null,
        "jobTitle": null,
        "mobilePhone": null,
        "officeLocation": null,
        "preferredLanguage": null,
        "businessPhones": [],
    })
}

pub fn get(entered: &Entered<'_>, mailbox: &Mailbox) -> Answer {
    let mut shown = show(entered.world, mailbox);
    if entered.select.is_some() {
        shown["accountEnabled"] = json!(true);
        shown["userType"] = json!("Member");
        shown["proxyAddresses"] = json!([format!("SMTP:{}", mailbox.address)]);
    }
    Answer::json(select::only(shown, entered.select.as_deref()))
}
