//! A connector that answers what a test has scripted, refuses everything else, and records what it was asked.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::{Future, pending};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::connector::{
    ConnectorAccount, ConnectorFuture, Cursors, FetchRequest, ListingPage, MessageMetadata, MessageSink, Placement,
    TokenGrant, Watch, WatchRequest, message_ids,
};
use domain::{Connector, ConnectorError, Flags, MailboxId, Provider};
use futures_util::future::BoxFuture;
use jiff::Timestamp;

/// A scripted answer: a value, an error, or a future that brings either.
pub struct ScriptedReply<T>(BoxFuture<'static, Result<T, ConnectorError>>);

impl<T: Send + 'static> ScriptedReply<T> {
    /// Answers with what the future brings, which may do other things before.
    pub fn later(reply: impl Future<Output = Result<T, ConnectorError>> + Send + 'static) -> Self {
        Self(Box::pin(reply))
    }

    /// Never answers.
    pub fn hang() -> Self {
        Self(Box::pin(pending()))
    }

    /// Panics when it is awaited.
    pub fn panic(message: &'static str) -> Self {
        Self(Box::pin(async move { panic!("{message}") }))
    }
}

impl<T> fmt::Debug for ScriptedReply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedReply").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> From<Result<T, ConnectorError>> for ScriptedReply<T> {
    fn from(result: Result<T, ConnectorError>) -> Self {
        Self(Box::pin(async move { result }))
    }
}

impl<T: Send + 'static> From<ConnectorError> for ScriptedReply<T> {
    fn from(error: ConnectorError) -> Self {
        Self::from(Err(error))
    }
}

macro_rules! reply_from_value {
    ($($value:ty),*) => {
        $(impl From<$value> for ScriptedReply<$value> {
            fn from(value: $value) -> Self {
                Self::from(Ok(value))
            }
        })*
    };
}
reply_from_value!((), bool, ListingPage, TokenGrant, Watch);

/// The methods of [`Connector`] that a script can answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectorMethod {
    Changes,
    History,
    List,
    Fetch,
    Check,
    Listen,
    Grant,
    Revoke,
    Watch,
    Unwatch,
}

/// A call that was made, with what tests ask about.
#[derive(Debug, Clone)]
pub struct ConnectorCall {
    pub method: ConnectorMethod,
    pub mailbox: MailboxId,
    pub address: String,
    pub secret: Option<String>,
    pub sweep_since: Option<Timestamp>,
    /// Messages that were to be fetched.
    pub messages: Vec<String>,
    /// The name of a watch that was to be renewed or ended.
    pub watch: Option<String>,
}

/// A message as `fetch` delivers it.
#[derive(Debug, Clone)]
pub struct ScriptedMessage {
    pub bytes: Vec<u8>,
    pub facts: MessageMetadata,
    /// The message fails with this after its bytes were written.
    pub error: Option<ConnectorError>,
}

impl<B: Into<Vec<u8>>> From<B> for ScriptedMessage {
    fn from(bytes: B) -> Self {
        Self { bytes: bytes.into(), facts: MessageMetadata::default(), error: None }
    }
}

type Handler<A, T> = Arc<dyn Fn(A) -> T + Send + Sync>;
type PageHandler = Arc<dyn Fn(&ConnectorAccount, &Cursors) -> ScriptedReply<ListingPage> + Send + Sync>;
type WatchHandler = Arc<dyn Fn(&ConnectorAccount, &WatchRequest) -> Option<ScriptedReply<Watch>> + Send + Sync>;
type AccountHandler<T> = Arc<dyn Fn(&ConnectorAccount) -> ScriptedReply<T> + Send + Sync>;
type UnwatchHandler = Arc<dyn Fn(&ConnectorAccount, Option<&str>) -> ScriptedReply<()> + Send + Sync>;
type MessageHandler = Arc<dyn Fn(&str) -> Option<ScriptedMessage> + Send + Sync>;

#[derive(Default)]
struct PageScript {
    queue: VecDeque<ScriptedReply<ListingPage>>,
    handler: Option<PageHandler>,
}

impl PageScript {
    fn next(&mut self, account: &ConnectorAccount, cursors: &Cursors) -> Option<ScriptedReply<ListingPage>> {
        self.queue.pop_front().or_else(|| self.handler.as_ref().map(|handler| handler(account, cursors)))
    }
}

#[derive(Default)]
struct Scripts {
    changes: PageScript,
    /// By address; asked before the script for all accounts.
    changes_of: BTreeMap<String, PageScript>,
    history: PageScript,
    list: PageScript,
    check: Option<AccountHandler<()>>,
    listen: Option<AccountHandler<bool>>,
    grant: Option<AccountHandler<TokenGrant>>,
    revoke: Option<AccountHandler<()>>,
    watch: Option<WatchHandler>,
    unwatch: Option<UnwatchHandler>,
    messages: BTreeMap<String, Result<ScriptedMessage, ConnectorError>>,
    other_messages: Option<MessageHandler>,
    fetch: Option<Handler<Vec<String>, ScriptedReply<()>>>,
    before_fetch: Option<BoxFuture<'static, ()>>,
    before_message_end: Option<BoxFuture<'static, ()>>,
}

/// A connector that follows a script. A method without a script refuses with an error that names it, and
/// [`TestApp::finish`](crate::TestApp::finish) fails the test for it, as it does for a queued reply that nobody asked for.
/// Capabilities that a provider may lack (`listen`, `grant`, `revoke`, `watch`, `unwatch`, the directory) are lacking until
/// they are scripted.
pub struct ScriptedConnector {
    provider: Provider,
    scripts: Mutex<Scripts>,
    calls: Mutex<Vec<ConnectorCall>>,
    fetched: Mutex<Vec<String>>,
    fetches_admitted: Mutex<usize>,
    refusals: Mutex<Vec<ConnectorMethod>>,
}

impl fmt::Debug for ScriptedConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedConnector").field("provider", &self.provider).finish_non_exhaustive()
    }
}

/// The script: what is answered.
impl ScriptedConnector {
    pub fn new(provider: Provider) -> Arc<Self> {
        Arc::new(Self {
            provider,
            scripts: Mutex::default(),
            calls: Mutex::default(),
            fetched: Mutex::default(),
            fetches_admitted: Mutex::default(),
            refusals: Mutex::default(),
        })
    }

    /// A mailbox in which nothing happens unless it is queued: listings answer an empty last page, `check` is fine, and a
    /// message that is not there is gone.
    pub fn quiet(provider: Provider) -> Arc<Self> {
        let connector = Self::new(provider);
        connector.on_changes(|_, _| empty_page().into());
        connector.on_history(|_, _| empty_page().into());
        connector.on_list(|_, _| empty_page().into());
        connector.on_check(|_| ().into());
        connector.on_message(|_| None);
        connector
    }

    fn script(&self, edit: impl FnOnce(&mut Scripts)) -> &Self {
        edit(&mut self.scripts.lock().unwrap());
        self
    }

    /// Answers the next call of `changes` that no earlier reply is queued for.
    pub fn queue_changes(&self, reply: impl Into<ScriptedReply<ListingPage>>) -> &Self {
        self.script(|scripts| scripts.changes.queue.push_back(reply.into()))
    }

    /// Answers the very next call of `changes`, before all that is queued.
    pub fn queue_changes_first(&self, reply: impl Into<ScriptedReply<ListingPage>>) -> &Self {
        self.script(|scripts| scripts.changes.queue.push_front(reply.into()))
    }

    pub fn queue_history(&self, reply: impl Into<ScriptedReply<ListingPage>>) -> &Self {
        self.script(|scripts| scripts.history.queue.push_back(reply.into()))
    }

    pub fn queue_list(&self, reply: impl Into<ScriptedReply<ListingPage>>) -> &Self {
        self.script(|scripts| scripts.list.queue.push_back(reply.into()))
    }

    /// Answers the next call of `changes` for this address that no earlier reply is queued for.
    pub fn queue_changes_of(&self, address: &str, reply: impl Into<ScriptedReply<ListingPage>>) -> &Self {
        self.script(|scripts| scripts.changes_of.entry(address.to_owned()).or_default().queue.push_back(reply.into()))
    }

    /// Answers calls of `changes` for this address, whatever is scripted for all.
    pub fn on_changes_of(
        &self,
        address: &str,
        handler: impl Fn() -> ScriptedReply<ListingPage> + Send + Sync + 'static,
    ) -> &Self {
        let handler: PageHandler = Arc::new(move |_, _| handler());
        self.script(|scripts| scripts.changes_of.entry(address.to_owned()).or_default().handler = Some(handler))
    }

    /// Answers for this address what is scripted for all again.
    pub fn forget_changes_of(&self, address: &str) -> &Self {
        self.script(|scripts| drop(scripts.changes_of.remove(address)))
    }

    /// Answers calls of `changes` for which nothing is queued.
    pub fn on_changes(
        &self,
        handler: impl Fn(&ConnectorAccount, &Cursors) -> ScriptedReply<ListingPage> + Send + Sync + 'static,
    ) -> &Self {
        self.script(|scripts| scripts.changes.handler = Some(Arc::new(handler)))
    }

    pub fn on_history(
        &self,
        handler: impl Fn(&ConnectorAccount, &Cursors) -> ScriptedReply<ListingPage> + Send + Sync + 'static,
    ) -> &Self {
        self.script(|scripts| scripts.history.handler = Some(Arc::new(handler)))
    }

    pub fn on_list(
        &self,
        handler: impl Fn(&ConnectorAccount, &Cursors) -> ScriptedReply<ListingPage> + Send + Sync + 'static,
    ) -> &Self {
        self.script(|scripts| scripts.list.handler = Some(Arc::new(handler)))
    }

    pub fn on_check(&self, handler: impl Fn(&ConnectorAccount) -> ScriptedReply<()> + Send + Sync + 'static) -> &Self {
        self.script(|scripts| scripts.check = Some(Arc::new(handler)))
    }

    pub fn on_listen(
        &self,
        handler: impl Fn(&ConnectorAccount) -> ScriptedReply<bool> + Send + Sync + 'static,
    ) -> &Self {
        self.script(|scripts| scripts.listen = Some(Arc::new(handler)))
    }

    pub fn on_grant(
        &self,
        handler: impl Fn(&ConnectorAccount) -> ScriptedReply<TokenGrant> + Send + Sync + 'static,
    ) -> &Self {
        self.script(|scripts| scripts.grant = Some(Arc::new(handler)))
    }

    pub fn on_revoke(&self, handler: impl Fn(&ConnectorAccount) -> ScriptedReply<()> + Send + Sync + 'static) -> &Self {
        self.script(|scripts| scripts.revoke = Some(Arc::new(handler)))
    }

    /// `None` from the handler: the provider does not push for this account.
    pub fn on_watch(
        &self,
        handler: impl Fn(&ConnectorAccount, &WatchRequest) -> Option<ScriptedReply<Watch>> + Send + Sync + 'static,
    ) -> &Self {
        self.script(|scripts| scripts.watch = Some(Arc::new(handler)))
    }

    pub fn on_unwatch(
        &self,
        handler: impl Fn(&ConnectorAccount, Option<&str>) -> ScriptedReply<()> + Send + Sync + 'static,
    ) -> &Self {
        self.script(|scripts| scripts.unwatch = Some(Arc::new(handler)))
    }

    /// Delivers this message when it is fetched, from now on.
    pub fn fetches(&self, message: &str, content: impl Into<ScriptedMessage>) -> &Self {
        self.script(|scripts| drop(scripts.messages.insert(message.to_owned(), Ok(content.into()))))
    }

    /// Delivers it with the places that it is in.
    pub fn fetches_with_places(
        &self,
        message: &str,
        content: impl Into<ScriptedMessage>,
        places: Vec<(Placement, Flags)>,
    ) -> &Self {
        let content = content.into();
        let facts = MessageMetadata { placements: Some(places), ..content.facts };
        self.fetches(message, ScriptedMessage { facts, ..content })
    }

    /// Fails this message alone.
    pub fn fails_to_fetch(&self, message: &str, error: ConnectorError) -> &Self {
        self.script(|scripts| drop(scripts.messages.insert(message.to_owned(), Err(error))))
    }

    /// Delivers messages that were not scripted by name; `None`: it is gone.
    pub fn on_message(&self, handler: impl Fn(&str) -> Option<ScriptedMessage> + Send + Sync + 'static) -> &Self {
        self.script(|scripts| scripts.other_messages = Some(Arc::new(handler)))
    }

    /// Answers `fetch` as a whole, after there is room and before any message is delivered. An `Ok` lets the messages follow.
    pub fn on_fetch(&self, handler: impl Fn(Vec<String>) -> ScriptedReply<()> + Send + Sync + 'static) -> &Self {
        self.script(|scripts| scripts.fetch = Some(Arc::new(handler)))
    }

    /// Does this once, when the next `fetch` is called.
    pub fn before_fetch(&self, action: impl Future<Output = ()> + Send + 'static) -> &Self {
        self.script(|scripts| scripts.before_fetch = Some(Box::pin(action)))
    }

    /// Whether a `fetch` is still awaited for which [`Self::before_fetch`] was scripted.
    pub fn awaits_fetch(&self) -> bool {
        self.scripts.lock().unwrap().before_fetch.is_some()
    }

    /// Does this once, between the bytes of the next message and its end.
    pub fn before_message_end(&self, action: impl Future<Output = ()> + Send + 'static) -> &Self {
        self.script(|scripts| scripts.before_message_end = Some(Box::pin(action)))
    }
}

/// The record: what was asked.
impl ScriptedConnector {
    pub fn calls(&self) -> Vec<ConnectorCall> {
        self.calls.lock().unwrap().clone()
    }

    pub fn take_calls(&self) -> Vec<ConnectorCall> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    pub fn count(&self, method: ConnectorMethod) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| call.method == method).count()
    }

    /// Messages that were asked for, in the order in which they were.
    pub fn fetched(&self) -> Vec<String> {
        self.fetched.lock().unwrap().clone()
    }

    pub fn forget_fetched(&self) {
        self.fetched.lock().unwrap().clear();
    }

    /// Fetches that got room for their messages.
    pub fn fetches_admitted(&self) -> usize {
        *self.fetches_admitted.lock().unwrap()
    }

    /// Methods that were called without a script.
    pub fn refusals(&self) -> Vec<ConnectorMethod> {
        self.refusals.lock().unwrap().clone()
    }

    /// Methods for whose next calls something is queued, once for each reply or action.
    pub fn queued_replies(&self) -> Vec<ConnectorMethod> {
        let scripts = self.scripts.lock().unwrap();
        let of_addresses = scripts.changes_of.values().map(|script| script.queue.len());
        let queued = [
            (ConnectorMethod::Changes, scripts.changes.queue.len() + of_addresses.sum::<usize>()),
            (ConnectorMethod::History, scripts.history.queue.len()),
            (ConnectorMethod::List, scripts.list.queue.len()),
            (ConnectorMethod::Fetch, usize::from(scripts.before_fetch.is_some())),
            (ConnectorMethod::Fetch, usize::from(scripts.before_message_end.is_some())),
        ];
        queued.into_iter().flat_map(|(method, count)| std::iter::repeat_n(method, count)).collect()
    }

    fn record(&self, method: ConnectorMethod, account: &ConnectorAccount, messages: Vec<String>, watch: Option<&str>) {
        self.calls.lock().unwrap().push(ConnectorCall {
            method,
            mailbox: account.mailbox,
            address: account.address.clone(),
            secret: account.secret.as_ref().map(|secret| secret.expose().clone()),
            sweep_since: account.sweep_since,
            messages,
            watch: watch.map(str::to_owned),
        });
    }

    fn reply<T: Send + 'static>(
        &self,
        method: ConnectorMethod,
        reply: Option<ScriptedReply<T>>,
    ) -> ConnectorFuture<'_, T> {
        match reply {
            Some(reply) => reply.0,
            None => {
                self.refusals.lock().unwrap().push(method);
                let refusal = format!("the scripted connector has no script for {method:?}");
                Box::pin(async move { Err(ConnectorError::Protocol(refusal)) })
            }
        }
    }

    fn page(
        &self,
        method: ConnectorMethod,
        account: &ConnectorAccount,
        next: impl FnOnce(&mut Scripts) -> Option<ScriptedReply<ListingPage>>,
    ) -> ConnectorFuture<'_, ListingPage> {
        self.record(method, account, Vec::new(), None);
        let reply = next(&mut self.scripts.lock().unwrap());
        self.reply(method, reply)
    }

    fn handler<T: Clone>(&self, pick: impl FnOnce(&Scripts) -> &Option<T>) -> Option<T> {
        pick(&self.scripts.lock().unwrap()).clone()
    }

    /// `None`: there is no script for it.
    fn message(&self, id: &str) -> Option<Result<ScriptedMessage, ConnectorError>> {
        let (named, other) = {
            let scripts = self.scripts.lock().unwrap();
            (scripts.messages.get(id).cloned(), scripts.other_messages.clone())
        };
        named.or_else(|| other.map(|other| other(id).ok_or(ConnectorError::Gone)))
    }

    async fn deliver(&self, id: &str, sink: &mut dyn MessageSink) -> Result<(), ConnectorError> {
        self.fetched.lock().unwrap().push(id.to_owned());
        let message = match self.message(id) {
            Some(Ok(message)) => message,
            Some(Err(error)) => {
                sink.fail(id, error);
                return Ok(());
            }
            None => return self.reply::<()>(ConnectorMethod::Fetch, None).await,
        };
        sink.begin(id);
        if sink.write(&message.bytes).is_err() {
            return Err(ConnectorError::Unavailable("the message cannot be stored locally".to_owned()));
        }
        let meanwhile = self.scripts.lock().unwrap().before_message_end.take();
        if let Some(meanwhile) = meanwhile {
            meanwhile.await;
        }
        match message.error {
            Some(error) => sink.fail(id, error),
            None => sink.end(message.facts).unwrap(),
        }
        Ok(())
    }
}

/// An empty last page, after which the next listing begins where this one did.
pub fn empty_page() -> ListingPage {
    ListingPage { is_last: true, ..ListingPage::default() }
}

impl Connector for ScriptedConnector {
    fn provider(&self) -> Provider {
        self.provider
    }

    fn changes<'a>(&'a self, account: &'a ConnectorAccount, cursors: &'a Cursors) -> ConnectorFuture<'a, ListingPage> {
        self.page(ConnectorMethod::Changes, account, |scripts| {
            let own = scripts.changes_of.get_mut(&account.address).and_then(|script| script.next(account, cursors));
            own.or_else(|| scripts.changes.next(account, cursors))
        })
    }

    fn history<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        cursors: &'a Cursors,
        _: &'a Cursors,
        _: Option<Timestamp>,
    ) -> ConnectorFuture<'a, ListingPage> {
        self.page(ConnectorMethod::History, account, |scripts| scripts.history.next(account, cursors))
    }

    fn list<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        cursors: &'a Cursors,
        _: Option<&'a Cursors>,
        _: Option<Timestamp>,
    ) -> ConnectorFuture<'a, ListingPage> {
        self.page(ConnectorMethod::List, account, |scripts| scripts.list.next(account, cursors))
    }

    fn fetch<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        wanted: &'a [FetchRequest],
        sink: &'a mut dyn MessageSink,
    ) -> ConnectorFuture<'a, ()> {
        let ids: Vec<String> = message_ids(wanted).into_iter().map(str::to_owned).collect();
        self.record(ConnectorMethod::Fetch, account, ids.clone(), None);
        let (before, handler) = {
            let mut scripts = self.scripts.lock().unwrap();
            (scripts.before_fetch.take(), scripts.fetch.clone())
        };
        Box::pin(async move {
            if let Some(before) = before {
                before.await;
            }
            sink.reserve(&message_ids(wanted)).await?;
            *self.fetches_admitted.lock().unwrap() += 1;
            if let Some(handler) = handler {
                handler(ids).0.await?;
            }
            for wanted in wanted {
                self.deliver(&wanted.message, sink).await?;
            }
            Ok(())
        })
    }

    fn check<'a>(&'a self, account: &'a ConnectorAccount) -> ConnectorFuture<'a, ()> {
        self.record(ConnectorMethod::Check, account, Vec::new(), None);
        let handler = self.handler(|scripts| &scripts.check);
        self.reply(ConnectorMethod::Check, handler.map(|handler| handler(account)))
    }

    fn listen<'a>(&'a self, account: &'a ConnectorAccount, _at_most: Duration) -> Option<ConnectorFuture<'a, bool>> {
        let handler = self.handler(|scripts| &scripts.listen)?;
        self.record(ConnectorMethod::Listen, account, Vec::new(), None);
        Some(handler(account).0)
    }

    fn obtain_token<'a>(&'a self, account: &'a ConnectorAccount) -> Option<ConnectorFuture<'a, TokenGrant>> {
        let handler = self.handler(|scripts| &scripts.grant)?;
        self.record(ConnectorMethod::Grant, account, Vec::new(), None);
        Some(handler(account).0)
    }

    fn revoke<'a>(&'a self, account: &'a ConnectorAccount) -> Option<ConnectorFuture<'a, ()>> {
        let handler = self.handler(|scripts| &scripts.revoke)?;
        self.record(ConnectorMethod::Revoke, account, Vec::new(), None);
        Some(handler(account).0)
    }

    fn watch<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        wish: &'a WatchRequest,
    ) -> Option<ConnectorFuture<'a, Watch>> {
        let reply = self.handler(|scripts| &scripts.watch)?(account, wish)?;
        self.record(ConnectorMethod::Watch, account, Vec::new(), wish.subscription_id.as_deref());
        Some(reply.0)
    }

    fn unwatch<'a>(&'a self, account: &'a ConnectorAccount, name: Option<&'a str>) -> Option<ConnectorFuture<'a, ()>> {
        let handler = self.handler(|scripts| &scripts.unwatch)?;
        self.record(ConnectorMethod::Unwatch, account, Vec::new(), name);
        Some(handler(account, name).0)
    }
}
