//! Answers one API call, alone or in a batch: finds the method, checks token and permission, and validates the
//! response.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;

use super::super::error::GraphError;
use super::super::faults::{MicrosoftFaultKind, MicrosoftRoute};
use super::super::identity::{MicrosoftAccessToken, permission};
use super::super::spec;
use super::super::throttle::ConcurrencyPermit;
use super::super::world::{MicrosoftMailbox, MicrosoftWorld};
use super::prefer::Prefer;
use super::{attachments, delta, fault_responses, folders, groups, messages, select, subscriptions, users};
use crate::form::{decode, pairs};
use crate::response::{ResponseBody, SimResponse};
use crate::spec::{Document, MethodCall, Side};

#[derive(Debug)]
pub struct GraphRequest<'a> {
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

/// Everything that the handler of a method needs.
pub struct GraphCallContext<'a> {
    pub world: &'a MicrosoftWorld,
    pub access: &'a MicrosoftAccessToken,
    pub call: &'a MethodCall<'static>,
    pub prefer: &'a Prefer,
    pub is_eventual: bool,
    /// The fields of `$select`.
    pub select: Option<Vec<String>>,
    pub body: Option<&'a Value>,
    pub faults: &'a [MicrosoftFaultKind],
    /// The path as requested.
    path: &'a str,
    pub in_batch: bool,
}

impl GraphCallContext<'_> {
    /// Returns whether a fault of this kind has fired.
    pub fn has(&self, kind: &MicrosoftFaultKind) -> bool {
        self.faults.contains(kind)
    }

    /// Builds a link to the next page or round.
    pub fn link(&self, name: &str, token: &str) -> String {
        format!("{}{}?{name}={token}", self.world.url(), self.path)
    }

    /// Builds the `@odata.context` of a response.
    pub fn context(&self, what: &str) -> String {
        format!("{}/v1.0/$metadata#users('sim')/{what}", self.world.url())
    }
}

/// Returns the access token's record, if the header holds a live token.
pub fn open_token(world: &MicrosoftWorld, authorization: Option<&str>) -> Option<MicrosoftAccessToken> {
    world.provider.identity.open(authorization?.strip_prefix("Bearer ")?, world.now_ms())
}

/// Expands a path to the names in the API description, where functions and actions are qualified.
fn long_names(path: &str) -> String {
    path.split('/')
        .map(|segment| match segment {
            "delta" | "delta()" => "microsoft.graph.delta()".to_owned(),
            "reauthorize" => "microsoft.graph.reauthorize".to_owned(),
            other => decode(other),
        })
        .collect::<Vec<_>>()
        .join("/")
}

/// Answers a single call: takes a concurrency permit and applies latency.
pub async fn answer_call(world: &MicrosoftWorld, request: &GraphRequest<'_>) -> SimResponse {
    let path = request.target.split('?').next().unwrap_or_default();
    let named = path.strip_prefix("/v1.0/users/").and_then(|rest| rest.split('/').next()).map(decode);
    let access = open_token(world, request.authorization);
    let (_permit, refusal) = acquire_permit(world, access.as_ref(), named.as_deref()).unzip();
    world.wait().await;
    dispatch(world, request, refusal.flatten()).await
}

/// Answers a part of a batch, which has applied latency and permit already.
pub async fn answer_part(world: &MicrosoftWorld, request: &GraphRequest<'_>) -> SimResponse {
    dispatch(world, request, None).await
}

/// Takes a concurrency permit for the named mailbox, or the token's own.
pub fn acquire_permit<'a>(
    world: &'a MicrosoftWorld,
    access: Option<&MicrosoftAccessToken>,
    named: Option<&str>,
) -> Option<(ConcurrencyPermit<'a>, Option<GraphError>)> {
    let grant = &access?.grant;
    let account = named.and_then(|named| world.find(named)).map(|mailbox| mailbox.address.clone());
    let account = account.or_else(|| grant.account.clone())?;
    Some(world.provider.throttle.begin((grant.client.clone(), account)))
}

/// Finds the method and answers it. `refusal` is returned if the request is over a limit.
async fn dispatch(world: &MicrosoftWorld, request: &GraphRequest<'_>, refusal: Option<GraphError>) -> SimResponse {
    let (request_path, query) = request.target.split_once('?').unwrap_or((request.target, ""));
    let path = long_names(request_path);
    let found = [spec::graph(), spec::undocumented()].into_iter().find_map(|document| {
        let call = MethodCall::find(document, request.verb, &path, pairs(query))?;
        Some((document, MicrosoftRoute::of(&call.method.id)?, call))
    });
    let Some((document, route, call)) = found else {
        world.violations.add(Side::Request, &format!("{} {path}", request.verb), "there is no such method");
        return GraphError::bad("Resource not found for the segment.").answer(world);
    };
    let access = open_token(world, request.authorization);
    let account = account_of(world, access.as_ref(), &call);
    let faults = world.faults.draw(&account, route);
    // Refused requests count, too.
    let pair = access.as_ref().map(|access| (access.grant.client.clone(), account.clone()));
    let over_limit =
        pair.and_then(|pair| world.provider.throttle.count(&pair, world.now_ms())).filter(|_| route.is_mail());
    let answer = match (fault_responses::replacement(world, &faults).await, refusal.or(over_limit)) {
        (Some(answer), _) => answer,
        (None, Some(refusal)) => refusal.answer(world),
        (None, None) => {
            let context = authorize_and_answer(world, request, document, &call, route, access.as_ref(), &faults).await;
            context.unwrap_or_else(|refusal| refusal.answer(world))
        }
    };
    let is_ours = !faults.contains(&MicrosoftFaultKind::Garbage);
    let answer = if is_ours { validated(world, document, &call, answer) } else { answer };
    let answer = match answer.status {
        410 => delta::with_location(answer, &world.url(), request_path),
        _ => answer,
    };
    world.requests.add(request.verb, route, &account, answer.status, request.in_batch);
    answer.damaged_by(&faults)
}

/// Returns the account that a request is about, or an empty string if that is unknown.
fn account_of(world: &MicrosoftWorld, access: Option<&MicrosoftAccessToken>, call: &MethodCall<'static>) -> String {
    let named = world.find(call.path("user-id")).map(|mailbox| mailbox.address.clone());
    named.or_else(|| access.and_then(|access| access.grant.account.clone())).unwrap_or_default()
}

async fn authorize_and_answer(
    world: &MicrosoftWorld,
    request: &GraphRequest<'_>,
    document: &'static Document,
    call: &MethodCall<'static>,
    route: MicrosoftRoute,
    access: Option<&MicrosoftAccessToken>,
    faults: &[MicrosoftFaultKind],
) -> Result<SimResponse, GraphError> {
    let wrong = |why: String| {
        world.violations.add(Side::Request, &call.method.id, &why);
        GraphError::bad(why)
    };
    let body = parse_body(request.body, document, call).map_err(wrong)?;
    let prefer = Prefer::read(&request.prefer).map_err(wrong)?;
    let select = select::read(call.method.entity.as_deref(), call.query("$select")).map_err(wrong)?;
    let access = access.ok_or_else(unauthenticated)?;
    if route.is_mail() && !prefer.is_immutable {
        world.count_without_immutable_ids(&account_of(world, Some(access), call));
    }
    let path = request.target.split_once('?').map_or(request.target, |(path, _)| path);
    let in_batch = request.in_batch;
    let is_eventual = request.is_eventual;
    let context = GraphCallContext {
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
    let answer = answer(route, &context).await?;
    Ok(match prefer.applied() {
        Some(applied) => answer.with(axum::http::HeaderName::from_static("preference-applied"), &applied),
        None => answer,
    })
}

pub fn unauthenticated() -> GraphError {
    GraphError::new(401, "InvalidAuthenticationToken", "Access token is empty, has expired or is not yet valid.")
}

/// Parses the body as JSON and checks the request against the API description.
fn parse_body(body: &[u8], document: &Document, call: &MethodCall<'static>) -> Result<Option<Value>, String> {
    let body: Option<Value> = match body {
        [] => None,
        bytes => Some(serde_json::from_slice(bytes).map_err(|_| "the body is no JSON".to_owned())?),
    };
    call.check(document, body.as_ref())?;
    Ok(body)
}

/// Returns the mailbox of the request if the token may read it.
fn mailbox(context: &GraphCallContext<'_>) -> Result<Arc<MicrosoftMailbox>, GraphError> {
    named(context, context.call.path("user-id"))
}

/// Finds a mailbox that the token may read, by id or address. Empty: the token's own.
pub fn named(context: &GraphCallContext<'_>, named: &str) -> Result<Arc<MicrosoftMailbox>, GraphError> {
    let (world, grant) = (context.world, &context.access.grant);
    let Some(account) = &grant.account else {
        if named.is_empty() {
            let message = "/me request is only valid with delegated authentication flow.";
            return Err(GraphError::new(400, "BadRequest", message));
        }
        // App-only tokens reach their own directory, and never a personal account.
        return world.user(&grant.directory, named).ok_or_else(|| no_such_user(named));
    };
    let own = world.find(account).ok_or_else(unauthenticated)?;
    match world.find(named) {
        _ if named.is_empty() => Ok(own),
        Some(found) if found.address == own.address => Ok(own),
        Some(_) => Err(denied()),
        None => Err(no_such_user(named)),
    }
}

fn no_such_user(named: &str) -> GraphError {
    let message =
        format!("Resource '{named}' does not exist or one of its queried reference-property objects are not present.");
    GraphError::new(404, "Request_ResourceNotFound", message)
}

pub fn denied() -> GraphError {
    GraphError::new(403, "ErrorAccessDenied", "Access is denied. Check credentials and try again.")
}

/// Returns whether the token has one of the permissions.
pub fn allows(context: &GraphCallContext<'_>, permissions: &[&str]) -> bool {
    let scopes = &context.access.grant.scopes;
    scopes.iter().any(|scope| permissions.iter().any(|wanted| wanted.eq_ignore_ascii_case(permission(scope))))
}

const READ_OWN_PROFILE: [&str; 4] = ["User.Read", "User.Read.All", "User.ReadBasic.All", "Directory.Read.All"];

async fn answer(route: MicrosoftRoute, context: &GraphCallContext<'_>) -> Result<SimResponse, GraphError> {
    match route {
        MicrosoftRoute::Me => {
            let mailbox = mailbox(context)?;
            if allows(context, &READ_OWN_PROFILE) {
                Ok(users::get(context, &mailbox))
            } else {
                Err(insufficient_privileges())
            }
        }
        MicrosoftRoute::UsersList | MicrosoftRoute::UsersDelta if !allows(context, &READ_ALL_USERS) => {
            Err(insufficient_privileges())
        }
        MicrosoftRoute::UsersList => users::list(context),
        MicrosoftRoute::UsersDelta => users::changes(context),
        _ if route.is_group() => {
            if allows(context, &READ_GROUPS) {
                groups::answer(route, context)
            } else {
                Err(insufficient_privileges())
            }
        }
        MicrosoftRoute::SubscriptionsCreate => subscriptions::create(context).await,
        MicrosoftRoute::SubscriptionsList => Ok(subscriptions::list(context)),
        MicrosoftRoute::SubscriptionsGet => subscriptions::get(context),
        MicrosoftRoute::SubscriptionsRenew => subscriptions::renew(context),
        MicrosoftRoute::SubscriptionsReauthorize => subscriptions::reauthorize(context),
        MicrosoftRoute::SubscriptionsDelete => subscriptions::delete(context),
        _ if route.is_mail() => mail(route, context),
        _ => Err(GraphError::bad("Resource not found for the segment.")),
    }
}

/// Answers the routes of a mailbox.
fn mail(route: MicrosoftRoute, context: &GraphCallContext<'_>) -> Result<SimResponse, GraphError> {
    let mailbox = mailbox(context)?;
    let mailbox = &*mailbox;
    // Raw content needs more than Mail.ReadBasic.
    let needs_all = matches!(
        route,
        MicrosoftRoute::MessagesValue
            | MicrosoftRoute::AttachmentsList
            | MicrosoftRoute::AttachmentsGet
            | MicrosoftRoute::AttachmentsValue
    );
    if !allows(context, &READ_MAIL) && (needs_all || !allows(context, &["Mail.ReadBasic", "Mail.ReadBasic.All"])) {
        return Err(denied());
    }
    if !mailbox.has_mail_service.load(Ordering::Relaxed) || !context.world.person(mailbox).has_mailbox() {
        return Err(fault_responses::no_mailbox());
    }
    match route {
        MicrosoftRoute::FoldersList | MicrosoftRoute::FoldersChildren => folders::list(context, mailbox),
        MicrosoftRoute::FoldersGet => folders::get(context, mailbox),
        MicrosoftRoute::FoldersDelta => folders::changes(context, mailbox),
        MicrosoftRoute::MessagesList => messages::list(context, mailbox),
        MicrosoftRoute::MessagesGet => messages::get(context, mailbox),
        MicrosoftRoute::MessagesValue => messages::value(context, mailbox),
        MicrosoftRoute::MessagesDelta => delta::of_messages(context, mailbox),
        MicrosoftRoute::AttachmentsList => attachments::list(context, mailbox),
        MicrosoftRoute::AttachmentsGet => attachments::get(context, mailbox),
        _ => attachments::value(context, mailbox),
    }
}

fn insufficient_privileges() -> GraphError {
    GraphError::new(403, "Authorization_RequestDenied", "Insufficient privileges to complete the operation.")
}

pub const READ_MAIL: [&str; 2] = ["Mail.Read", "Mail.ReadWrite"];

const READ_ALL_USERS: [&str; 3] = ["User.Read.All", "User.ReadBasic.All", "Directory.Read.All"];
const READ_GROUPS: [&str; 3] = ["GroupMember.Read.All", "Group.Read.All", "Directory.Read.All"];

/// Checks the response against Microsoft's API description. A mismatch is a bug of the simulator and becomes a 500.
fn validated(
    world: &MicrosoftWorld,
    document: &Document,
    call: &MethodCall<'static>,
    answer: SimResponse,
) -> SimResponse {
    let verdict = match &answer.body {
        _ if answer.cut.is_some() => Ok(()),
        ResponseBody::Json(value) if answer.status >= 400 => spec::check_error(value),
        _ if answer.status >= 400 => Err("an error without a body".to_owned()),
        ResponseBody::Json(value) => match &call.method.response {
            Some(schema) => document.check(schema, value).and_then(|()| spec::check_foreign(document, call, value)),
            None => Err("a body where none is described".to_owned()),
        },
        ResponseBody::Empty | ResponseBody::Other { .. } if call.method.response.is_none() => Ok(()),
        ResponseBody::Empty | ResponseBody::Other { .. } | ResponseBody::JsonWith { .. } => Err("no JSON".to_owned()),
    };
    match verdict {
        Ok(()) => answer,
        Err(why) => {
            world.violations.add(Side::Response, &call.method.id, &why);
            GraphError::new(500, "ErrorInternalServerError", format!("The simulator's answer is wrong: {why}"))
                .answer(world)
        }
    }
}
