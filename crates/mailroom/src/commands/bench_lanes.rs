//! What a limit of calls at once allows at best: four callers who list the folders of a mailbox at a simulated Microsoft, then
//! ask for its messages, twenty by a call, and read the answers without looking at them. What we make of the same messages is
//! measured beside it.

use std::time::Instant;

use connectors::http::{Deadlines, Http};
use domain::ConnectorError;
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use crate::failure::Failure;

const LANES: usize = 4;
const IN_A_BATCH: usize = 20;

/// An answer with twenty of the longest messages that there are.
const LARGEST: usize = 512 << 20;

/// Seconds until so many messages are read.
pub async fn measure(url: &str, token: &str, messages: usize) -> Result<f64, Failure> {
    let http = Http::new(Deadlines::default()).map_err(|e| Failure::problem(e.to_string()))?;
    let callers = Callers { http, url: format!("{url}/v1.0"), token: token.to_owned() };
    let begun = Instant::now();
    let read = async {
        let mut ids = callers.list().await?;
        ids.truncate(messages);
        callers.fetch(&ids).await
    };
    read.await.map_err(|e: ConnectorError| Failure::problem(format!("the simulator: {e}")))?;
    Ok(begun.elapsed().as_secs_f64())
}

struct Callers {
    http: Http,
    url: String,
    token: String,
}

impl Callers {
    async fn answer(&self, url: String, body: Option<String>) -> Result<Vec<u8>, ConnectorError> {
        let request = match body {
            Some(body) => self.http.client.post(url).body(body),
            None => self.http.client.get(url),
        };
        let request = request.bearer_auth(&self.token).header("content-type", "application/json");
        let prefer = "IdType=\"ImmutableId\", odata.maxpagesize=1000";
        let mut answered = self.http.answer(request.header("Prefer", prefer)).await?;
        match answered.status.is_success() {
            true => answered.body.read_whole(LARGEST).await.map(Into::into),
            false => Err(ConnectorError::Protocol(format!("status {}", answered.status))),
        }
    }

    async fn get(&self, url: String) -> Result<Value, ConnectorError> {
        let bytes = self.answer(url, None).await?;
        serde_json::from_slice(&bytes).map_err(|_| ConnectorError::Protocol("no JSON".to_owned()))
    }

    /// Ids of messages, newest folders first or not.
    async fn list(&self) -> Result<Vec<String>, ConnectorError> {
        let root = format!("{}/me/mailFolders/delta?$select=id", self.url);
        let folders = ids(&self.get(root).await?);
        let lanes = (0..LANES).map(|lane| {
            let folders = folders.iter().skip(lane).step_by(LANES);
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
        Ok(try_join_all(lanes).await?.concat())
    }

    async fn fetch(&self, ids: &[String]) -> Result<(), ConnectorError> {
        let batches: Vec<String> = ids.chunks(IN_A_BATCH).map(batch).collect();
        let lanes = (0..LANES).map(|lane| {
            let batches = batches.iter().skip(lane).step_by(LANES);
            async move {
                for batch in batches {
                    self.answer(format!("{}/$batch", self.url), Some(batch.clone())).await?;
                }
                Ok::<(), ConnectorError>(())
            }
        });
        try_join_all(lanes).await.map(drop)
    }
}

fn ids(page: &Value) -> Vec<String> {
    let items = page["value"].as_array().into_iter().flatten();
    items.filter_map(|item| item["id"].as_str().map(str::to_owned)).collect()
}

fn batch(ids: &[String]) -> String {
    let request = |(number, id): (usize, &String)| {
        json!({"id": number.to_string(), "method": "GET", "url": format!("/me/messages/{id}/$value"),
            "headers": {"Prefer": "IdType=\"ImmutableId\""}})
    };
    json!({ "requests": ids.iter().enumerate().map(request).collect::<Vec<_>>() }).to_string()
}
