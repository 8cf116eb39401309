//! Answers one API call, alone or in a batch: finds the method, checks token, scope and quota, and validates the
//! response.

use std::sync::atomic::Ordering;

use serde_json::Value;

use super::super::error::error;
use super::super::faults::{GoogleFaultKind, GoogleRoute};
use super::super::oauth::GoogleAccessToken;
use super::super::spec;
use super::super::world::{GoogleMailbox, GoogleWorld};
use super::{directory, fault_responses, history, labels, mailbox, messages};
use crate::form::{decode, pairs};
use crate::response::{ResponseBody, SimResponse};
use crate::spec::{Document, MethodCall, Side};

#[derive(Debug)]
pub struct GmailRequest<'a> {
    pub verb: &'a str,
    /// Path and query.
    pub target: &'a str,
    pub authorization: Option<&'a str>,
    pub body: &'a [u8],
    pub in_batch: bool,
}

/// Everything that the handler of a method needs.
pub struct GmailCallContext<'a> {
    pub world: &'a GoogleWorld,
    pub mailbox: &'a GoogleMailbox,
    pub access: &'a GoogleAccessToken,
    pub call: &'a MethodCall<'static>,
    pub body: Option<&'a Value>,
    pub faults: &'a [GoogleFaultKind],
}

/// Returns the access token's record, if the header holds a live token.
pub fn open_token(world: &GoogleWorld, authorization: Option<&str>) -> Option<GoogleAccessToken> {
    world.provider.oauth.open(authorization?.strip_prefix("Bearer ")?, world.now_ms())
}

pub async fn answer_call(world: &GoogleWorld, request: &GmailRequest<'_>) -> SimResponse {
    let (path, query) = request.target.split_once('?').unwrap_or((request.target, ""));
    let path = path.split('/').map(decode).collect::<Vec<_>>().join("/");
    let document = match path.split('/').nth(1) {
        Some("oauth2") => spec::oauth(),
        Some("admin") => spec::directory(),
        _ => spec::gmail(),
    };
    let call = MethodCall::find(document, request.verb, &path, pairs(query));
    let Some((call, route)) = call.and_then(|call| GoogleRoute::of(&call.method.id).map(|route| (call, route))) else {
        world.violations.add(Side::Request, &format!("{} {path}", request.verb), "there is no such method");
        return error(404, "notFound", "There is no such method.");
    };
    let access = open_token(world, request.authorization);
    let account = match &access {
        Some(access) => access.account.clone(),
        None => world.find(call.path("userId")).map(|mailbox| mailbox.address.clone()).unwrap_or_default(),
    };
    let faults = world.faults.draw(&account, route);
    let answer = match fault_responses::replacement(&faults).await {
        Some(answer) => answer,
        None => authorize_and_answer(world, request, document, &call, route, access.as_ref(), &faults)
            .unwrap_or_else(|refusal| *refusal),
    };
    let is_ours = !faults.contains(&GoogleFaultKind::Garbage);
    let answer = if is_ours { validated(world, document, &call, answer) } else { answer };
    world.requests.add(request.verb, route, &account, answer.status, request.in_batch);
    answer.damaged_by(&faults)
}

pub fn boxed_error(status: u16, reason: &str, message: &str) -> Box<SimResponse> {
    Box::new(error(status, reason, message))
}

fn authorize_and_answer(
    world: &GoogleWorld,
    request: &GmailRequest<'_>,
    document: &'static Document,
    call: &MethodCall<'static>,
    route: GoogleRoute,
    access: Option<&GoogleAccessToken>,
    faults: &[GoogleFaultKind],
) -> Result<SimResponse, Box<SimResponse>> {
    let body = parse_body(world, request.body, document, call)?;
    let access =
        access.ok_or_else(|| boxed_error(401, "authError", "Request had invalid authentication credentials."))?;
    if !call.method.scopes.iter().any(|scope| access.scopes.contains(scope)) {
        return Err(boxed_error(403, "insufficientPermissions", "Request had insufficient authentication scopes."));
    }
    let mailbox = world.find(&access.account);
    let mailbox =
        mailbox.ok_or_else(|| boxed_error(401, "authError", "Request had invalid authentication credentials."))?;
    if route == GoogleRoute::Userinfo {
        let (id, email) = (&mailbox.id, world.person(&mailbox).address);
        return Ok(SimResponse::json(serde_json::json!({"id": id, "email": email, "verified_email": true})));
    }
    if route.is_directory() {
        return directory::answer(
            route,
            &directory::DirectoryRequest { world, mailbox: &mailbox, document, call, faults },
        );
    }
    let (user, person) = (call.path("userId"), world.person(&mailbox));
    if user != "me" && world.find(user).is_none_or(|found| found.id != mailbox.id) {
        return Err(boxed_error(403, "forbidden", &format!("Delegation denied for {}", person.address)));
    }
    if !mailbox.has_mail_service.load(Ordering::Relaxed) || !person.has_mailbox() {
        return Err(boxed_error(400, "failedPrecondition", "Mail service not enabled"));
    }
    world.provider.quota.spend(&mailbox.address, route, world.now_ms())?;
    let context = GmailCallContext { world, mailbox: &mailbox, access, call, body: body.as_ref(), faults };
    Ok(answer(route, &context))
}

/// Parses the body as JSON and checks the request against the API description.
fn parse_body(
    world: &GoogleWorld,
    body: &[u8],
    document: &Document,
    call: &MethodCall<'static>,
) -> Result<Option<Value>, Box<SimResponse>> {
    let read = match body {
        [] => Ok(None),
        bytes => serde_json::from_slice(bytes).map(Some).map_err(|_| "the body is no JSON".to_owned()),
    };
    let checked = read.and_then(|body: Option<Value>| call.check(document, body.as_ref()).map(|()| body));
    checked.map_err(|why| {
        world.violations.add(Side::Request, &call.method.id, &why);
        boxed_error(400, "invalidArgument", &why)
    })
}

fn answer(route: GoogleRoute, context: &GmailCallContext<'_>) -> SimResponse {
    match route {
        GoogleRoute::Profile => mailbox::profile(context),
        GoogleRoute::MessagesList => messages::list(context),
        GoogleRoute::MessagesGet => messages::get(context),
        GoogleRoute::AttachmentsGet => messages::attachment(context),
        GoogleRoute::HistoryList => history::list(context),
        GoogleRoute::LabelsList => labels::list(context),
        GoogleRoute::LabelsGet => labels::get(context),
        GoogleRoute::Watch => mailbox::watch(context),
        GoogleRoute::Stop => mailbox::stop(context),
        _ => error(404, "notFound", "There is no such method."),
    }
}

/// Checks the response against Google's API description. A mismatch is a bug of the simulator and becomes a 500.
fn validated(
    world: &GoogleWorld,
    document: &Document,
    call: &MethodCall<'static>,
    mut answer: SimResponse,
) -> SimResponse {
    let verdict = match &mut answer.body {
        _ if answer.cut.is_some() => Ok(()),
        ResponseBody::Json(value) if answer.status >= 400 => spec::check_error(answer.status, value),
        _ if answer.status >= 400 => Err("an error without a body".to_owned()),
        ResponseBody::Json(value) => check_success(document, call, value),
        ResponseBody::JsonWith { object, field, .. } => {
            // The text itself comes from an encoder; that it is a string is all there is to check.
            object[*field] = Value::from("");
            let verdict = check_success(document, call, object);
            object.as_object_mut().and_then(|object| object.remove(*field));
            verdict
        }
        ResponseBody::Empty if call.method.response.is_none() => Ok(()),
        ResponseBody::Empty | ResponseBody::Other { .. } => Err("no JSON".to_owned()),
    };
    match verdict {
        Ok(()) => answer,
        Err(why) => {
            world.violations.add(Side::Response, &call.method.id, &why);
            error(500, "backendError", &format!("The simulator's answer is wrong: {why}"))
        }
    }
}

fn check_success(document: &Document, call: &MethodCall<'static>, value: &Value) -> Result<(), String> {
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
    fn invalid_response_becomes_500_and_a_violation() {
        let world = GoogleWorld::new(1, 1, std::sync::Arc::new(|| jiff::Timestamp::UNIX_EPOCH));
        let call = MethodCall::find(spec::gmail(), "GET", "/gmail/v1/users/me/messages/1", Vec::new()).unwrap();
        let raw = |object| ResponseBody::JsonWith { object, field: "raw", text: vec![Bytes::from_static(b"AAAA")] };

        for (status, body, expected) in [
            (200, raw(json!({"id": "1", "historyId": "7"})), 200),
            (200, raw(json!({"id": "1", "historyId": 7})), 500),
            (200, ResponseBody::Json(json!({"id": "1", "body": ""})), 500),
            (200, ResponseBody::Empty, 500),
            (404, ResponseBody::Json(json!({"error": "not_found"})), 500),
        ] {
            let answer = validated(&world, spec::gmail(), &call, SimResponse::new(status, body));
            assert_eq!(answer.status, expected);
        }

        let sides: Vec<Side> = world.violations().iter().map(|violation| violation.side).collect();
        assert_eq!(sides, [Side::Response; 4]);
    }

    #[test]
    fn validation_keeps_text_in_pieces() {
        let world = GoogleWorld::new(1, 1, std::sync::Arc::new(|| jiff::Timestamp::UNIX_EPOCH));
        let call = MethodCall::find(spec::gmail(), "GET", "/gmail/v1/users/me/messages/1", Vec::new()).unwrap();
        let text = vec![Bytes::from_static(b"AA"), Bytes::from_static(b"BB")];
        let body = ResponseBody::JsonWith { object: json!({"id": "1"}), field: "raw", text };

        let answer = validated(&world, spec::gmail(), &call, SimResponse::new(200, body));

        assert_eq!(answer.into_pieces().concat(), br#"{"id":"1","raw":"AABB"}"#);
    }
}
