//! The least time that the limit of concurrent calls allows at Microsoft: four callers list the folders of a mailbox at the
//! simulator, then fetch its messages, twenty by a call, and read the responses without parsing them. The sync of the same
//! messages is measured beside it.

use std::time::Instant;

use domain::ConnectorError;
use futures_util::future::try_join_all;
use providers::http::{HttpClient, HttpTimeouts};
use serde_json::{Value, json};
use terminal::Failure;

const CONCURRENT_CALLERS: usize = 4;
const MESSAGES_PER_BATCH: usize = 20;

/// A response with twenty of the longest messages that there are.
const MAX_RESPONSE_BYTES: usize = 512 << 20;

/// Returns the seconds until so many messages are read.
pub async fn measure(url: &str, token: &str, messages: usize) -> Result<f64, Failure> {
    let http = HttpClient::new(HttpTimeouts::default()).map_err(|e| Failure::problem(e.to_string()))?;
    let reader = MailboxReader { http, url: format!("{url}/v1.0"), token: token.to_owned() };
    let begun = Instant::now();
    let read = async {
        let mut ids = reader.list().await?;
        ids.truncate(messages);
        reader.fetch(&ids).await
    };
    read.await.map_err(|e: ConnectorError| Failure::problem(format!("the simulator: {e}")))?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Reads one mailbox with concurrent calls.
struct MailboxReader {
    http: HttpClient,
    url: String,
    token: String,
}

impl MailboxReader {
    async fn call(&self, url: String, body: Option<String>) -> Result<Vec<u8>, ConnectorError> {
        let request = match body {
            Some(body) => self.http.client.post(url).body(body),
            None => self.http.client.get(url),
        };
        let request = request.bearer_auth(&self.token).header("content-type", "application/json");
        let prefer = "IdType=\"ImmutableId\", odata.maxpagesize=1000";
        let mut response = self.http.response(request.header("Prefer", prefer)).await?;
        if !response.status.is_success() {
            return Err(ConnectorError::Protocol(format!("status {}", response.status)));
        }
        response.body.read_whole(MAX_RESPONSE_BYTES).await.map(Into::into)
    }

    async fn get(&self, url: String) -> Result<Value, ConnectorError> {
        let bytes = self.call(url, None).await?;
        serde_json::from_slice(&bytes).map_err(|_| ConnectorError::Protocol("no JSON".to_owned()))
    }

    /// Lists the ids of all messages, in no particular order.
    async fn list(&self) -> Result<Vec<String>, ConnectorError> {
        let root = format!("{}/me/mailFolders/delta?$select=id", self.url);
        let folders = ids(&self.get(root).await?);
        let callers = (0..CONCURRENT_CALLERS).map(|caller| {
            let folders = folders.iter().skip(caller).step_by(CONCURRENT_CALLERS);
            async move {
                let mut all = Vec::new();
                for folder in folders {
                    let mut next = Some(format!("{}/me/mailFolders/{folder}/messages/delta?$select=id", self.url));
                    while let Some(url) = next {
                        let page = self.get(url).await?;
                        all.extend(ids(&page));
                        next = page["@odata.nextLink"].as_str().map(str::to_owned);
                    }
                }
                Ok::<Vec<String>, ConnectorError>(all)
            }
        });
        Ok(try_join_all(callers).await?.concat())
    }

    async fn fetch(&self, ids: &[String]) -> Result<(), ConnectorError> {
        let batches: Vec<String> = ids.chunks(MESSAGES_PER_BATCH).map(batch).collect();
        let callers = (0..CONCURRENT_CALLERS).map(|caller| {
            let batches = batches.iter().skip(caller).step_by(CONCURRENT_CALLERS);
            async move {
                for batch in batches {
                    self.call(format!("{}/$batch", self.url), Some(batch.clone())).await?;
                }
                Ok::<(), ConnectorError>(())
            }
        });
        try_join_all(callers).await.map(drop)
    }
}

fn ids(page: &Value) -> Vec<String> {
    let items = page["value"].as_array().into_iter().flatten();
    items.filter_map(|item| item["id"].as_str().map(str::to_owned)).collect()
}

fn batch(ids: &[String]) -> String {
    let requests = ids.iter().enumerate().map(|(number, id)| {
        json!({"id": number.to_string(), "method": "GET", "url": format!("/me/messages/{id}/$value"),
            "headers": {"Prefer": "IdType=\"ImmutableId\""}})
    });
    json!({ "requests": requests.collect::<Vec<_>>() }).to_string()
}
