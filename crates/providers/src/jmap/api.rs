//! A client for JMAP: several method calls in one request, and their responses (RFC 8620, section 3).

use std::collections::HashMap;
use std::sync::Arc;

use domain::connector::ConnectorAccount;
use domain::{ConnectorError, Secret};
use outbound::http::header::CONTENT_TYPE;
use outbound::http::{RequestBuilder, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Jmap;
use super::error_mapping::{MethodError, MethodRefusal, error_of_request};
use super::session::{CORE, JmapSession, MAIL};
use super::settings::JmapConnection;
use crate::http::protocol;

/// The API as seen by one account.
#[derive(Debug)]
pub struct JmapClient<'a> {
    pub jmap: &'a Jmap,
    pub account: &'a ConnectorAccount,
    pub session: Arc<JmapSession>,
    connection: JmapConnection,
    secret: Secret<String>,
}

/// A method call of a request. Its id is how others refer to its result.
#[derive(Debug)]
pub struct JmapCall {
    name: &'static str,
    id: &'static str,
    arguments: Value,
}

impl JmapCall {
    /// `arguments`: an object; the account is added.
    pub fn new(name: &'static str, id: &'static str, arguments: Value) -> Self {
        Self { name, id, arguments }
    }
}

/// Refers to a part of the result of an earlier call (RFC 8620, section 3.7).
pub fn result_of(call: &JmapCall, path: &str) -> Value {
    json!({"resultOf": call.id, "name": call.name, "path": path})
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiResponse {
    method_responses: Vec<(String, Value, String)>,
    session_state: String,
}

/// Responses of one request, by the ids of its calls.
#[derive(Debug)]
pub struct JmapResponses(HashMap<String, (String, Value)>);

impl JmapResponses {
    /// Takes the response to a call.
    pub fn take<T: DeserializeOwned>(&mut self, id: &str) -> Result<T, MethodError> {
        let Some((name, arguments)) = self.0.remove(id) else {
            return Err(MethodError::Other(protocol("a method call has no response")));
        };
        if name == "error" {
            return Err(match serde_json::from_value::<MethodRefusal>(arguments) {
                Ok(refusal) => MethodError::of_refusal(&refusal),
                Err(_) => MethodError::Other(protocol("an error has no type")),
            });
        }
        serde_json::from_value(arguments)
            .map_err(|_| MethodError::Other(protocol("the response is not the expected JSON")))
    }
}

impl<'a> JmapClient<'a> {
    /// Returns the client for an account whose session is known or can be found out.
    pub async fn open(jmap: &'a Jmap, account: &'a ConnectorAccount) -> Result<Self, ConnectorError> {
        let connection = JmapConnection::of(account)?;
        let Some(secret) = account.secret.clone() else {
            return Err(ConnectorError::Unauthorized("the mailbox has no password or token".to_owned()));
        };
        let session = jmap.sessions.get(&jmap.http, account, &connection, &secret).await?;
        Ok(Self { jmap, account, session, connection, secret })
    }

    /// Makes method calls in one request.
    pub async fn call(&self, calls: &[&JmapCall]) -> Result<JmapResponses, ConnectorError> {
        let response = self.post(&self.request_body(calls)).await;
        // Whatever went wrong, the server may have moved what its session names.
        if response.as_ref().map_or(true, |response| response.session_state != self.session.state) {
            self.jmap.sessions.forget(self.account.mailbox);
        }
        let mut responses = HashMap::new();
        for (name, arguments, id) in response?.method_responses {
            responses.entry(id).or_insert((name, arguments));
        }
        Ok(JmapResponses(responses))
    }

    async fn post(&self, body: &Value) -> Result<ApiResponse, ConnectorError> {
        let request = self.authorize(self.jmap.http.client.post(self.session.api_url.clone()));
        let request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        self.jmap.http.try_json(request).await?.map_err(|refused| error_of_request(&refused))
    }

    fn request_body(&self, calls: &[&JmapCall]) -> Value {
        let calls: Vec<Value> = calls
            .iter()
            .map(|call| {
                let mut arguments = call.arguments.clone();
                arguments["accountId"] = json!(self.session.account);
                json!([call.name, arguments, call.id])
            })
            .collect();
        json!({"using": [CORE, MAIL], "methodCalls": calls})
    }

    pub fn get(&self, url: Url) -> RequestBuilder {
        self.authorize(self.jmap.http.client.get(url))
    }

    pub fn authorize(&self, request: RequestBuilder) -> RequestBuilder {
        self.connection.authorize(request, &self.secret)
    }
}
