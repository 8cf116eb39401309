//! Blob storage in a bucket: S3 and compatible stores, Azure Blob Storage, Google Cloud Storage.

use std::sync::Arc;
use std::time::Duration;

use domain::Secret;
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::signer::Signer;
use object_store::{BackoffConfig, ClientOptions, Error, ObjectStore, RetryConfig};

use super::{BlobBackend, BlobEncoding, BlobLocation, Blobs, truncated_pack};
use crate::StoreError;
use crate::error::chain;

/// Between two attempts of a write whose answer was lost.
pub(super) const LOST_ANSWER_RETRY_DELAY: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteKind {
    S3,
    Azure,
    Gcs,
}

#[derive(Debug, Clone)]
pub struct RemoteSettings {
    pub kind: RemoteKind,
    /// The bucket, or the container on Azure.
    pub bucket: String,
    /// The prefix of every key; may be empty.
    pub prefix: String,
    /// Endpoint and credentials under the names that the tools of each provider know: `AWS_…`, `AZURE_…`, `GOOGLE_…`.
    /// Those of other providers are ignored.
    pub variables: Vec<(String, Secret<String>)>,
    /// How long one request may take, all retries included.
    pub retry_for: Duration,
}

/// A bucket's address and credentials.
#[derive(Debug)]
pub(super) struct RemoteBucket {
    kind: RemoteKind,
    bucket: String,
    prefix: Path,
    signer: Arc<dyn Signer>,
    pub retry_for: Duration,
}

impl RemoteKind {
    /// Returns the scheme of its URLs.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Azure => "az",
            Self::Gcs => "gs",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::S3 => "AWS_",
            Self::Azure => "AZURE_",
            Self::Gcs => "GOOGLE_",
        }
    }

    /// Returns the names of the variables with the credentials.
    fn credentials(self) -> &'static str {
        match self {
            Self::S3 => "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION",
            Self::Azure => "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
            Self::Gcs => "GOOGLE_APPLICATION_CREDENTIALS",
        }
    }
}

pub(super) fn open(settings: &RemoteSettings) -> Result<(Arc<dyn ObjectStore>, RemoteBucket), StoreError> {
    refuse_accidental_http(settings)?;
    // One TLS library for the process; if one was installed before, it is this one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (objects, signer) = build(settings).map_err(|e| {
        let credentials = settings.kind.credentials();
        StoreError::Misconfigured(format!("blobs.url cannot be used ({}); set {credentials}", chain(&e)).into())
    })?;
    let prefix = Path::from(settings.prefix.as_str());
    let remote = RemoteBucket {
        kind: settings.kind,
        bucket: settings.bucket.clone(),
        prefix: prefix.clone(),
        signer,
        retry_for: settings.retry_for,
    };
    Ok((Arc::new(PrefixStore::new(objects, prefix)), remote))
}

type StoreAndSigner = (Arc<dyn ObjectStore>, Arc<dyn Signer>);

/// Builds the client. Our own settings come after the variables where they must win.
fn build(settings: &RemoteSettings) -> object_store::Result<StoreAndSigner> {
    let (client, retry) = (client(settings.retry_for), retry(settings.retry_for));
    let variables = settings.variables.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.expose().as_str()));
    Ok(match settings.kind {
        RemoteKind::S3 => {
            let builder = AmazonS3Builder::new().with_client_options(client).with_retry(retry);
            let builder = variables.fold(builder, |builder, (name, value)| match name.parse() {
                Ok(key) if name.starts_with("aws_") => builder.with_config(key, value),
                _ => builder,
            });
            let store = builder.with_bucket_name(&settings.bucket).with_conditional_put(S3ConditionalPut::ETagMatch);
            both(store.build()?)
        }
        RemoteKind::Azure => {
            let builder = MicrosoftAzureBuilder::new().with_client_options(client).with_retry(retry);
            let builder = variables.fold(builder, |builder, (name, value)| match name.parse() {
                Ok(key) if name.starts_with("azure_") => builder.with_config(key, value),
                _ => builder,
            });
            both(builder.with_container_name(&settings.bucket).build()?)
        }
        RemoteKind::Gcs => {
            let builder = GoogleCloudStorageBuilder::new().with_client_options(client).with_retry(retry);
            let builder = variables.fold(builder, |builder, (name, value)| match name.parse() {
                Ok(key) if name.starts_with("google_") => builder.with_config(key, value),
                _ => builder,
            });
            both(builder.with_bucket_name(&settings.bucket).build()?)
        }
    })
}

fn both(store: impl ObjectStore + Signer) -> StoreAndSigner {
    let store = Arc::new(store);
    (store.clone(), store)
}

/// Returns the client's timeouts. One attempt takes at most a third of the time, so that a hung connection leaves room for
/// two more.
fn client(retry_for: Duration) -> ClientOptions {
    ClientOptions::new()
        .with_timeout_disabled() // a large object may take long, as long as something comes
        .with_connect_timeout(retry_for / 3)
        .with_read_timeout(retry_for / 3)
}

/// Returns the retry policy. It ends before our own timeout, so that the store's last error is reported.
fn retry(retry_for: Duration) -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: (retry_for / 20).min(Duration::from_millis(100)),
            max_backoff: retry_for / 6,
            base: 2.0,
        },
        max_retries: 1000, // the time decides
        retry_timeout: retry_for * 2 / 3,
    }
}

/// Refuses plain HTTP unless it is allowed explicitly.
fn refuse_accidental_http(settings: &RemoteSettings) -> Result<(), StoreError> {
    let prefix = settings.kind.prefix();
    let allow = format!("{prefix}ALLOW_HTTP");
    let is_allowed =
        |(name, value): &(String, Secret<String>)| *name == allow && value.expose().eq_ignore_ascii_case("true");
    let plain = settings.variables.iter().find(|(name, value)| {
        name.to_ascii_uppercase().starts_with(prefix)
            && (name.contains("ENDPOINT") || name.contains("BASE_URL"))
            && value.expose().to_ascii_lowercase().starts_with("http://")
    });
    match plain {
        Some((name, _)) if !settings.variables.iter().any(is_allowed) => Err(StoreError::Misconfigured(
            format!("{name} begins with http://, so mail would travel unencrypted; use https://, or set {allow}=true")
                .into(),
        )),
        _ => Ok(()),
    }
}

/// Error texts of each store for a missing bucket.
const NO_BUCKET: [&str; 4] =
    ["NoSuchBucket", "ContainerNotFound", "InvalidBucketName", "The specified bucket does not exist"];

/// Error texts of each store for a wrong clock.
const WRONG_CLOCK: [&str; 2] = ["RequestTimeTooSkewed", "date header is too old"];

impl RemoteBucket {
    pub fn error(&self, key: &str, e: Error) -> StoreError {
        let text = chain(&e);
        let shown = self.shown();
        if NO_BUCKET.iter().any(|code| text.contains(code)) {
            return StoreError::Misconfigured(
                format!("{shown} does not exist; create it, or correct blobs.url").into(),
            );
        }
        if WRONG_CLOCK.iter().any(|code| text.contains(code)) {
            return StoreError::Refused(
                format!("{shown} refuses requests because this machine's clock is wrong; let it follow a time server")
                    .into(),
            );
        }
        match e {
            Error::NotFound { .. } => StoreError::BlobMissing(key.into()),
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => StoreError::Misconfigured(
                format!(
                    "{shown} denies access ({}); check {} and that they may read, write, list and delete there",
                    reason(&text),
                    self.kind.credentials()
                )
                .into(),
            ),
            _ if text.contains("incorrectly configured region") => StoreError::Misconfigured(
                format!("{shown} is in another region; set AWS_REGION to the region of the bucket").into(),
            ),
            _ if text.contains("status code: 416") => truncated_pack(key), // the range begins beyond the end
            Error::NotImplemented { .. } | Error::NotSupported { .. } => {
                StoreError::Refused(format!("{shown} does not support the operation ({})", reason(&text)).into())
            }
            e => StoreError::BlobsUnavailable(format!("{shown}: {}", reason_of(&e, &text)).into()),
        }
    }

    /// Returns the error of a store that did not answer in time.
    pub fn timed_out(&self) -> StoreError {
        let seconds = self.retry_for.as_secs_f32();
        StoreError::BlobsUnavailable(format!("{}: no answer within {seconds} s", self.shown()).into())
    }

    fn shown(&self) -> String {
        format!("{}://{}", self.kind.scheme(), self.bucket)
    }
}

/// Returns the server's error, or the innermost cause: what is around it describes our own calls.
fn reason_of(e: &Error, text: &str) -> String {
    if text.contains("status code: ") {
        return reason(text);
    }
    let mut innermost: &dyn std::error::Error = e;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    one_line(&innermost.to_string())
}

/// Returns the status of the server's answer, and the code in its body.
fn reason(text: &str) -> String {
    let status = text.split("status code: ").nth(1).and_then(|rest| rest.split(": ").next());
    let code = text.split("<Code>").nth(1).and_then(|rest| rest.split("</Code>").next());
    match (status, code) {
        (Some(status), Some(code)) => one_line(&format!("{status}, {code}")),
        (Some(status), None) => one_line(status),
        (None, _) => one_line(text),
    }
}

fn one_line(text: &str) -> String {
    const MAX_REASON_CHARS: usize = 160;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= MAX_REASON_CHARS {
        text
    } else {
        text.chars().take(MAX_REASON_CHARS).chain("…".chars()).collect()
    }
}

impl Blobs {
    /// Returns a URL under which anybody can fetch the blob for a while, straight from the store. `None` where that is not
    /// possible: in a folder, and for a blob that is compressed or shares its object with others.
    pub async fn presign(&self, place: &BlobLocation, lifetime: Duration) -> Result<Option<String>, StoreError> {
        let BlobBackend::Remote(remote) = &self.backend else { return Ok(None) };
        let is_plain = place.encoding == BlobEncoding::Identity && place.offset == 0 && place.stored_bytes > 0;
        // The size shows whether other blobs are behind it, which the URL would give away as well.
        if !is_plain || self.object_size(&place.object_key).await? != Some(place.stored_bytes) {
            return Ok(None);
        }
        let path: Path = remote.prefix.parts().chain(Path::from(place.object_key.as_str()).parts()).collect();
        let url = self
            .with_timeout("sign", &place.object_key, remote.signer.signed_url(http::Method::GET, &path, lifetime))
            .await?;
        Ok(Some(url.to_string()))
    }
}
