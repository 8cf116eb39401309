//! Batch requests in `multipart/mixed`: each part is a request, each part of the response its response.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use bytes::Bytes;
use futures_util::future::join_all;

use super::super::error::error;
use super::super::faults::GoogleFaultKind;
use super::super::world::GoogleWorld;
use super::call::{self, GmailRequest};
use super::has;
use crate::response::{ResponseBody, SimResponse};
use crate::spec::Side;

/// The maximum number of calls in a batch.
const MAX_CALLS: usize = 100;

const BOUNDARY: &str = "batch_sim0Nn7cJ5pQ2x";

/// One request of a batch, with the content id that its response refers to.
struct BatchPart<'a> {
    id: Option<&'a str>,
    verb: &'a str,
    target: &'a str,
    authorization: Option<&'a str>,
    body: &'a [u8],
}

pub async fn answer(
    world: &GoogleWorld,
    content_type: &str,
    authorization: Option<&str>,
    body: &[u8],
    faults: &[GoogleFaultKind],
) -> SimResponse {
    let parts = match read(content_type, body) {
        Ok(parts) => parts,
        Err(why) => {
            world.violations.add(Side::Request, "batch", &why);
            return error(400, "badRequest", &why);
        }
    };
    if parts.len() > MAX_CALLS {
        world.violations.add(Side::Request, "batch", "more than a hundred calls");
        return error(400, "badRequest", "The batch request exceeds the maximum of 100 calls.");
    }
    let calls = parts.iter().map(|part| answer_part(world, part, authorization));
    // Concurrent, so that a part that hangs does not delay the others.
    let mut answers: Vec<(Option<&str>, SimResponse)> =
        parts.iter().map(|part| part.id).zip(join_all(calls).await).collect();
    if has(faults, &GoogleFaultKind::MissingPart) {
        answers.pop();
    }
    if has(faults, &GoogleFaultKind::ShuffledParts) {
        answers.reverse();
    }
    write(answers)
}

async fn answer_part(world: &GoogleWorld, part: &BatchPart<'_>, outer: Option<&str>) -> SimResponse {
    let request = GmailRequest {
        verb: part.verb,
        target: part.target,
        authorization: part.authorization.or(outer),
        body: part.body,
        in_batch: true,
    };
    call::answer_call(world, &request).await
}

fn read<'a>(content_type: &str, body: &'a [u8]) -> Result<Vec<BatchPart<'a>>, String> {
    let parameters = content_type.strip_prefix("multipart/mixed").ok_or("the content type is not multipart/mixed")?;
    let boundary = parameters.split(';').find_map(|parameter| parameter.trim().strip_prefix("boundary="));
    let boundary = boundary.ok_or("the content type has no boundary")?.trim_matches('"');
    let body = std::str::from_utf8(body).map_err(|_| "the body is no text")?;
    let delimiter = format!("--{boundary}");
    // What precedes the first delimiter is ignored.
    let mut parts = Vec::new();
    for piece in body.split(delimiter.as_str()).skip(1) {
        if piece.starts_with("--") {
            return Ok(parts);
        }
        parts.push(read_part(piece).ok_or("a part is no request")?);
    }
    Err("the last delimiter is missing".to_owned())
}

fn read_part(piece: &str) -> Option<BatchPart<'_>> {
    let piece = piece.strip_prefix("\r\n").or_else(|| piece.strip_prefix('\n'))?;
    let (head, request) = split_at_blank_line(piece)?;
    header(head, "content-type").filter(|kind| kind.starts_with("application/http"))?;
    let (request_head, body) = split_at_blank_line(request).unwrap_or((request.trim_end(), ""));
    let mut words = request_head.lines().next()?.split_whitespace();
    let (verb, target) = (words.next()?, words.next()?);
    if !target.starts_with('/') {
        return None;
    }
    Some(BatchPart {
        id: header(head, "content-id"),
        verb,
        target,
        authorization: header(request_head, "authorization"),
        body: body.trim().as_bytes(),
    })
}

fn split_at_blank_line(text: &str) -> Option<(&str, &str)> {
    text.split_once("\r\n\r\n").or_else(|| text.split_once("\n\n"))
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.filter(|(given, _)| given.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
}

fn write(answers: Vec<(Option<&str>, SimResponse)>) -> SimResponse {
    let mut pieces: Vec<Bytes> = Vec::new();
    let (mut cut, mut damage) = (None, crate::body_damage::BodyDamage::default());
    for (id, answer) in answers {
        cut = cut.or(answer.cut);
        damage.is_cut |= answer.damage.is_cut;
        damage.slow = damage.slow.or(answer.damage.slow);
        let id = id.map(|id| format!("Content-ID: <response-{}>\r\n", id.trim_matches(['<', '>']))).unwrap_or_default();
        let reason = StatusCode::from_u16(answer.status).ok().and_then(|status| status.canonical_reason());
        let mut head = format!(
            "--{BOUNDARY}\r\nContent-Type: application/http\r\n{id}\r\nHTTP/1.1 {} {}\r\n",
            answer.status,
            reason.unwrap_or("Unknown")
        );
        for (name, value) in &answer.headers {
            head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap_or_default()));
        }
        let body = answer.into_pieces();
        head.push_str(&format!("Content-Length: {}\r\n\r\n", body.iter().map(Bytes::len).sum::<usize>()));
        pieces.push(Bytes::from(head));
        pieces.extend(body);
        pieces.push(Bytes::from_static(b"\r\n"));
    }
    pieces.push(Bytes::from(format!("--{BOUNDARY}--\r\n")));
    let mut answer = SimResponse::new(200, ResponseBody::Other { pieces });
    (answer.cut, answer.damage) = (cut, damage);
    answer.with(CONTENT_TYPE, &format!("multipart/mixed; boundary={BOUNDARY}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_parts_are_parsed() {
        let body = "--b\r\nContent-Type: application/http\r\nContent-ID: <a1>\r\n\r\nGET /gmail/v1/users/me/profile\r\n\r\n\
                    --b\nContent-Type: application/http\n\nPOST /x HTTP/1.1\nAuthorization: Bearer t\nContent-Type: application/json\n\n{}\n--b--";

        let parts = read("multipart/mixed; boundary=\"b\"", body.as_bytes()).unwrap();

        assert_eq!(parts.len(), 2);
        assert_eq!((parts[0].id, parts[0].verb, parts[0].target), (Some("<a1>"), "GET", "/gmail/v1/users/me/profile"));
        assert_eq!((parts[1].authorization, parts[1].body), (Some("Bearer t"), &b"{}"[..]));
    }

    #[test]
    fn malformed_batch_is_refused() {
        let part = "--b\r\nContent-Type: application/http\r\n\r\nGET https://gmail.googleapis.com/x\r\n\r\n--b--";

        assert!(read("multipart/mixed; boundary=b", part.as_bytes()).is_err());
        assert!(read("application/json", b"{}").is_err());
        assert!(
            read("multipart/mixed; boundary=b", b"--b\r\nContent-Type: application/http\r\n\r\nGET /\r\n\r\n").is_err()
        );
    }
}
