//! Stored bytes, as a file that no browser opens by itself.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{Engine, HELD_BYTES};
use futures_util::stream;
use store::blobs::ReadError;
use store::sql::blobs::BlobPlace;
use store::{StoreError, TenantStore};

use super::problem::Problem;

/// As they are, for the description.
#[derive(utoipa::ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "only described")]
pub struct Binary(Vec<u8>);

/// Bytes that are under way at once for a download that is too large to be held.
const PIECE: usize = 256 << 10;

#[derive(Debug)]
pub struct Download {
    /// `None`: its bytes are not stored, or not yet.
    pub place: Option<BlobPlace>,
    pub content_type: String,
    pub filename: Option<String>,
}

/// Not a byte is sent before all are proven; a large one waits for that in a file without a name.
pub async fn send(
    engine: &Engine,
    store: &TenantStore,
    download: Download,
    asked: &HeaderMap,
) -> Result<Response, Problem> {
    let place = download.place.clone().ok_or_else(|| Problem::absent("content: its bytes are not stored"))?;
    let tag = format!("\"{}\"", place.sha256.hex());
    let is_known = asked.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    if is_known {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    let size = place.size_bytes;
    let (status, range) = match wanted(asked, size) {
        Wanted::All => (StatusCode::OK, 0..size),
        Wanted::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
        Wanted::Nonsense => {
            let problem = Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, format!("there are {size} bytes"));
            return Ok(([(header::CONTENT_RANGE, format!("bytes */{size}"))], problem).into_response());
        }
    };
    let body = read(engine, store, place, range.clone()).await?;
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    };
    set(header::CONTENT_TYPE, download.content_type);
    set(header::CONTENT_LENGTH, (range.end - range.start).to_string());
    set(header::CONTENT_DISPOSITION, disposition(download.filename.as_deref()));
    set(header::ETAG, tag);
    set(header::ACCEPT_RANGES, "bytes".to_owned());
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned());
    set(header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'".to_owned());
    if status == StatusCode::PARTIAL_CONTENT {
        set(header::CONTENT_RANGE, format!("bytes {}-{}/{size}", range.start, range.end - 1));
    }
    Ok(response)
}

async fn read(engine: &Engine, store: &TenantStore, place: BlobPlace, range: Range<u64>) -> Result<Body, Problem> {
    if place.size_bytes <= HELD_BYTES {
        let bytes = Bytes::from(engine.read_blob(store, place).await?);
        // Not more than HELD_BYTES, so it fits.
        return Ok(Body::from(bytes.slice(range.start as usize..range.end as usize)));
    }
    let mut file = match copy(engine, &place).await {
        // Its pack may have been merged with others since we asked where it is.
        Err(e @ StoreError::BlobMissing(_)) => match store.find_blob(place.sha256).await? {
            Some(now) if now.object_key != place.object_key => copy(engine, &now).await?,
            _ => return Err(e.into()),
        },
        copied => copied?,
    };
    file.seek(SeekFrom::Start(range.start)).map_err(|e| StoreError::Other(e.to_string().into()))?;
    let left = range.end - range.start;
    let pieces = stream::try_unfold((file, left), |(mut file, left)| async move {
        if left == 0 {
            return Ok::<_, std::io::Error>(None);
        }
        tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; PIECE.min(usize::try_from(left).unwrap_or(PIECE))];
            file.read_exact(&mut piece)?;
            let left = left - piece.len() as u64;
            Ok(Some((Bytes::from(piece), (file, left))))
        })
        .await
        .map_err(std::io::Error::other)?
    });
    Ok(Body::from_stream(pieces))
}

/// Into a file without a name.
async fn copy(engine: &Engine, place: &BlobPlace) -> Result<File, StoreError> {
    let failed =
        |what: &str, e: std::io::Error| StoreError::Other(format!("cannot {what} a temporary file: {e}").into());
    let file = tempfile::tempfile().map_err(|e| failed("make", e))?;
    match engine.blobs.read_to(place, file).await {
        Ok(file) => Ok(file),
        Err(ReadError::Store(e)) => Err(e),
        Err(ReadError::Writer(e)) => Err(failed("write", e)),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    All,
    Part(Range<u64>),
    Nonsense,
}

/// One range of bytes; of several, all is sent, which is allowed.
fn wanted(asked: &HeaderMap, size: u64) -> Wanted {
    let text = asked.get(header::RANGE).and_then(|value| value.to_str().ok());
    let Some((first, last)) = text.and_then(|text| text.strip_prefix("bytes=")?.split_once('-')) else {
        return Wanted::All;
    };
    let range = match (first.trim().parse::<u64>(), last.trim()) {
        (Ok(first), "") => first..size,
        (Ok(first), last) => match last.parse::<u64>() {
            Ok(last) if last >= first => first..last.saturating_add(1).min(size),
            _ => return Wanted::All,
        },
        (Err(_), last) if first.trim().is_empty() => match last.parse::<u64>() {
            Ok(count) => size.saturating_sub(count)..size,
            Err(_) => return Wanted::All,
        },
        _ => return Wanted::All,
    };
    if range.start >= range.end { Wanted::Nonsense } else { Wanted::Part(range) }
}

/// RFC 6266: the name for everybody, and the true one for whoever reads UTF-8.
fn disposition(filename: Option<&str>) -> String {
    let Some(name) = filename else { return "attachment".to_owned() };
    let plain = |c: char| if c.is_ascii_graphic() && !"\"\\/".contains(c) || c == ' ' { c } else { '_' };
    let ascii: String = name.chars().map(plain).collect();
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte);
    let mut encoded = String::new();
    for byte in name.bytes() {
        match is_safe(byte) {
            true => encoded.push(char::from(byte)),
            false => encoded += &format!("%{byte:02X}"),
        }
    }
    format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{encoded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_a_part_and_what_makes_no_sense_is_everything_or_refused() {
        let of = |range: &'static str, size| {
            wanted(&HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static(range))]), size)
        };
        assert_eq!(of("bytes=0-3", 10), Wanted::Part(0..4));
        assert_eq!(of("bytes=4-", 10), Wanted::Part(4..10));
        assert_eq!(of("bytes=-3", 10), Wanted::Part(7..10));
        assert_eq!(of("bytes=-30", 10), Wanted::Part(0..10));
        assert_eq!(of("bytes=9-100", 10), Wanted::Part(9..10));
        assert_eq!(of("bytes=0-18446744073709551615", 10), Wanted::Part(0..10));
        for nonsense in ["bytes=10-", "bytes=11-20", "bytes=-0"] {
            assert_eq!(of(nonsense, 10), Wanted::Nonsense, "{nonsense}");
        }
        assert_eq!(of("bytes=0-", 0), Wanted::Nonsense);
        for ignored in ["bytes=3-1", "bytes=a-b", "lines=0-1", "bytes=0-1,3-4", "bytes=", "bytes=-"] {
            assert_eq!(of(ignored, 10), Wanted::All, "{ignored}");
        }
        assert_eq!(wanted(&HeaderMap::new(), 10), Wanted::All);
    }

    #[test]
    fn names_become_neither_headers_nor_paths() {
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
