//! What a limit of calls at once allows at best: four callers who ask a simulated Microsoft for messages, twenty by a call,
//! and read the answers without looking at them. What we make of the same messages is measured beside it.

use std::time::Instant;

use connectors::http::{Deadlines, Http};
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use crate::failure::Failure;

const LANES: usize = 4;
const IN_A_BATCH: usize = 20;

/// An answer with twenty of the longest messages that there are.
const LARGEST: usize = 512 << 20;

/// Seconds.
pub async fn measure(url: &str, token: &str, ids: &[String]) -> Result<f64, Failure> {
    let http = Http::new(Deadlines::default()).map_err(|e| Failure::problem(e.to_string()))?;
    let batches: Vec<Value> = ids.chunks(IN_A_BATCH).map(batch).collect();
    let begun = Instant::now();
    let lanes = (0..LANES).map(|lane| {
        let (http, batches) = (&http, &batches);
        async move {
            for batch in batches.iter().skip(lane).step_by(LANES) {
                let request = http.client.post(format!("{url}/v1.0/$batch")).bearer_auth(token);
                let request = request.header("content-type", "application/json").body(batch.to_string());
                let mut answered = http.answer(request).await?;
                answered.body.read_whole(LARGEST).await?;
            }
            Ok::<(), domain::ConnectorError>(())
        }
    });
    try_join_all(lanes).await.map_err(|e| Failure::problem(format!("the simulator: {e}")))?;
    Ok(begun.elapsed().as_secs_f64())
}

fn batch(ids: &[String]) -> Value {
    let request = |(number, id): (usize, &String)| {
        json!({"id": number.to_string(), "method": "GET", "url": format!("/me/messages/{id}/$value"),
            "headers": {"Prefer": "IdType=\"ImmutableId\""}})
    };
    json!({ "requests": ids.iter().enumerate().map(request).collect::<Vec<_>>() })
}
