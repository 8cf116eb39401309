//! One call, alone or in a batch: is it one, who asks, may they, and is the answer what it should be?

use std::sync::Arc;

use serde_json::Value;

use super::super::error::Refusal;
use super::super::faults::{Kind, Route};
use super::super::identity::{Access, permission};
use super::super::spec;
use super::super::world::{Mailbox, World};
use super::prefer::Prefer;
use super::{refusals, select, users};
use crate::answer::{Answer, Body};
use crate::form::{decode, pairs};
use crate::spec::{Call, Document, Side};

#[derive(Debug)]
pub struct Asked<'a> {
    pub verb: &'a str,
    /// Path and query.
    pub target: &'a str,
    pub authorization: Option<&'a str>,
    pub prefer: String,
    pub body: &'a [u8],
    pub in_batch: bool,
}

/// What a method is answered from.
pub struct Entered<'a> {
    pub world: &'a World,
    pub access: &'a Access,
    pub call: &'a Call<'static>,
    pub prefer: &'a Prefer,
    /// The fields that were asked for.
    pub select: Option<Vec<String>>,
    pub body: Option<&'a Value>,
    pub faults: &'a [Kind],
}

/// Whose token it is.
pub fn opened(world: &World, authorization: Option<&str>) -> Option<Access> {
    world.identity.open(authorization?.strip_prefix("Bearer ")?, world.now_ms())
}

/// The path as the document has it: functions and actions have long names there.
fn long_names(path: &str) -> String {
    let segment = |segment: &str| match segment {
        "delta" | "delta()" => "microsoft.graph.delta()".to_owned(),
        "reauthorize" => "microsoft.graph.reauthorize".to_owned(),
        other => decode(other),
    };
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

pub async fn call(world: &World, asked: &Asked<'_>) -> Answer {
    let (path, query) = asked.target.split_once('?').unwrap_or((asked.target, ""));
    let path = long_names(path);
    let found = [spec::graph(), spec::undocumented()].into_iter().find_map(|document| {
        let call = Call::find(document, asked.verb, &path, pairs(query))?;
        Some((document, Route::of(&call.method.id)?, call))
    });
    let Some((document, route, call)) = found else {
        world.violations.add(Side::Request, &format!("{} {path}", asked.verb), "there is no such method");
        return Refusal::bad("Resource not found for the segment.").answer(world);
    };
    let access = opened(world, asked.authorization);
    let account = whose(world, access.as_ref(), &call);
    let faults = world.faults.draw(&account, route);
    let answer = match refusals::instead(world, &faults).await {
        Some(answer) => answer,
        None => enter(world, asked, document, &call, route, access.as_ref(), &faults)
            .unwrap_or_else(|refusal| refusal.answer(world)),
    };
    let is_ours = !faults.contains(&Kind::Garbage);
    let answer = if is_ours { checked(world, document, &call, answer) } else { answer };
    world.requests.add(asked.verb, route, &account, answer.status, asked.in_batch);
    answer.spoil(&faults)
}

/// The address that a request is about, as far as that can be told.
fn whose(world: &World, access: Option<&Access>, call: &Call<'static>) -> String {
    let named = world.find(call.path("user-id")).map(|mailbox| mailbox.address.clone());
    named.or_else(|| access.and_then(|access| access.asked.account.clone())).unwrap_or_default()
}

fn enter(
    world: &World,
    asked: &Asked<'_>,
    document: &'static Document,
    call: &Call<'static>,
    route: Route,
    access: Option<&Access>,
    faults: &[Kind],
) -> Result<Answer, Refusal> {
    let wrong = |why: String| {
        world.violations.add(Side::Request, &call.method.id, &why);
        Refusal::bad(why)
    };
    let body = read_body(asked.body, document, call).map_err(wrong)?;
    let prefer = Prefer::read(&asked.prefer).map_err(wrong)?;
    let select = select::read(document, call.method.entity.as_deref(), call.query("$select")).map_err(wrong)?;
    let access = access.ok_or_else(unauthenticated)?;
    let entered = Entered { world, access, call, prefer: &prefer, select, body: body.as_ref(), faults };
    let answer = answer(route, &entered)?;
    Ok(match prefer.applied() {
        Some(applied) => answer.with(axum::http::HeaderName::from_static("preference-applied"), &applied),
        None => answer,
    })
}

fn unauthenticated() -> Refusal {
    Refusal::new(401, "InvalidAuthenticationToken", "Access token is empty, has expired or is not yet valid.")
}

/// The body as JSON, if the request is one that the document allows.
fn read_body(body: &[u8], document: &Document, call: &Call<'static>) -> Result<Option<Value>, String> {
    let body: Option<Value> = match body {
        [] => None,
        bytes => Some(serde_json::from_slice(bytes).map_err(|_| "the body is no JSON".to_owned())?),
    };
    call.check(document, body.as_ref())?;
    Ok(body)
}

/// The mailbox that is asked about, if the token opens it.
fn mailbox(entered: &Entered<'_>) -> Result<Arc<Mailbox>, Refusal> {
    let (world, asked) = (entered.world, &entered.access.asked);
    let named = entered.call.path("user-id");
    let Some(account) = &asked.account else {
        if named.is_empty() {
            let message = "/me request is only valid with delegated authentication flow.";
            return Err(Refusal::new(400, "BadRequest", message));
        }
        // Programs reach their own directory, and never a personal account.
        let found = world.find(named).filter(|mailbox| mailbox.directory == asked.directory);
        return found.ok_or_else(|| no_such_user(named));
    };
    let own = world.find(account).ok_or_else(unauthenticated)?;
    match world.find(named) {
        _ if named.is_empty() => Ok(own),
        Some(found) if found.address == own.address => Ok(own),
        Some(_) => Err(denied()),
        None => Err(no_such_user(named)),
    }
}

fn no_such_user(named: &str) -> Refusal {
    let message =
        format!("Resource '{named}' does not exist or one of its queried reference-property objects are not present.");
    Refusal::new(404, "Request_ResourceNotFound", message)
}

fn denied() -> Refusal {
    Refusal::new(403, "ErrorAccessDenied", "Access is denied. Check credentials and try again.")
}

/// Whether the token has one of these.
fn allows(entered: &Entered<'_>, permissions: &[&str]) -> bool {
    let scopes = &entered.access.asked.scopes;
    scopes.iter().any(|scope| permissions.iter().any(|wanted| wanted.eq_ignore_ascii_case(permission(scope))))
}

const READS_PEOPLE: [&str; 8] = [
    "User.Read",
    "User.Read.All",
    "User.ReadBasic.All",
    "Directory.Read.All",
    "Mail.Read",
    "Mail.ReadWrite",
    "openid",
    "profile",
];

fn answer(route: Route, entered: &Entered<'_>) -> Result<Answer, Refusal> {
    match route {
        Route::Me => {
            let mailbox = mailbox(entered)?;
            match allows(entered, &READS_PEOPLE) {
                true => Ok(users::get(entered, &mailbox)),
                false => Err(Refusal::new(
                    403,
                    "Authorization_RequestDenied",
                    "Insufficient privileges to complete the operation.",
                )),
            }
        }
        _ => Err(Refusal::bad("Resource not found for the segment.")),
    }
}

/// An answer that is not what Microsoft's document says is our own mistake, and is told as such.
fn checked(world: &World, document: &Document, call: &Call<'static>, answer: Answer) -> Answer {
    let verdict = match &answer.body {
        _ if answer.cut.is_some() => Ok(()),
        Body::Json(value) if answer.status >= 400 => spec::check_error(value),
        _ if answer.status >= 400 => Err("an error without a body".to_owned()),
        Body::Json(value) => match &call.method.response {
            Some(schema) => document.check(schema, value),
            None => Err("a body where none is described".to_owned()),
        },
        Body::Empty | Body::Other { .. } if call.method.response.is_none() => Ok(()),
        Body::Empty | Body::Other { .. } | Body::JsonWith { .. } => Err("no JSON".to_owned()),
    };
    match verdict {
        Ok(()) => answer,
        Err(why) => {
            world.violations.add(Side::Response, &call.method.id, &why);
            Refusal::new(500, "ErrorInternalServerError", format!("The simulator's answer is wrong: {why}"))
                .answer(world)
        }
    }
}
