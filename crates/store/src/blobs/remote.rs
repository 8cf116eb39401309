//! Objects in a bucket: S3 and what speaks like it, Azure Blob Storage, Google Cloud Storage.

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

use super::{Blobs, Encoding, Home, cut_short};
use crate::StoreError;
use crate::error::chain;
use crate::sql::blobs::BlobPlace;

/// Between two tries of a write whose answer was lost.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

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
    /// Before every key; may be empty.
    pub prefix: String,
    /// Endpoint and credentials under the names that the tools of each provider know: `AWS_…`, `AZURE_…`, `GOOGLE_…`.
    /// Those of other providers do no harm.
    pub variables: Vec<(String, Secret<String>)>,
    /// How long one request is tried, all retries included.
    pub retry_for: Duration,
}

/// What is known of a bucket besides its objects.
#[derive(Debug)]
pub(super) struct Remote {
    kind: RemoteKind,
    bucket: String,
    prefix: Path,
    signer: Arc<dyn Signer>,
    pub retry_for: Duration,
}

impl RemoteKind {
    /// As it stands before `://`.
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

    /// What an operator sets to be let in.
    fn credentials(self) -> &'static str {
        match self {
            Self::S3 => "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION",
            Self::Azure => "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
            Self::Gcs => "GOOGLE_APPLICATION_CREDENTIALS",
        }
    }
}

pub(super) fn open(settings: &RemoteSettings) -> Result<(Arc<dyn ObjectStore>, Remote), StoreError> {
    refuse_accidental_http(settings)?;
    // One TLS library for the process; if somebody chose one already, it is this one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (objects, signer) = build(settings).map_err(|e| {
        let credentials = settings.kind.credentials();
        StoreError::Misconfigured(format!("blobs.url cannot be used ({}); set {credentials}", chain(&e)).into())
    })?;
    let prefix = Path::from(settings.prefix.as_str());
    let remote = Remote {
        kind: settings.kind,
        bucket: settings.bucket.clone(),
        prefix: prefix.clone(),
        signer,
        retry_for: settings.retry_for,
    };
    Ok((Arc::new(PrefixStore::new(objects, prefix)), remote))
}

type Built = (Arc<dyn ObjectStore>, Arc<dyn Signer>);

/// Settings of ours come after the environment's where they must win.
fn build(settings: &RemoteSettings) -> object_store::Result<Built> {
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

fn both(store: impl ObjectStore + Signer) -> Built {
    let store = Arc::new(store);
    (store.clone(), store)
}

/// One try takes at most a third of the time, so that a hung connection leaves room for two more.
fn client(retry_for: Duration) -> ClientOptions {
    ClientOptions::new()
        .with_timeout_disabled() // a large object may take long, as long as something comes
        .with_connect_timeout(retry_for / 3)
        .with_read_timeout(retry_for / 3)
}

/// The last word of the store is to be heard before we stop listening.
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

/// Mail over plain HTTP only by somebody's decision.
fn refuse_accidental_http(settings: &RemoteSettings) -> Result<(), StoreError> {
    let ours = |name: &str| name.to_ascii_uppercase().starts_with(settings.kind.prefix());
    let is_http = |value: &str| value.to_ascii_lowercase().starts_with("http://");
    let allow = format!("{}ALLOW_HTTP", settings.kind.prefix());
    let is_allowed =
        |(name, value): &(String, Secret<String>)| *name == allow && value.expose().eq_ignore_ascii_case("true");
    let plain = settings.variables.iter().find(|(name, value)| {
        ours(name) && (name.contains("ENDPOINT") || name.contains("BASE_URL")) && is_http(value.expose())
    });
    match plain {
        Some((name, _)) if !settings.variables.iter().any(is_allowed) => Err(StoreError::Misconfigured(
            format!("{name} begins with http://, so mail would travel unencrypted; use https://, or set {allow}=true")
                .into(),
        )),
        _ => Ok(()),
    }
}

/// A bucket that is not there, in the words of each store.
const NO_BUCKET: [&str; 4] =
    ["NoSuchBucket", "ContainerNotFound", "InvalidBucketName", "The specified bucket does not exist"];

/// A clock that is wrong, in the words of each store.
const WRONG_CLOCK: [&str; 2] = ["RequestTimeTooSkewed", "date header is too old"];

impl Remote {
    pub fn error(&self, key: &str, e: Error) -> StoreError {
        let text = chain(&e);
        let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
        let shown = self.shown();
        if says(&NO_BUCKET) {
            return StoreError::Misconfigured(format!("{shown} does not exist; make it, or correct blobs.url").into());
        }
        if says(&WRONG_CLOCK) {
            return StoreError::Refused(
                format!("{shown} refuses requests because this machine's clock is wrong; let it follow a time server")
                    .into(),
            );
        }
        match e {
            Error::NotFound { .. } => StoreError::BlobMissing(key.into()),
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => StoreError::Misconfigured(
                format!(
                    "{shown} does not let us in ({}); check {} and that they may read, write, list and delete there",
                    reason(&text),
                    self.kind.credentials()
                )
                .into(),
            ),
            _ if text.contains("incorrectly configured region") => StoreError::Misconfigured(
                format!("{shown} is in another region; set AWS_REGION to the region of the bucket").into(),
            ),
            _ if text.contains("status code: 416") => cut_short(key), // the range begins beyond the end
            Error::NotImplemented { .. } | Error::NotSupported { .. } => {
                StoreError::Refused(format!("{shown} cannot do what is asked of it ({})", reason(&text)).into())
            }
            e => StoreError::BlobsUnavailable(format!("{shown}: {}", reason_of(&e, &text)).into()),
        }
    }

    /// It did not answer, and did not refuse either.
    pub fn silent(&self) -> StoreError {
        let seconds = self.retry_for.as_secs_f32();
        StoreError::BlobsUnavailable(format!("{}: no answer within {seconds} s", self.shown()).into())
    }

    fn shown(&self) -> String {
        format!("{}://{}", self.kind.scheme(), self.bucket)
    }
}

/// What the server said, or the innermost cause: what is around it tells of our own calls.
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

/// The status that a server answered with, and the code in its body.
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
    const LONGEST: usize = 160;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= LONGEST { text } else { text.chars().take(LONGEST).chain("…".chars()).collect() }
}

impl Blobs {
    /// A URL under which anybody can fetch the blob for a while, straight from the store. `None` where that is not possible:
    /// in a folder, and for a blob that is compressed or shares its object with others.
    pub async fn presign(&self, place: &BlobPlace, lifetime: Duration) -> Result<Option<String>, StoreError> {
        let Home::Remote(remote) = &self.home else { return Ok(None) };
        let is_plain = place.encoding == Encoding::Identity && place.offset == 0 && place.stored_bytes > 0;
        // The size tells whether others are behind it, which the URL would give away as well.
        if !is_plain || self.object_size(&place.object_key).await? != Some(place.stored_bytes) {
            return Ok(None);
        }
        let path: Path = remote.prefix.parts().chain(Path::from(place.object_key.as_str()).parts()).collect();
        let url = self.within(&place.object_key, remote.signer.signed_url(http::Method::GET, &path, lifetime)).await?;
        Ok(Some(url.to_string()))
    }
}
