//! One call, alone or in a batch: is it one, who asks, may they, and is the answer what it should be?

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;

use super::super::error::Refusal;
use super::super::faults::{Kind, Route};
use super::super::identity::{Access, permission};
use super::super::spec;
use super::super::throttle::UnderWay;
use super::super::world::{Mailbox, World};
use super::prefer::Prefer;
use super::{attachments, delta, folders, groups, messages, refusals, select, subscriptions, users};
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
    /// `ConsistencyLevel: eventual`.
    pub is_eventual: bool,
    pub body: &'a [u8],
    pub in_batch: bool,
}

/// What a method is answered from.
pub struct Entered<'a> {
    pub world: &'a World,
    pub access: &'a Access,
    pub call: &'a Call<'static>,
    pub prefer: &'a Prefer,
    pub is_eventual: bool,
    /// The fields that were asked for.
    pub select: Option<Vec<String>>,
    pub body: Option<&'a Value>,
    pub faults: &'a [Kind],
    /// As it was asked for.
    path: &'a str,
    pub in_batch: bool,
}

impl Entered<'_> {
    /// Whether a fault of this kind has come.
    pub fn has(&self, kind: &Kind) -> bool {
        self.faults.contains(kind)
    }

    /// Where more of the same is.
    pub fn link(&self, name: &str, token: &str) -> String {
        format!("{}{}?{name}={token}", self.world.url(), self.path)
    }

    /// What an answer is a part of.
    pub fn context(&self, what: &str) -> String {
        format!("{}/v1.0/$metadata#users('sim')/{what}", self.world.url())
    }
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

/// A call that comes alone: it takes its time, and only so many are under way for one mailbox.
pub async fn alone(world: &World, asked: &Asked<'_>) -> Answer {
    let path = asked.target.split('?').next().unwrap_or_default();
    let named = path.strip_prefix("/v1.0/users/").and_then(|rest| rest.split('/').next()).map(decode);
    let access = opened(world, asked.authorization);
    let (_under_way, refusal) = begun(world, access.as_ref(), named.as_deref()).unzip();
    world.wait().await;
    answered(world, asked, refusal.flatten()).await
}

/// A part of a batch: the batch has waited for it.
pub async fn part(world: &World, asked: &Asked<'_>) -> Answer {
    answered(world, asked, None).await
}

/// One more request is under way, for a mailbox that is named or the token's own.
pub fn begun<'a>(
    world: &'a World,
    access: Option<&Access>,
    named: Option<&str>,
) -> Option<(UnderWay<'a>, Option<Refusal>)> {
    let asked = &access?.asked;
    let account = named.and_then(|named| world.find(named)).map(|mailbox| mailbox.address.clone());
    let account = account.or_else(|| asked.account.clone())?;
    Some(world.throttle.begin((asked.client.clone(), account)))
}

/// `refusal`: why it is refused whatever it asks for.
async fn answered(world: &World, asked: &Asked<'_>, refusal: Option<Refusal>) -> Answer {
    let (asked_path, query) = asked.target.split_once('?').unwrap_or((asked.target, ""));
    let path = long_names(asked_path);
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
    // Those that are refused count as well.
    let pair = access.as_ref().map(|access| (access.asked.client.clone(), account.clone()));
    let is_too_many = pair.and_then(|pair| world.throttle.count(&pair, world.now_ms())).filter(|_| route.is_mail());
    let answer = match (refusals::instead(world, &faults).await, refusal.or(is_too_many)) {
        (Some(answer), _) => answer,
        (None, Some(refusal)) => refusal.answer(world),
        (None, None) => {
            let entered = enter(world, asked, document, &call, route, access.as_ref(), &faults).await;
            entered.unwrap_or_else(|refusal| refusal.answer(world))
        }
    };
    let is_ours = !faults.contains(&Kind::Garbage);
    let answer = if is_ours { checked(world, document, &call, answer) } else { answer };
    let answer = match answer.status {
        410 => delta::with_location(answer, &world.url(), asked_path),
        _ => answer,
    };
    world.requests.add(asked.verb, route, &account, answer.status, asked.in_batch);
    answer.spoil(&faults)
}

/// The address that a request is about, as far as that can be told.
fn whose(world: &World, access: Option<&Access>, call: &Call<'static>) -> String {
    let named = world.find(call.path("user-id")).map(|mailbox| mailbox.address.clone());
    named.or_else(|| access.and_then(|access| access.asked.account.clone())).unwrap_or_default()
}

async fn enter(
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
    let select = select::read(call.method.entity.as_deref(), call.query("$select")).map_err(wrong)?;
    let access = access.ok_or_else(unauthenticated)?;
    if route.is_mail() && !prefer.is_immutable {
        world.count_without_immutable_ids(&whose(world, Some(access), call));
    }
    let path = asked.target.split_once('?').map_or(asked.target, |(path, _)| path);
    let in_batch = asked.in_batch;
    let is_eventual = asked.is_eventual;
    let entered = Entered {
        world,
        access,
        call,
        prefer: &prefer,
        is_eventual,
        select,
        body: body.as_ref(),
        faults,
        path,
        in_batch,
    };
    let answer = answer(route, &entered).await?;
    Ok(match prefer.applied() {
        Some(applied) => answer.with(axum::http::HeaderName::from_static("preference-applied"), &applied),
        None => answer,
    })
}

pub fn unauthenticated() -> Refusal {
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
    named(entered, entered.call.path("user-id"))
}

/// By id or address; empty: one's own.
pub fn named(entered: &Entered<'_>, named: &str) -> Result<Arc<Mailbox>, Refusal> {
    let (world, asked) = (entered.world, &entered.access.asked);
    let Some(account) = &asked.account else {
        if named.is_empty() {
            let message = "/me request is only valid with delegated authentication flow.";
            return Err(Refusal::new(400, "BadRequest", message));
        }
        // Programs reach their own directory, and never a personal account.
        return world.user(&asked.directory, named).ok_or_else(|| no_such_user(named));
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

pub fn denied() -> Refusal {
    Refusal::new(403, "ErrorAccessDenied", "Access is denied. Check credentials and try again.")
}

/// Whether the token has one of these.
pub fn allows(entered: &Entered<'_>, permissions: &[&str]) -> bool {
    let scopes = &entered.access.asked.scopes;
    scopes.iter().any(|scope| permissions.iter().any(|wanted| wanted.eq_ignore_ascii_case(permission(scope))))
}

const READS_PEOPLE: [&str; 4] = ["User.Read", "User.Read.All", "User.ReadBasic.All", "Directory.Read.All"];

async fn answer(route: Route, entered: &Entered<'_>) -> Result<Answer, Refusal> {
    match route {
        Route::Me => {
            let mailbox = mailbox(entered)?;
            match allows(entered, &READS_PEOPLE) {
                true => Ok(users::get(entered, &mailbox)),
                false => Err(not_allowed()),
            }
        }
        Route::UsersList | Route::UsersDelta => match allows(entered, &READS_EVERYBODY) {
            true if route == Route::UsersDelta => users::changes(entered),
            true => users::list(entered),
            false => Err(not_allowed()),
        },
        _ if route.is_group() => match allows(entered, &READS_GROUPS) {
            true => groups::answer(route, entered),
            false => Err(not_allowed()),
        },
        Route::SubscriptionsCreate => subscriptions::create(entered).await,
        Route::SubscriptionsList => Ok(subscriptions::list(entered)),
        Route::SubscriptionsGet => subscriptions::get(entered),
        Route::SubscriptionsRenew => subscriptions::renew(entered),
        Route::SubscriptionsReauthorize => subscriptions::reauthorize(entered),
        Route::SubscriptionsDelete => subscriptions::delete(entered),
        _ if route.is_mail() => mail(route, entered),
        _ => Err(Refusal::bad("Resource not found for the segment.")),
    }
}

/// What lies in a mailbox.
fn mail(route: Route, entered: &Entered<'_>) -> Result<Answer, Refusal> {
    let mailbox = mailbox(entered)?;
    let mailbox = &*mailbox;
    // Bodies and bytes need more than the headers.
    let needs_all = matches!(
        route,
        Route::MessagesValue | Route::AttachmentsList | Route::AttachmentsGet | Route::AttachmentsValue
    );
    if !allows(entered, &READS_MAIL) && (needs_all || !allows(entered, &["Mail.ReadBasic", "Mail.ReadBasic.All"])) {
        return Err(denied());
    }
    if !mailbox.has_mail_service.load(Ordering::Relaxed) || !entered.world.person(mailbox).has_mailbox() {
        return Err(refusals::no_mailbox());
    }
    match route {
        Route::FoldersList | Route::FoldersChildren => folders::list(entered, mailbox),
        Route::FoldersGet => folders::get(entered, mailbox),
        Route::FoldersDelta => folders::changes(entered, mailbox),
        Route::MessagesList => messages::list(entered, mailbox),
        Route::MessagesGet => messages::get(entered, mailbox),
        Route::MessagesValue => messages::value(entered, mailbox),
        Route::MessagesDelta => delta::of_messages(entered, mailbox),
        Route::AttachmentsList => attachments::list(entered, mailbox),
        Route::AttachmentsGet => attachments::get(entered, mailbox),
        _ => attachments::value(entered, mailbox),
    }
}

fn not_allowed() -> Refusal {
    Refusal::new(403, "Authorization_RequestDenied", "Insufficient privileges to complete the operation.")
}

pub const READS_MAIL: [&str; 2] = ["Mail.Read", "Mail.ReadWrite"];

const READS_EVERYBODY: [&str; 3] = ["User.Read.All", "User.ReadBasic.All", "Directory.Read.All"];
const READS_GROUPS: [&str; 3] = ["GroupMember.Read.All", "Group.Read.All", "Directory.Read.All"];

/// An answer that is not what Microsoft's document says is our own mistake, and is told as such.
fn checked(world: &World, document: &Document, call: &Call<'static>, answer: Answer) -> Answer {
    let verdict = match &answer.body {
        _ if answer.cut.is_some() => Ok(()),
        Body::Json(value) if answer.status >= 400 => spec::check_error(value),
        _ if answer.status >= 400 => Err("an error without a body".to_owned()),
        Body::Json(value) => match &call.method.response {
            Some(schema) => document.check(schema, value).and_then(|()| spec::check_foreign(document, call, value)),
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
