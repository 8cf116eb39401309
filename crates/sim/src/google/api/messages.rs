//! `users.messages`: listing, single messages, attachments.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde_json::{Value, json};

use super::super::account::{GmailAccount, GmailMessage};
use super::super::error::error;
use super::super::faults::GoogleFaultKind;
use super::super::history::names;
use super::super::labels::LabelId;
use super::super::search::Search;
use super::call::GmailCallContext;
use super::{has, payload};
use crate::letter_pool::{Alphabet, LetterPool};
use crate::response::{ResponseBody, SimResponse};
use crate::spec::MethodCall;

/// The default page size; the maximum follows.
const DEFAULT_PAGE_SIZE: usize = 100;
const MAX_PAGE_SIZE: usize = 500;

const FULL_SCOPES: [&str; 3] = [
    "https://mail.google.com/",
    "https://www.googleapis.com/auth/gmail.modify",
    "https://www.googleapis.com/auth/gmail.readonly",
];

pub fn page_size(call: &MethodCall<'static>) -> usize {
    let given = call.query("maxResults").and_then(|text| text.parse::<usize>().ok()).filter(|given| *given > 0);
    given.unwrap_or(DEFAULT_PAGE_SIZE).min(MAX_PAGE_SIZE)
}

/// Encodes a page token: numbers, and a checksum of the query that the token is valid for.
pub fn write_token(letter: char, numbers: &[i64], question: &str) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    URL_SAFE_NO_PAD.encode(format!("{letter}:{:x}:{}", sum(question), numbers.join(":")))
}

pub fn read_token<const N: usize>(token: &str, letter: char, question: &str) -> Option<[i64; N]> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    let numbers = text.strip_prefix(&format!("{letter}:{:x}:", sum(question)))?;
    let numbers: Result<Vec<i64>, _> = numbers.split(':').map(str::parse).collect();
    numbers.ok()?.try_into().ok()
}

fn sum(text: &str) -> u64 {
    text.bytes().fold(14_695_981_039_346_656_037, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(1_099_511_628_211))
}

/// The filter of a message listing.
struct ListingFilter {
    labels: Vec<LabelId>,
    search: Search,
    with_spam: bool,
    with_trash: bool,
}

impl ListingFilter {
    fn read(context: &GmailCallContext<'_>, account: &GmailAccount) -> Result<Self, Box<SimResponse>> {
        let call = context.call;
        let labels: Option<Vec<LabelId>> = call
            .all("labelIds")
            .map(|label| LabelId::parse(label).filter(|found| account.labels.has(*found)))
            .collect();
        let labels = labels.ok_or_else(|| invalid_argument("Invalid label"))?;
        let query = call.query("q").unwrap_or_default();
        if !query.is_empty() && !may_read_bodies(context) {
            return Err(Box::new(error(403, "forbidden", "Metadata scope does not support 'q' parameter")));
        }
        let search = Search::parse(query, account).map_err(|why| invalid_argument(&format!("Invalid query: {why}")))?;
        let with_both = call.query("includeSpamTrash") == Some("true");
        let reaches = |label: LabelId| with_both || labels.contains(&label) || search.reaches(label);
        let (with_spam, with_trash) = (reaches(LabelId::SPAM), reaches(LabelId::TRASH));
        Ok(Self { labels, search, with_spam, with_trash })
    }

    fn matches(&self, message: &GmailMessage, letters: &LetterPool) -> bool {
        (self.with_spam || !message.labels.contains(&LabelId::SPAM))
            && (self.with_trash || !message.labels.contains(&LabelId::TRASH))
            && self.labels.iter().all(|label| message.labels.contains(label))
            && self.search.matches(message, letters)
    }
}

fn invalid_argument(why: &str) -> Box<SimResponse> {
    Box::new(error(400, "invalidArgument", why))
}

fn may_read_bodies(context: &GmailCallContext<'_>) -> bool {
    context.access.scopes.iter().any(|scope| FULL_SCOPES.contains(&scope.as_str()))
}

/// Lists messages, newest first. A page continues where the last one ended, whatever has changed since.
pub fn list(context: &GmailCallContext<'_>) -> SimResponse {
    let call = context.call;
    let account = context.mailbox.account();
    let filter = match ListingFilter::read(context, &account) {
        Ok(filter) => filter,
        Err(answer) => return *answer,
    };
    let spam_and_trash = call.query("includeSpamTrash") == Some("true");
    let question = format!("{:?} {:?} {spam_and_trash}", filter.labels, call.query("q").unwrap_or_default());
    let before = match call.query("pageToken").map(|token| read_token::<2>(token, 'm', &question)) {
        None => (i64::MAX, u64::MAX),
        Some(Some([date, number])) => (date, number as u64),
        Some(None) => return error(400, "invalidArgument", "Invalid pageToken"),
    };
    let limit = if has(context.faults, &GoogleFaultKind::EmptyPage) { 0 } else { page_size(call) };
    let mut found: Vec<Value> = Vec::new();
    let (mut last, mut is_more) = (before, false);
    for (date, number) in account.by_date.range(..before).rev() {
        let message = &account.messages[number];
        if !filter.matches(message, &context.world.letters) {
            continue;
        }
        if found.len() == limit {
            is_more = true;
            break;
        }
        found.push(json!({"id": account.id(*number), "threadId": account.id(message.thread)}));
        last = (*date, *number);
    }
    let mut body = json!({"resultSizeEstimate": found.len() + usize::from(is_more) * account.message_count()});
    if !found.is_empty() {
        body["messages"] = json!(found);
    }
    if is_more {
        body["nextPageToken"] = json!(write_token('m', &[last.0, last.1 as i64], &question));
    }
    SimResponse::json(body)
}

pub fn get(context: &GmailCallContext<'_>) -> SimResponse {
    let format = context.call.query("format").unwrap_or("full");
    if matches!(format, "full" | "raw") && !may_read_bodies(context) {
        return error(403, "forbidden", "Metadata scope doesn't allow format FULL or RAW");
    }
    let letters = &context.world.letters;
    let (mut shown, content, number) = {
        let account = context.mailbox.account();
        let Some(number) = account.find(context.call.path("id")) else {
            return error(404, "notFound", "Requested entity was not found.");
        };
        let message = &account.messages[&number];
        (show(&account, number, message), message.content.clone(), number)
    };
    shown["snippet"] = json!(letters.facts(&content).snippet);
    shown["sizeEstimate"] = json!(letters.size(&content));
    match format {
        "raw" => {
            let text = padded(letters.encoded(&content, Alphabet::Url), has(context.faults, &GoogleFaultKind::Padded));
            return SimResponse::new(200, ResponseBody::JsonWith { object: shown, field: "raw", text });
        }
        "full" => shown["payload"] = payload::full(&letters.pieces(&content).concat(), number),
        "metadata" => {
            let wanted: Vec<&str> = context.call.all("metadataHeaders").collect();
            shown["payload"] = payload::headers_only(&letters.pieces(&content).concat(), &wanted);
        }
        _ => {}
    }
    SimResponse::json(shown)
}

fn show(account: &GmailAccount, number: u64, message: &GmailMessage) -> Value {
    let mut shown = json!({
        "id": account.id(number),
        "threadId": account.id(message.thread),
        "historyId": message.history_id.to_string(),
        "internalDate": message.internal_date.to_string(),
    });
    if !message.labels.is_empty() {
        shown["labelIds"] = names(&message.labels);
    }
    shown
}

/// Pads base64 with `=` if `is_wanted`.
fn padded(mut text: Vec<Bytes>, is_wanted: bool) -> Vec<Bytes> {
    let length: usize = text.iter().map(Bytes::len).sum();
    if is_wanted {
        text.push(Bytes::from_static(&b"==="[..(4 - length % 4) % 4]));
    }
    text
}

pub fn attachment(context: &GmailCallContext<'_>) -> SimResponse {
    let found = {
        let account = context.mailbox.account();
        let number = account.find(context.call.path("messageId"));
        number.map(|number| (number, account.messages[&number].content.clone()))
    };
    let Some((number, content)) = found else {
        return error(404, "notFound", "Requested entity was not found.");
    };
    let raw = context.world.letters.pieces(&content).concat();
    let Some(bytes) = payload::attachment(&raw, number, context.call.path("id")) else {
        return error(400, "invalidArgument", "Invalid attachment token");
    };
    let text = vec![Bytes::from(URL_SAFE_NO_PAD.encode(&bytes))];
    let text = padded(text, has(context.faults, &GoogleFaultKind::Padded));
    SimResponse::new(200, ResponseBody::JsonWith { object: json!({"size": bytes.len()}), field: "data", text })
}
