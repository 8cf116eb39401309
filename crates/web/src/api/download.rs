//! Downloads of stored blobs, with headers that keep browsers from rendering them.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{Engine, MAX_BUFFERED_BLOB_BYTES};
use futures_util::stream;
use store::blobs::BlobLocation;
use store::blobs::ReadError;
use store::{StoreError, TenantStore};

use super::problem::Problem;

/// Binary body, for the OpenAPI description.
#[derive(utoipa::ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "for the OpenAPI description only")]
pub struct Binary(Vec<u8>);

/// Chunk size of downloads that are too large for memory.
const CHUNK_BYTES: usize = 256 << 10;

/// A blob to send, with its type and file name.
#[derive(Debug)]
pub struct Download {
    /// `None` if the bytes are not stored (yet).
    pub place: Option<BlobLocation>,
    pub content_type: String,
    pub filename: Option<String>,
}

/// Returns the 404 for bytes that were left out for a limit, or while the blob store was unavailable.
pub fn content_not_stored() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "the content is not stored: it exceeds a limit, or is fetched again since the blob store was unavailable",
    )
}

/// Sends a blob after its hash has been verified; a large one is copied to an unnamed temporary file for that.
pub async fn send(
    engine: &Engine,
    store: &TenantStore,
    download: Download,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let place = download.place.clone().ok_or_else(content_not_stored)?;
    let tag = format!("\"{}\"", place.sha256.hex());
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    if is_known {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    let size = place.size_bytes;
    let (status, range) = match requested_range(headers, size) {
        RequestedRange::Whole => (StatusCode::OK, 0..size),
        RequestedRange::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
        RequestedRange::Unsatisfiable => {
            let problem = Problem::new(
                StatusCode::RANGE_NOT_SATISFIABLE,
                format!("the range is beyond the end: the content has {size} bytes"),
            );
            return Ok(([(header::CONTENT_RANGE, format!("bytes */{size}"))], problem).into_response());
        }
    };
    let body = read(engine, store, place, range.clone()).await?;
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    let content_range = (status == StatusCode::PARTIAL_CONTENT)
        .then(|| (header::CONTENT_RANGE, format!("bytes {}-{}/{size}", range.start, range.end - 1)));
    let values = [
        (header::CONTENT_TYPE, download.content_type),
        (header::CONTENT_LENGTH, (range.end - range.start).to_string()),
        (header::CONTENT_DISPOSITION, disposition(download.filename.as_deref())),
        (header::ETAG, tag),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'".to_owned()),
    ];
    for (name, value) in values.into_iter().chain(content_range) {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    Ok(response)
}

async fn read(engine: &Engine, store: &TenantStore, place: BlobLocation, range: Range<u64>) -> Result<Body, Problem> {
    if place.size_bytes <= MAX_BUFFERED_BLOB_BYTES {
        let bytes = Bytes::from(engine.read_blob(store, place).await?);
        // At most HELD_BYTES, so the casts cannot overflow.
        return Ok(Body::from(bytes.slice(range.start as usize..range.end as usize)));
    }
    let mut file = match copy_to_temporary_file(engine, &place).await {
        // Its pack may have been merged with others since its place was read.
        Err(e @ StoreError::BlobMissing(_)) => match store.find_blob(place.sha256).await? {
            Some(now) if now.object_key != place.object_key => copy_to_temporary_file(engine, &now).await?,
            _ => return Err(e.into()),
        },
        copied => copied?,
    };
    file.seek(SeekFrom::Start(range.start)).map_err(|e| StoreError::Other(e.to_string().into()))?;
    let left = range.end - range.start;
    let chunks = stream::try_unfold((file, left), |(mut file, left)| async move {
        if left == 0 {
            return Ok::<_, std::io::Error>(None);
        }
        tokio::task::spawn_blocking(move || {
            let mut chunk = vec![0; CHUNK_BYTES.min(usize::try_from(left).unwrap_or(CHUNK_BYTES))];
            file.read_exact(&mut chunk)?;
            let left = left - chunk.len() as u64;
            Ok(Some((Bytes::from(chunk), (file, left))))
        })
        .await
        .map_err(std::io::Error::other)?
    });
    Ok(Body::from_stream(chunks))
}

/// Copies a blob to an unnamed temporary file, verifying its hash.
async fn copy_to_temporary_file(engine: &Engine, place: &BlobLocation) -> Result<File, StoreError> {
    let file = tempfile::tempfile().map_err(|e| temporary_file_error("create", &e))?;
    match engine.blobs.read_to(place, file).await {
        Ok(file) => Ok(file),
        Err(ReadError::Store(e)) => Err(e),
        Err(ReadError::Writer(e)) => Err(temporary_file_error("write", &e)),
    }
}

fn temporary_file_error(action: &str, e: &std::io::Error) -> StoreError {
    StoreError::Other(format!("cannot {action} a temporary file: {e}").into())
}

/// Range of bytes that a request asks for.
#[derive(Debug, PartialEq, Eq)]
enum RequestedRange {
    Whole,
    Part(Range<u64>),
    Unsatisfiable,
}

/// Reads the `Range` header. A list of ranges is ignored, as RFC 9110 permits.
fn requested_range(headers: &HeaderMap, size: u64) -> RequestedRange {
    let text = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    let Some((first, last)) = text.and_then(|text| text.strip_prefix("bytes=")?.split_once('-')) else {
        return RequestedRange::Whole;
    };
    let range = match (first.trim().parse::<u64>(), last.trim()) {
        (Ok(first), "") => first..size,
        (Ok(first), last) => match last.parse::<u64>() {
            Ok(last) if last >= first => first..last.saturating_add(1).min(size),
            _ => return RequestedRange::Whole,
        },
        (Err(_), last) if first.trim().is_empty() => match last.parse::<u64>() {
            Ok(count) => size.saturating_sub(count)..size,
            Err(_) => return RequestedRange::Whole,
        },
        _ => return RequestedRange::Whole,
    };
    if range.start >= range.end { RequestedRange::Unsatisfiable } else { RequestedRange::Part(range) }
}

/// Formats `Content-Disposition` (RFC 6266): an ASCII name, and the exact one in UTF-8.
fn disposition(filename: Option<&str>) -> String {
    let Some(name) = filename else { return "attachment".to_owned() };
    let ascii: String = name.replace(|c: char| !c.is_ascii_graphic() && c != ' ' || "\"\\/".contains(c), "_");
    let mut encoded = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{encoded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(range: &'static str, size: u64) -> RequestedRange {
        requested_range(&HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static(range))]), size)
    }

    #[test]
    fn one_satisfiable_range_is_a_part() {
        assert_eq!(of("bytes=0-3", 10), RequestedRange::Part(0..4));
        assert_eq!(of("bytes=4-", 10), RequestedRange::Part(4..10));
        assert_eq!(of("bytes=-3", 10), RequestedRange::Part(7..10));
        assert_eq!(of("bytes=-30", 10), RequestedRange::Part(0..10));
        assert_eq!(of("bytes=9-100", 10), RequestedRange::Part(9..10));
        assert_eq!(of("bytes=0-18446744073709551615", 10), RequestedRange::Part(0..10));
        for nonsense in ["bytes=10-", "bytes=11-20", "bytes=-0"] {
            assert_eq!(of(nonsense, 10), RequestedRange::Unsatisfiable, "{nonsense}");
        }
        assert_eq!(of("bytes=0-", 0), RequestedRange::Unsatisfiable);
        for ignored in ["bytes=3-1", "bytes=a-b", "lines=0-1", "bytes=0-1,3-4", "bytes=", "bytes=-"] {
            assert_eq!(of(ignored, 10), RequestedRange::Whole, "{ignored}");
        }
        assert_eq!(requested_range(&HeaderMap::new(), 10), RequestedRange::Whole);
    }

    #[test]
    fn file_names_cannot_inject_headers_or_paths() {
        assert_eq!(disposition(None), "attachment");
        assert_eq!(disposition(Some("a b.pdf")), "attachment; filename=\"a b.pdf\"; filename*=UTF-8''a%20b.pdf");
        let odd = disposition(Some("../Ünïcode\"\r\nX: y"));
        assert_eq!(
            odd,
            "attachment; filename=\".._Ü\"".replace("Ü\"", "_n_code___X: y\"").as_str().to_owned()
                + "; filename*=UTF-8''..%2F%C3%9Cn%C3%AFcode%22%0D%0AX%3A%20y"
        );
    }
}
