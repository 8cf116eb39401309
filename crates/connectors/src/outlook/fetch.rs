//! The bytes of messages, twenty by a call and four calls at once; one that is alone by a call of its own, in which it may be
//! of any size. They are read as they come.

use std::collections::{HashMap, VecDeque};

use domain::ConnectorError;
use domain::connector::{Facts, Sink, Wanted, names};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use reqwest::{StatusCode, Url};
use serde_json::Value;

use super::api::{Answer, Call, Refusal};
use super::batch::{self, Answers, Head};
use super::lanes::AT_ONCE;
use super::refusal::What;
use crate::http::{protocol, unavailable};

pub async fn messages(call: Call<'_>, wanted: &[Wanted], sink: &mut dyn Sink) -> Result<(), ConnectorError> {
    if let [wanted] = wanted {
        return one(call, &wanted.message, sink).await;
    }
    let refused = all(call, &names(wanted), sink).await?;
    let Some((token, refused)) = refused else { return Ok(()) };
    call.account.access.renew(&token).await?;
    match all(call, &refused, sink).await? {
        None => Ok(()),
        Some(_) => Err(ConnectorError::Unauthorized("Microsoft refuses a new token".to_owned())),
    }
}

/// What a server says that breaks at one message as well as one that breaks at all.
const OWN: [StatusCode; 3] = [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::BAD_GATEWAY, StatusCode::GATEWAY_TIMEOUT];

async fn one(call: Call<'_>, id: &str, sink: &mut dyn Sink) -> Result<(), ConnectorError> {
    ready(call, &[id], sink).await?;
    // What is wrong with this message alone.
    let fail = |sink: &mut dyn Sink, e| {
        sink.fail(id, e);
        Ok(())
    };
    let mut answer = match call.bytes(What::Message, value_of(call, id)).await {
        Ok(answer) => answer,
        Err(refusal) => match refusal.error {
            e @ (ConnectorError::Gone | ConnectorError::Protocol(_)) => return fail(sink, e),
            // One of several servers is broken, or this message: whoever has more to ask finds out.
            e @ ConnectorError::Unavailable(_) if refusal.status.is_some_and(|status| OWN.contains(&status)) => {
                return fail(sink, e);
            }
            ConnectorError::Unauthorized(_) if refusal.status == Some(StatusCode::FORBIDDEN) => {
                call.inbox().await?;
                return fail(sink, batch::alone());
            }
            e => return Err(e),
        },
    };
    let mut is_begun = false;
    loop {
        match answer.answered.body.next().await {
            // Whoever is between us and Graph may have something to say, and what kind it is nobody says reliably.
            Ok(Some(bytes)) if !is_begun && matches!(bytes.first(), Some(b'<' | b'{')) => {
                return fail(sink, protocol("the answer is no message"));
            }
            Ok(Some(bytes)) => {
                if !std::mem::replace(&mut is_begun, true) {
                    sink.begin(id);
                }
                sink.write(&bytes).map_err(|_| unwritten())?;
            }
            Ok(None) if is_begun => return sink.end(Facts::default()).map_err(|_| unwritten()),
            // An answer without the bytes is no message, whatever its status.
            Ok(None) => return fail(sink, protocol("Outlook has no bytes of it")),
            Err(e) => {
                sink.fail(id, e.clone());
                return Err(e);
            }
        }
    }
}

fn unwritten() -> ConnectorError {
    unavailable("the message cannot be written down here")
}

type Refused<'a> = Option<(domain::Secret<String>, Vec<&'a str>)>;

/// Those that were refused with the token they were asked with.
async fn all<'a>(call: Call<'_>, ids: &[&'a str], sink: &mut dyn Sink) -> Result<Refused<'a>, ConnectorError> {
    let mut left: VecDeque<Vec<&'a str>> = ids.chunks(batch::MOST).map(<[_]>::to_vec).collect();
    // Whichever is there is read: one that waits for a lane must not wait for one that holds it.
    let mut on_their_way = FuturesUnordered::new();
    let mut refused: Refused<'a> = None;
    let (mut forbidden, mut stopped) = (Vec::new(), None);
    loop {
        while on_their_way.len() < AT_ONCE && stopped.is_none() {
            let Some(asked) = left.pop_front() else { break };
            match ready(call, &asked, sink).await {
                Ok(()) => on_their_way.push(ask(call, asked)),
                // What is on its way is still read.
                Err(e) => stopped = Some(e),
            }
        }
        let Some((asked, answer)) = on_their_way.next().await else { break };
        match read(answer?, &asked, &mut forbidden, sink).await? {
            Outcome::Whole => {}
            Outcome::Refused(token, ids) => refused.get_or_insert((token, Vec::new())).1.extend(ids),
            Outcome::Stopped(e) => stopped = Some(longer(stopped.take(), e)),
        }
    }
    // With no lane in hand.
    if !forbidden.is_empty() {
        call.inbox().await?;
    }
    for id in forbidden {
        sink.fail(id, batch::alone());
    }
    match stopped {
        Some(e) => Err(e),
        None => Ok(refused),
    }
}

async fn ready(call: Call<'_>, asked: &[&str], sink: &mut dyn Sink) -> Result<(), ConnectorError> {
    call.account.access.spend(asked.len() as u32).await?;
    sink.room(asked).await
}

async fn ask<'a>(call: Call<'_>, asked: Vec<&'a str>) -> (Vec<&'a str>, Result<Answer, Refusal>) {
    let requests: Vec<Value> =
        asked.iter().enumerate().map(|(number, id)| batch::request(call, number, &value_of(call, id))).collect();
    let answer = call.batch(&requests).await;
    (asked, answer)
}

fn value_of(call: Call<'_>, id: &str) -> Url {
    call.url(&["messages", id, "$value"])
}

enum Outcome<'a> {
    Whole,
    /// The token was, for these.
    Refused(domain::Secret<String>, Vec<&'a str>),
    /// No more calls for now.
    Stopped(ConnectorError),
}

async fn read<'a>(
    answer: Answer,
    asked: &[&'a str],
    forbidden: &mut Vec<&'a str>,
    sink: &mut dyn Sink,
) -> Result<Outcome<'a>, ConnectorError> {
    let mut answers = Answers::new(answer);
    let mut open: HashMap<usize, &'a str> = asked.iter().copied().enumerate().collect();
    let (mut refused, mut stopped) = (Vec::new(), None);
    loop {
        let mut begun: Option<&'a str> = None;
        let taken = &mut |head: &Head, bytes: &[u8]| {
            if !head.is_good() {
                return Ok(());
            }
            let id = *open.get(&head.number()?).ok_or_else(|| protocol("a message that was not asked for"))?;
            if begun.is_none() {
                begun = Some(id);
                sink.begin(id);
            }
            sink.write(bytes).map_err(|_| unwritten())
        };
        let head = match answers.next(taken).await {
            Ok(Some(head)) => head,
            Ok(None) => break,
            Err(e) => {
                if let Some(id) = begun {
                    sink.fail(id, e.clone());
                }
                return Err(e);
            }
        };
        let id = open.remove(&head.number()?).ok_or_else(|| protocol("a message that was not asked for"))?;
        match (head.is_good(), begun) {
            (true, Some(_)) => {
                sink.end(Facts::default()).map_err(|_| unwritten())?;
            }
            // An answer without the bytes is no message, whatever its status.
            (true, None) => sink.fail(id, protocol("Outlook has no bytes of it")),
            (false, _) if head.is_about_the_token() => refused.push(id),
            (false, _) => match head.refusal(What::Message) {
                e @ ConnectorError::Throttled { .. } => stopped = Some(longer(stopped.take(), e)),
                ConnectorError::Unauthorized(_) if head.is_forbidden() => forbidden.push(id),
                e @ ConnectorError::Unauthorized(_) => return Err(e),
                e => sink.fail(id, e),
            },
        }
    }
    for id in open.into_values() {
        sink.fail(id, unavailable("the answer leaves it out"));
    }
    Ok(match stopped {
        Some(e) => Outcome::Stopped(e),
        None if refused.is_empty() => Outcome::Whole,
        None => Outcome::Refused(answers.token().clone(), refused),
    })
}

/// Who is told to wait twice waits for the longer time.
fn longer(before: Option<ConnectorError>, now: ConnectorError) -> ConnectorError {
    match (before, now) {
        (Some(ConnectorError::Throttled { retry_after: a }), ConnectorError::Throttled { retry_after: b }) => {
            ConnectorError::Throttled { retry_after: a.max(b) }
        }
        (_, now) => now,
    }
}
