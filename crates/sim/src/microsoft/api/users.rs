//! People: who one is, and who there is in a directory.

use serde_json::{Value, json};

use super::super::error::Refusal;
use super::super::links::Place;
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

fn shown(entered: &Entered<'_>, mailbox: &Mailbox) -> Value {
    let mut shown = show(entered.world, mailbox);
    if entered.select.is_some() {
        shown["accountEnabled"] = json!(true);
        shown["userType"] = json!("Member");
        shown["proxyAddresses"] = json!([format!("SMTP:{}", mailbox.address)]);
    }
    select::only(shown, entered.select.as_deref())
}

pub fn get(entered: &Entered<'_>, mailbox: &Mailbox) -> Answer {
    Answer::json(shown(entered, mailbox))
}

/// Everybody in the directory, in the order in which they came.
pub fn list(entered: &Entered<'_>) -> Result<Answer, Refusal> {
    let directory = &entered.access.asked.directory;
    let (size, after) = match entered.call.query("$skiptoken") {
        Some(token) => {
            let place = Place::read(token, 0, "users").ok_or_else(|| Refusal::bad("The skip token is not valid."))?;
            (place.size, place.told)
        }
        None => match entered.call.query("$top").map(str::parse::<usize>) {
            None => (100, 0),
            Some(Ok(top)) if (1..=999).contains(&top) => (top, 0),
            Some(_) => return Err(Refusal::new(400, "Request_BadRequest", "Invalid page size specified.")),
        },
    };
    let all = entered.world.all();
    let people: Vec<_> = all.iter().filter(|mailbox| mailbox.directory == *directory).skip(after).collect();
    let value: Vec<Value> = people.iter().take(size).map(|mailbox| shown(entered, mailbox)).collect();
    let mut body = json!({"@odata.context": entered.context("users"), "value": value});
    if people.len() > size {
        let next = Place { of: "users".to_owned(), size, told: after + size, ..Place::default() };
        body["@odata.nextLink"] = json!(entered.link("$skiptoken", &next.write(0)));
    }
    Ok(Answer::json(body))
}
