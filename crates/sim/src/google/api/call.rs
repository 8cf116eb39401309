//! One call, alone or in a batch: is it one, who asks, may they, can it be paid, and is the answer what it should be?

use std::sync::atomic::Ordering;

use serde_json::Value;

use super::super::error::error;
use super::super::faults::{Kind, Route};
use super::super::oauth::Access;
use super::super::spec;
use super::super::world::{Mailbox, World};
use super::{directory, history, labels, mailbox, messages, refusals};
use crate::answer::{Answer, Body};
use crate::form::{decode, pairs};
use crate::spec::{Call, Document, Side};

#[derive(Debug)]
pub struct Asked<'a> {
    pub verb: &'a str,
    /// Path and query.
    pub target: &'a str,
    pub authorization: Option<&'a str>,
    pub body: &'a [u8],
    pub in_batch: bool,
}

/// What a method is answered from.
pub struct Entered<'a> {
    pub world: &'a World,
    pub mailbox: &'a Mailbox,
    pub access: &'a Access,
    pub call: &'a Call<'static>,
    pub body: Option<&'a Value>,
    pub faults: &'a [Kind],
}

/// Whose token it is.
pub fn opened(world: &World, authorization: Option<&str>) -> Option<Access> {
    world.oauth.open(authorization?.strip_prefix("Bearer ")?, world.now_ms())
}

pub async fn call(world: &World, asked: &Asked<'_>) -> Answer {
    let (path, query) = asked.target.split_once('?').unwrap_or((asked.target, ""));
    let path = path.split('/').map(decode).collect::<Vec<_>>().join("/");
    let document = match path.split('/').nth(1) {
        Some("oauth2") => spec::oauth(),
        Some("admin") => spec::directory(),
        _ => spec::gmail(),
    };
    let call = Call::find(document, asked.verb, &path, pairs(query));
    let Some((call, route)) = call.and_then(|call| Route::of(&call.method.id).map(|route| (call, route))) else {
        world.violations.add(Side::Request, &format!("{} {path}", asked.verb), "there is no such method");
        return error(404, "notFound", "There is no such method.");
    };
    let access = opened(world, asked.authorization);
    let account = match &access {
        Some(access) => access.account.clone(),
        None => world.find(call.path("userId")).map(|mailbox| mailbox.address.clone()).unwrap_or_default(),
    };
    let faults = world.faults.draw(&account, route);
    let answer = match refusals::instead(&faults).await {
        Some(answer) => answer,
        None => {
            enter(world, asked, document, &call, route, access.as_ref(), &faults).unwrap_or_else(|refusal| *refusal)
        }
    };
    let is_ours = !faults.contains(&Kind::Garbage);
    let answer = if is_ours { checked(world, document, &call, answer) } else { answer };
    world.requests.add(asked.verb, route, &account, answer.status, asked.in_batch);
    answer.spoil(&faults)
}

pub fn refused(status: u16, reason: &str, message: &str) -> Box<Answer> {
    Box::new(error(status, reason, message))
}

fn enter(
    world: &World,
    asked: &Asked<'_>,
    document: &'static Document,
    call: &Call<'static>,
    route: Route,
    access: Option<&Access>,
    faults: &[Kind],
) -> Result<Answer, Box<Answer>> {
    let body = read_body(world, asked.body, document, call)?;
    let access = access.ok_or_else(|| refused(401, "authError", "Request had invalid authentication credentials."))?;
    if !call.method.scopes.iter().any(|scope| access.scopes.contains(scope)) {
        return Err(refused(403, "insufficientPermissions", "Request had insufficient authentication scopes."));
    }
    let mailbox = world.find(&access.account);
    let mailbox =
        mailbox.ok_or_else(|| refused(401, "authError", "Request had invalid authentication credentials."))?;
    if route == Route::Userinfo {
        let (id, email) = (&mailbox.id, world.person(&mailbox).address);
        return Ok(Answer::json(serde_json::json!({"id": id, "email": email, "verified_email": true})));
    }
    if route.is_directory() {
        return directory::answer(route, &directory::Asked { world, mailbox: &mailbox, document, call, faults });
    }
    let (user, person) = (call.path("userId"), world.person(&mailbox));
    let is_own = || world.find(user).is_some_and(|found| found.id == mailbox.id);
    if user != "me" && !is_own() {
        return Err(refused(403, "forbidden", &format!("Delegation denied for {}", person.address)));
    }
    if !mailbox.has_mail_service.load(Ordering::Relaxed) || !person.has_mailbox() {
        return Err(refused(400, "failedPrecondition", "Mail service not enabled"));
    }
    world.quota.spend(&mailbox.address, route, world.now_ms())?;
    let entered = Entered { world, mailbox: &mailbox, access, call, body: body.as_ref(), faults };
    Ok(answer(route, &entered))
}

/// The body as JSON, if the request is one that the document allows.
fn read_body(
    world: &World,
    body: &[u8],
    document: &Document,
    call: &Call<'static>,
) -> Result<Option<Value>, Box<Answer>> {
    let read = match body {
        [] => Ok(None),
        bytes => serde_json::from_slice(bytes).map(Some).map_err(|_| "the body is no JSON".to_owned()),
    };
    let checked = read.and_then(|body: Option<Value>| call.check(document, body.as_ref()).map(|()| body));
    checked.map_err(|why| {
        world.violations.add(Side::Request, &call.method.id, &why);
        refused(400, "invalidArgument", &why)
    })
}

fn answer(route: Route, entered: &Entered<'_>) -> Answer {
    match route {
        Route::Profile => mailbox::profile(entered),
        Route::MessagesList => messages::list(entered),
        Route::MessagesGet => messages::get(entered),
        Route::AttachmentsGet => messages::attachment(entered),
        Route::HistoryList => history::list(entered),
        Route::LabelsList => labels::list(entered),
        Route::LabelsGet => labels::get(entered),
        Route::Watch => mailbox::watch(entered),
        Route::Stop => mailbox::stop(entered),
        _ => error(404, "notFound", "There is no such method."),
    }
}

/// An answer that is not what Google's document says is our own mistake, and is told as such.
fn checked(world: &World, document: &Document, call: &Call<'static>, mut answer: Answer) -> Answer {
    let verdict = match &mut answer.body {
        _ if answer.cut.is_some() => Ok(()),
        Body::Json(value) if answer.status >= 400 => spec::check_error(answer.status, value),
        _ if answer.status >= 400 => Err("an error without a body".to_owned()),
        Body::Json(value) => check_success(document, call, value),
        Body::JsonWith { object, field, .. } => {
            // The text itself comes from an encoder; that it is a string is all there is to check.
            object[*field] = Value::from("");
            let verdict = check_success(document, call, object);
            object.as_object_mut().and_then(|object| object.remove(*field));
            verdict
        }
        Body::Empty if call.method.response.is_none() => Ok(()),
        Body::Empty | Body::Other { .. } => Err("no JSON".to_owned()),
    };
    match verdict {
        Ok(()) => answer,
        Err(why) => {
            world.violations.add(Side::Response, &call.method.id, &why);
            error(500, "backendError", &format!("The simulator's answer is wrong: {why}"))
        }
    }
}

fn check_success(document: &Document, call: &Call<'static>, value: &Value) -> Result<(), String> {
    match &call.method.response {
        Some(schema) => document.check_answer(schema, value),
        None => Err("a body where none is described".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wrong_answer_of_our_own_is_500_and_written_down() {
        let world = World::new(1, 1, std::sync::Arc::new(|| jiff::Timestamp::UNIX_EPOCH));
        let call = Call::find(spec::gmail(), "GET", "/gmail/v1/users/me/messages/1", Vec::new()).unwrap();
        let raw = |object| Body::JsonWith { object, field: "raw", text: vec![Bytes::from_static(b"AAAA")] };

        for (status, body, expected) in [
            (200, raw(json!({"id": "1", "historyId": "7"})), 200),
            (200, raw(json!({"id": "1", "historyId": 7})), 500),
            (200, Body::Json(json!({"id": "1", "body": ""})), 500),
            (200, Body::Empty, 500),
            (404, Body::Json(json!({"error": "not_found"})), 500),
        ] {
            let answer = checked(&world, spec::gmail(), &call, Answer::new(status, body));
            assert_eq!(answer.status, expected);
        }

        let sides: Vec<Side> = world.violations().iter().map(|violation| violation.side).collect();
        assert_eq!(sides, [Side::Response; 4]);
    }

    #[test]
    fn the_text_that_comes_in_pieces_is_still_there_after_the_check() {
        let world = World::new(1, 1, std::sync::Arc::new(|| jiff::Timestamp::UNIX_EPOCH));
        let call = Call::find(spec::gmail(), "GET", "/gmail/v1/users/me/messages/1", Vec::new()).unwrap();
        let text = vec![Bytes::from_static(b"AA"), Bytes::from_static(b"BB")];
        let body = Body::JsonWith { object: json!({"id": "1"}), field: "raw", text };

        let answer = checked(&world, spec::gmail(), &call, Answer::new(200, body));

        assert_eq!(answer.into_pieces().concat(), br#"{"id":"1","raw":"AABB"}"#);
    }
}
