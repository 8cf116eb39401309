//! Several calls at once. Each has an answer of its own, with a status of its own, in any order.

use std::collections::HashMap;

use domain::{ConnectorError, Secret};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::api::{Answer, Call, IMMUTABLE};
use super::refusal::{What, is_about_the_token, refusal};
use crate::http::{protocol, unavailable};
use crate::raw_json::RawJson;

/// As many as Graph takes.
pub const MOST: usize = 20;

/// An answer without what it brings.
#[derive(Debug, Deserialize)]
pub struct Head {
    pub id: String,
    pub status: u16,
    #[serde(default)]
    headers: HashMap<String, Value>,
    #[serde(default)]
    pub body: Value,
}

impl Head {
    fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn headers(&self) -> HeaderMap {
        let header = |(name, value): (&String, &Value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(&value).ok()?))
        };
        self.headers.iter().filter_map(header).collect()
    }

    pub fn is_about_the_token(&self) -> bool {
        is_about_the_token(self.status(), &self.headers())
    }

    /// Whether for its own sake or for that of the whole mailbox.
    pub fn is_forbidden(&self) -> bool {
        self.status() == StatusCode::FORBIDDEN
    }

    pub fn is_good(&self) -> bool {
        self.status().is_success()
    }

    pub fn refusal(&self, what: What) -> ConnectorError {
        refusal(what, self.status(), &self.headers(), self.body.to_string().as_bytes())
    }

    /// Which of the calls it answers.
    pub fn number(&self) -> Result<usize, ConnectorError> {
        self.id.parse().map_err(|_| protocol("an answer to nothing"))
    }
}

/// One that is asked for within a batch.
pub fn request(call: Call<'_>, number: usize, url: &Url) -> Value {
    json!({"id": number.to_string(), "method": "GET", "url": call.within(url), "headers": {"Prefer": IMMUTABLE}})
}

/// What each of these addresses has, in their order. A refusal that is about the account is that of the whole.
pub async fn get<T: DeserializeOwned>(
    call: Call<'_>,
    what: What,
    urls: Vec<Url>,
) -> Result<Vec<Result<T, ConnectorError>>, ConnectorError> {
    let mut got: Vec<Option<Result<T, ConnectorError>>> = urls.iter().map(|_| None).collect();
    let mut left: Vec<usize> = (0..urls.len()).collect();
    let mut is_renewed = false;
    while !left.is_empty() {
        let asked: Vec<usize> = left.drain(..left.len().min(MOST)).collect();
        call.account.access.spend(asked.len() as u32).await?;
        let requests: Vec<Value> = asked.iter().map(|number| request(call, *number, &urls[*number])).collect();
        let mut answers = Answers::new(call.batch(&requests).await?);
        let mut refused = Vec::new();
        let mut is_forbidden = false;
        while let Some(head) = answers.next(&mut |_, _| Ok(())).await? {
            let number = head.number()?;
            let place = got.get_mut(number).filter(|_| asked.contains(&number));
            let place = place.ok_or_else(|| protocol("an answer to nothing"))?;
            if head.is_about_the_token() && !is_renewed {
                refused.push(number);
                continue;
            }
            *place = Some(match head.is_good() {
                true => serde_json::from_value(head.body).map_err(|_| protocol("an answer is not what it should be")),
                false => match head.refusal(what) {
                    ConnectorError::Unauthorized(_) if head.is_forbidden() => {
                        is_forbidden = true;
                        Err(alone())
                    }
                    e @ (ConnectorError::Throttled { .. } | ConnectorError::Unauthorized(_)) => return Err(e),
                    e => Err(e),
                },
            });
        }
        let token = answers.token().clone();
        // Its lane is free for others, and for us.
        drop(answers);
        if is_forbidden {
            call.inbox().await?;
        }
        if !refused.is_empty() {
            is_renewed = true;
            call.account.access.renew(&token).await?;
        }
        left.extend(refused);
    }
    Ok(got.into_iter().map(|got| got.unwrap_or_else(|| Err(unavailable("the answer leaves it out")))).collect())
}

/// Of what may not be read while the inbox may.
pub fn alone() -> ConnectorError {
    protocol("it alone may not be read")
}

/// Answers, one after the other as they come.
pub struct Answers {
    answer: Answer,
    is_begun: bool,
}

impl Answers {
    pub fn new(answer: Answer) -> Self {
        Self { answer, is_begun: false }
    }

    /// It was asked with.
    pub fn token(&self) -> &Secret<String> {
        &self.answer.token
    }

    /// The next one. Bytes in it go to `taken` as they come, with what was said before them.
    pub async fn next(
        &mut self,
        taken: &mut (impl FnMut(&Head, &[u8]) -> Result<(), ConnectorError> + Send),
    ) -> Result<Option<Head>, ConnectorError> {
        if !self.is_more().await? {
            return Ok(None);
        }
        let mut json = RawJson::of("body");
        let mut head: Option<Head> = None;
        while !json.is_done {
            let bytes = self.answer.answered.body.fill().await?;
            let mut decoded = Vec::new();
            let used = json.feed::<ConnectorError>(bytes, &mut |bytes: &[u8]| {
                decoded.extend_from_slice(bytes);
                Ok(())
            })?;
            self.answer.answered.body.consume(used);
            if !decoded.is_empty() {
                let head = match &mut head {
                    Some(head) => head,
                    none => none.insert(read(&[&json.rest[..json.before], b"\"\"}"].concat())?),
                };
                taken(head, &decoded)?;
            }
        }
        read(&json.rest).map(Some)
    }

    /// Goes to where the next one begins.
    async fn is_more(&mut self) -> Result<bool, ConnectorError> {
        let (mut in_text, mut is_escaped) = (false, false);
        loop {
            let byte = self.answer.answered.body.fill().await?[0];
            let is_mark = !in_text;
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if in_text => is_escaped = true,
                b'"' => in_text = !in_text,
                b'[' if is_mark && !self.is_begun => self.is_begun = true,
                b']' if is_mark && self.is_begun => return Ok(false),
                b'{' if is_mark && self.is_begun => return Ok(true),
                _ => {}
            }
            self.answer.answered.body.consume(1);
        }
    }
}

fn read(json: &[u8]) -> Result<Head, ConnectorError> {
    serde_json::from_slice(json).map_err(|_| protocol("an answer is not what it should be"))
}
