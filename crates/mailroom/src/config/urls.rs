//! URLs of the database and the blob store, and how to show them without their passwords.

use std::path::PathBuf;

use domain::Secret;
use store::blobs::RemoteKind;

/// URL of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    Sqlite(PathBuf),
    /// The whole URL for the driver, including the password.
    Postgres(Secret<String>),
}

/// URL of the blob store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlobsUrl {
    File(PathBuf),
    /// A bucket or container, and the prefix of all keys in it.
    Remote {
        kind: RemoteKind,
        bucket: String,
        prefix: String,
    },
}

impl DatabaseUrl {
    /// Parses a URL. The error completes "`database.url` …" and never repeats the URL, which may contain a password.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        const EXPECTED: &str = "must be sqlite://PATH or postgres://USER:PASSWORD@HOST:PORT/NAME";
        let (scheme, rest) = split(url).ok_or_else(|| format!("{EXPECTED}; the scheme is missing"))?;
        match scheme.as_str() {
            "sqlite" if rest == ":memory:" => Err("must be a file: mail in memory would be lost".to_owned()),
            "sqlite" if rest.contains('?') => Err("must have a path after sqlite:// and no `?` parameters".to_owned()),
            "sqlite" if rest.is_empty() || rest.ends_with('/') => {
                Err("must have the path of a file after sqlite://".to_owned())
            }
            "sqlite" => Ok(Self::Sqlite(PathBuf::from(rest))),
            "postgres" | "postgresql" if rest.is_empty() => Err("must have a host after postgres://".to_owned()),
            "postgres" | "postgresql" => Ok(Self::Postgres(Secret::new(url.to_owned()))),
            other => Err(format!("{EXPECTED}, not {other}://")),
        }
    }

    /// Formats the URL without its password.
    pub fn shown(&self) -> String {
        match self {
            Self::Sqlite(path) => format!("sqlite://{}", path.display()),
            Self::Postgres(url) => without_password(url.expose()),
        }
    }
}

impl BlobsUrl {
    /// Parses a URL. The error completes "`blobs.url` …" and never repeats the URL, which may contain a key.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        const EXPECTED: &str = "must be file://PATH, s3://BUCKET/PREFIX, az://CONTAINER/PREFIX or gs://BUCKET/PREFIX (the prefix is optional)";
        let (scheme, rest) = split(url).ok_or_else(|| format!("{EXPECTED}; the scheme is missing"))?;
        match scheme.as_str() {
            "file" if rest.is_empty() => Err("must have the path of a folder after file://".to_owned()),
            "file" => Ok(Self::File(PathBuf::from(rest))),
            "s3" => remote(RemoteKind::S3, rest),
            "az" => remote(RemoteKind::Azure, rest),
            "gs" => remote(RemoteKind::Gcs, rest),
            other => Err(format!("{EXPECTED}, not {other}://")),
        }
    }

    pub fn shown(&self) -> String {
        match self {
            Self::File(path) => format!("file://{}", path.display()),
            Self::Remote { kind, bucket, prefix } if prefix.is_empty() => format!("{}://{bucket}", kind.scheme()),
            Self::Remote { kind, bucket, prefix } => format!("{}://{bucket}/{prefix}", kind.scheme()),
        }
    }
}

fn remote(kind: RemoteKind, rest: &str) -> Result<BlobsUrl, String> {
    let scheme = kind.scheme();
    if rest.contains(['@', '?']) {
        return Err(format!(
            "must have only a bucket and a prefix after {scheme}://; endpoint and credentials go into environment variables"
        ));
    }
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(is_name_character) {
        return Err(format!("must have a name of 3 to 63 letters, digits, `-`, `_` and `.` after {scheme}://"));
    }
    let prefix = prefix.trim_end_matches('/');
    if !prefix.is_empty()
        && !prefix
            .split('/')
            .all(|step| step != "." && step != ".." && !step.is_empty() && step.chars().all(is_name_character))
    {
        return Err("must have a prefix of letters, digits, `-`, `_`, `.` and `/`".to_owned());
    }
    Ok(BlobsUrl::Remote { kind, bucket: bucket.to_owned(), prefix: prefix.to_owned() })
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

/// Splits off the scheme. A scheme is letters, digits, `+`, `-` and `.`: anything else before `://` may be part of a secret and is not repeated in errors.
fn split(url: &str) -> Option<(String, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let plain = !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    plain.then(|| (scheme.to_ascii_lowercase(), rest))
}

/// Hides `user:PASSWORD@` and `?password=PASSWORD`. Unescaped passwords contain `@`, `/` and `?` themselves, so everything
/// from the first `:` to the last `@` is hidden: rather too much than too little.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "***".to_owned() };
    let rest = match rest.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((name, _)) => format!("{name}:***@{host}"),
            None => format!("{user}@{host}"),
        },
        None => rest.to_owned(),
    };
    let Some((address, parameters)) = rest.split_once('?') else { return format!("{scheme}://{rest}") };
    let parameters: Vec<String> = parameters.split('&').map(hide_parameter).collect();
    format!("{scheme}://{address}?{}", parameters.join("&"))
}

fn hide_parameter(parameter: &str) -> String {
    match parameter.split_once('=') {
        Some((name, _)) if name.to_ascii_lowercase().contains("password") => format!("{name}=***"),
        _ => parameter.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlite_paths_are_relative_or_absolute() {
        assert_eq!(DatabaseUrl::parse("sqlite://a/b.db"), Ok(DatabaseUrl::Sqlite("a/b.db".into())));
        assert_eq!(DatabaseUrl::parse("sqlite:///var/b.db"), Ok(DatabaseUrl::Sqlite("/var/b.db".into())));
    }

    #[test]
    fn both_postgres_schemes_are_accepted() {
        for url in ["postgres://h/db", "postgresql://u:p@h:1/db"] {
            assert_eq!(DatabaseUrl::parse(url), Ok(DatabaseUrl::Postgres(Secret::new(url.to_owned()))));
        }
    }

    #[test]
    fn unusable_database_urls_are_refused() {
        for url in ["sqlite://", "sqlite://:memory:", "sqlite://a.db?mode=ro", "sqlite://folder/", "postgres://"] {
            assert!(DatabaseUrl::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn refused_url_is_not_repeated() {
        for url in ["mysql://u:hunter2@h/db", "host=h password=hunter2", "user hunter2://x", "hunter2"] {
            let error = DatabaseUrl::parse(url).unwrap_err();

            assert!(!error.contains("hunter2"), "{error}");
            assert!(error.contains("sqlite://PATH"), "{error}");
        }
    }

    fn bucket(kind: RemoteKind, prefix: &str) -> Result<BlobsUrl, String> {
        Ok(BlobsUrl::Remote { kind, bucket: "mail.acme-1".to_owned(), prefix: prefix.to_owned() })
    }

    #[test]
    fn blobs_are_in_a_folder_or_a_bucket() {
        assert_eq!(BlobsUrl::parse("file:///b"), Ok(BlobsUrl::File("/b".into())));
        assert_eq!(BlobsUrl::parse("s3://mail.acme-1"), bucket(RemoteKind::S3, ""));
        assert_eq!(BlobsUrl::parse("S3://mail.acme-1/"), bucket(RemoteKind::S3, ""));
        assert_eq!(BlobsUrl::parse("az://mail.acme-1/a/b/"), bucket(RemoteKind::Azure, "a/b"));
        assert_eq!(BlobsUrl::parse("gs://mail.acme-1/x"), bucket(RemoteKind::Gcs, "x"));
        assert_eq!(BlobsUrl::parse("az://mail.acme-1/a/b/").unwrap().shown(), "az://mail.acme-1/a/b");
    }

    #[test]
    fn refused_bucket_is_not_repeated() {
        for url in [
            "s3://",
            "s3:///x",
            "s3://a",
            "s3://KEY:hunter2@bucket/x",
            "s3://bucket?key=hunter2",
            "gs://bucket/../hunter2",
            "az://bucket//hunter2",
            "s3://buck et",
            "ftp://hunter2",
            "hunter2",
        ] {
            let error = BlobsUrl::parse(url).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn passwords_in_urls_are_hidden() {
        for (url, shown) in [
            ("postgres://u:hunter2@h:5432/db", "postgres://u:***@h:5432/db"),
            ("postgres://u:hun@ter/2?@h/db", "postgres://u:***@h/db"),
            ("postgres://h/db?user=u&password=hunter2", "postgres://h/db?user=u&password=***"),
            ("postgres://u@h/db?sslmode=require", "postgres://u@h/db?sslmode=require"),
            ("postgres://h:5432/db", "postgres://h:5432/db"),
        ] {
            let parsed = DatabaseUrl::parse(url).unwrap();

            assert_eq!(parsed.shown(), shown);
            assert_eq!(format!("{parsed:?}"), "Postgres(***)");
        }
    }
}
