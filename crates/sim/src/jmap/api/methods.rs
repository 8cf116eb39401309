//! Answers method calls (RFC 8620, section 3, and RFC 8621).

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::super::account::{JmapAccount, message_id, message_number};
use super::super::change_log::ChangeWindow;
use super::super::faults::JmapFaultKind;
use super::super::folders::{folder_id, folder_number};
use super::super::query::EmailQuery;
use super::super::world::{JmapAccountHolder, JmapWorld};
use super::objects::{
    FOLDER_PROPERTIES, MESSAGE_PROPERTIES, folder, folder_state, message, message_state, parse_state,
};
use super::{CORE, MAIL, MAX_CALLS};
use crate::spec::Side;

/// The type of a method-level error.
type MethodRefusal = &'static str;

/// The refusal of a state that never was one, in the form that Cyrus has for it.
const INVALID_STATE: MethodRefusal = "invalidState";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiRequest {
    using: Vec<String>,
    method_calls: Vec<(String, Map<String, Value>, String)>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GetArguments {
    ids: Option<Vec<String>>,
    properties: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ChangesArguments {
    since_state: String,
    max_changes: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct FolderQuery {
    position: usize,
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResultReference {
    result_of: String,
    name: String,
    path: String,
}

/// A method call with what is needed to answer it.
struct MethodContext<'a> {
    world: &'a JmapWorld,
    mailbox: &'a JmapAccountHolder,
    account: &'a JmapAccount,
    faults: &'a [JmapFaultKind],
}

/// Answers all calls of a request. The error is the type of the problem.
pub fn answer(
    world: &JmapWorld,
    mailbox: &JmapAccountHolder,
    body: &[u8],
    faults: &[JmapFaultKind],
) -> Result<Vec<Value>, &'static str> {
    let request = serde_json::from_slice::<ApiRequest>(body).map_err(|e| {
        world.violations.add(Side::Request, "request", &e.to_string());
        "notRequest"
    })?;
    if let Some(unknown) = request.using.iter().find(|using| ![CORE, MAIL].contains(&using.as_str())) {
        world.violations.add(Side::Request, "using", unknown);
        return Err("unknownCapability");
    }
    if request.method_calls.len() > MAX_CALLS || !request.using.iter().any(|using| using == MAIL) {
        world.violations.add(Side::Request, "request", "too many calls, or mail is not used");
        return Err("limit");
    }
    let account = mailbox.account();
    let context = MethodContext { world, mailbox, account: &account, faults };
    let mut responses: Vec<(String, Value, String)> = Vec::new();
    for (name, arguments, id) in request.method_calls {
        let (name, arguments) = match context.answer_call(&name, arguments, &responses) {
            Ok(response) => (name, response),
            Err(kind) => ("error".to_owned(), refusal(&kind)),
        };
        responses.push((name, arguments, id));
    }
    Ok(responses.into_iter().map(|(name, arguments, id)| json!([name, arguments, id])).collect())
}

fn refusal(kind: &str) -> Value {
    match kind {
        INVALID_STATE => json!({"type": "invalidArguments", "arguments": ["sinceState"]}),
        kind => json!({"type": kind}),
    }
}

impl MethodContext<'_> {
    fn answer_call(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        earlier: &[(String, Value, String)],
    ) -> Result<Value, String> {
        if let Some(JmapFaultKind::MethodError { error }) =
            self.faults.iter().find(|fault| matches!(fault, JmapFaultKind::MethodError { .. }))
        {
            return Err(error.clone());
        }
        let mut arguments = resolve_references(arguments, earlier)?;
        if arguments.remove("accountId") != Some(json!(self.mailbox.id)) {
            return Err("accountNotFound".to_owned());
        }
        let mut response = match name {
            "Email/get" => self.get_messages(&self.read(name, arguments)?),
            "Email/query" => self.query_messages(&self.read(name, arguments)?),
            "Email/changes" => self.message_changes(&self.read(name, arguments)?),
            "Mailbox/get" => self.get_folders(&self.read(name, arguments)?),
            "Mailbox/query" => Ok(self.query_folders(&self.read(name, arguments)?)),
            "Mailbox/changes" => self.folder_changes(&self.read(name, arguments)?),
            _ => {
                self.world.violations.add(Side::Request, name, "there is no such method");
                Err("unknownMethod")
            }
        }?;
        response["accountId"] = json!(self.mailbox.id);
        Ok(response)
    }

    fn read<T: DeserializeOwned>(&self, name: &str, arguments: Map<String, Value>) -> Result<T, String> {
        serde_json::from_value(Value::Object(arguments)).map_err(|e| {
            self.world.violations.add(Side::Request, name, &e.to_string());
            "invalidArguments".to_owned()
        })
    }

    fn get_messages(&self, arguments: &GetArguments) -> Result<Value, MethodRefusal> {
        let properties = self.properties("Email/get", arguments, &MESSAGE_PROPERTIES)?;
        let ids = arguments.ids.as_ref().ok_or("requestTooLarge")?;
        self.check_count("Email/get", ids.len())?;
        let (mut list, mut missing) = (Vec::new(), Vec::new());
        for id in ids {
            let number = message_number(id);
            match number.and_then(|number| self.account.messages.get_key_value(&number)) {
                Some((number, found)) => list.push(message(*number, found, &self.world.letters, &properties)),
                None => missing.push(id),
            }
        }
        let state = message_state(self.account.message_log.state());
        Ok(json!({"state": state, "list": list, "notFound": missing}))
    }

    fn get_folders(&self, arguments: &GetArguments) -> Result<Value, MethodRefusal> {
        let properties = self.properties("Mailbox/get", arguments, &FOLDER_PROPERTIES)?;
        let (mut numbers, mut missing) = (Vec::new(), Vec::new());
        match &arguments.ids {
            None if self.account.folders.len() > self.world.max_objects() => return Err("requestTooLarge"),
            None => numbers.extend(self.account.folders.keys().copied()),
            Some(ids) => {
                self.check_count("Mailbox/get", ids.len())?;
                for id in ids {
                    match folder_number(id).filter(|number| self.account.folders.contains_key(number)) {
                        Some(number) => numbers.push(number),
                        None => missing.push(id),
                    }
                }
            }
        }
        let list: Vec<Value> = numbers.iter().map(|number| folder(self.account, *number, &properties)).collect();
        let state = folder_state(self.account.folder_log.state());
        Ok(json!({"state": state, "list": list, "notFound": missing}))
    }

    fn query_messages(&self, query: &EmailQuery) -> Result<Value, MethodRefusal> {
        let limit = query.limit.unwrap_or(usize::MAX).min(self.world.max_objects());
        let window = self.account.query(query, limit)?;
        let ids: Vec<String> = window.numbers.iter().map(|number| message_id(*number)).collect();
        let mut response = json!({
            "queryState": message_state(self.account.message_log.state()), "canCalculateChanges": false,
            "position": window.position, "ids": ids,
        });
        if query.limit != Some(limit) {
            response["limit"] = json!(limit);
        }
        if query.calculate_total {
            response["total"] = json!(window.total);
        }
        Ok(response)
    }

    fn query_folders(&self, query: &FolderQuery) -> Value {
        let limit = query.limit.unwrap_or(usize::MAX).min(self.world.max_objects());
        let ids: Vec<String> =
            self.account.folders.keys().skip(query.position).take(limit).map(|number| folder_id(*number)).collect();
        let state = folder_state(self.account.folder_log.state());
        json!({"queryState": state, "canCalculateChanges": false, "position": query.position, "ids": ids})
    }

    fn message_changes(&self, arguments: &ChangesArguments) -> Result<Value, MethodRefusal> {
        let since = parse_state(&arguments.since_state, "").ok_or(INVALID_STATE)?;
        let window = self.account.message_log.since(since, self.max_changes(arguments));
        let window = window.ok_or("cannotCalculateChanges")?;
        Ok(self.changes(arguments, &window, message_id, message_state))
    }

    fn folder_changes(&self, arguments: &ChangesArguments) -> Result<Value, MethodRefusal> {
        let since = parse_state(&arguments.since_state, "f").ok_or(INVALID_STATE)?;
        let window = self.account.folder_log.since(since, self.max_changes(arguments));
        let window = window.ok_or("cannotCalculateChanges")?;
        let mut response = self.changes(arguments, &window, folder_id, folder_state);
        let counts = json!(["totalEmails", "unreadEmails", "totalThreads", "unreadThreads"]);
        response["updatedProperties"] = if window.is_counts_only { counts } else { Value::Null };
        Ok(response)
    }

    fn max_changes(&self, arguments: &ChangesArguments) -> usize {
        arguments.max_changes.unwrap_or(usize::MAX).min(self.world.max_objects())
    }

    fn changes<K: Copy>(
        &self,
        arguments: &ChangesArguments,
        window: &ChangeWindow<K>,
        id: fn(K) -> String,
        state: fn(usize) -> String,
    ) -> Value {
        if self.faults.contains(&JmapFaultKind::EmptyPage) {
            let (old, none) = (&arguments.since_state, Vec::<String>::new());
            return json!({
                "oldState": old, "newState": format!("{old}x"), "hasMoreChanges": true,
                "created": none, "updated": none, "destroyed": none,
            });
        }
        let [created, updated, destroyed] = [&window.created, &window.updated, &window.destroyed]
            .map(|keys| keys.iter().map(|key| id(*key)).collect::<Vec<String>>());
        json!({
            "oldState": arguments.since_state, "newState": state(window.new_state),
            "hasMoreChanges": window.has_more, "created": created, "updated": updated, "destroyed": destroyed,
        })
    }

    fn properties(&self, name: &str, arguments: &GetArguments, offered: &[&str]) -> Result<Vec<String>, MethodRefusal> {
        let Some(properties) = &arguments.properties else {
            return Ok(offered.iter().map(|&property| property.to_owned()).collect());
        };
        match properties.iter().find(|property| !offered.contains(&property.as_str())) {
            None => Ok(properties.clone()),
            Some(unknown) => {
                self.world.violations.add(Side::Request, name, unknown);
                Err("invalidArguments")
            }
        }
    }

    fn check_count(&self, name: &str, count: usize) -> Result<(), MethodRefusal> {
        if count <= self.world.max_objects() {
            return Ok(());
        }
        self.world.violations.add(Side::Request, name, "more objects than the session allows");
        Err("requestTooLarge")
    }
}

/// Puts the results of earlier calls in the place of references to them.
fn resolve_references(
    arguments: Map<String, Value>,
    earlier: &[(String, Value, String)],
) -> Result<Map<String, Value>, &'static str> {
    arguments.into_iter().map(|(name, value)| resolve_reference(name, value, earlier)).collect()
}

fn resolve_reference(
    name: String,
    value: Value,
    earlier: &[(String, Value, String)],
) -> Result<(String, Value), &'static str> {
    let Some(plain) = name.strip_prefix('#') else { return Ok((name, value)) };
    let reference: ResultReference = serde_json::from_value(value).map_err(|_| "invalidResultReference")?;
    let found = earlier.iter().find(|(name, _, id)| (id, name) == (&reference.result_of, &reference.name));
    let result = found.and_then(|(_, response, _)| response.pointer(&reference.path));
    Ok((plain.to_owned(), result.ok_or("invalidResultReference")?.clone()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::world::AccountSpec;

    fn world() -> (JmapWorld, Arc<JmapAccountHolder>) {
        let world = JmapWorld::new(1, 2, Arc::new(|| jiff::Timestamp::UNIX_EPOCH));
        world.create(&AccountSpec { address: "ann@jmap.example".to_owned(), messages: 3, seed: None });
        let mailbox = world.find("ann@jmap.example").unwrap();
        (world, mailbox)
    }

    fn responses(world: &JmapWorld, mailbox: &JmapAccountHolder, calls: Value) -> Vec<Value> {
        let body = json!({"using": [CORE, MAIL], "methodCalls": calls}).to_string();
        answer(world, mailbox, body.as_bytes(), &[]).unwrap()
    }

    #[test]
    fn result_of_one_call_is_an_argument_of_another() {
        let (world, mailbox) = world();
        let sort = json!([{"property": "receivedAt", "isAscending": false}]);
        let calls = json!([
            ["Email/query", {"accountId": mailbox.id, "sort": sort, "limit": 2}, "0"],
            ["Email/get", {
                "accountId": mailbox.id, "properties": ["size"],
                "#ids": {"resultOf": "0", "name": "Email/query", "path": "/ids"},
            }, "1"],
        ]);

        let answered = responses(&world, &mailbox, calls);

        assert_eq!(answered[0][1]["ids"], json!(["M3", "M2"]));
        assert_eq!(answered[1][1]["list"].as_array().unwrap().len(), 2);
        assert_eq!(world.violations(), Vec::new());
    }

    #[test]
    fn wrong_call_is_refused_and_recorded() {
        let (world, mailbox) = world();
        for (call, kind, violations) in [
            (json!(["Email/set", {"accountId": mailbox.id}, "0"]), "unknownMethod", 1),
            (json!(["Email/get", {"accountId": mailbox.id, "id": ["M1"]}, "0"]), "invalidArguments", 1),
            (json!(["Email/get", {"accountId": "other", "ids": []}, "0"]), "accountNotFound", 0),
            (json!(["Email/changes", {"accountId": mailbox.id, "sinceState": "e7"}, "0"]), "invalidArguments", 0),
        ] {
            world.clear_violations();
            let answered = responses(&world, &mailbox, json!([call]));
            assert_eq!(answered[0][1]["type"], kind);
            assert_eq!(world.violations().len(), violations, "{kind}");
        }
    }
}
