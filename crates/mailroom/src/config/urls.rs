//! Where data lives, and how to say it without telling the password.

use std::path::PathBuf;

use domain::Secret;
use store::blobs::RemoteKind;

/// Where the rows are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    Sqlite(PathBuf),
    /// The whole URL as the driver takes it, password included.
    Postgres(Secret<String>),
}

/// Where the blobs are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlobsUrl {
    File(PathBuf),
    /// A bucket, or a container, and what comes before every key in it.
    Remote {
        kind: RemoteKind,
        bucket: String,
        prefix: String,
    },
}

impl DatabaseUrl {
    /// The error completes the sentence "`database.url` …" and never repeats the URL, which may hold a password.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        const WANTS: &str = "wants sqlite://PATH or postgres://USER:PASSWORD@HOST:PORT/NAME";
        let (scheme, rest) = split(url).ok_or_else(|| format!("{WANTS}, and this has no `scheme://`"))?;
        match scheme.as_str() {
            "sqlite" if rest == ":memory:" => Err("wants a file: mail kept in memory would be lost".to_owned()),
            "sqlite" if rest.contains('?') => Err("takes a path after sqlite://, and no `?` parameters".to_owned()),
            "sqlite" if rest.is_empty() || rest.ends_with('/') => {
                Err("needs the path of a file after sqlite://".to_owned())
            }
            "sqlite" => Ok(Self::Sqlite(PathBuf::from(rest))),
            "postgres" | "postgresql" if rest.is_empty() => Err("needs a host after postgres://".to_owned()),
            "postgres" | "postgresql" => Ok(Self::Postgres(Secret::new(url.to_owned()))),
            other => Err(format!("{WANTS}, not {other}://")),
        }
    }

    /// For people: no password.
    pub fn shown(&self) -> String {
        match self {
            Self::Sqlite(path) => format!("sqlite://{}", path.display()),
            Self::Postgres(url) => without_password(url.expose()),
        }
    }
}

impl BlobsUrl {
    /// The error completes the sentence "`blobs.url` …" and never repeats the URL, in which somebody may have put a key.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        const WANTS: &str = "wants file://PATH, s3://BUCKET/PREFIX, az://CONTAINER/PREFIX or gs://BUCKET/PREFIX (the prefix may be left out)";
        let (scheme, rest) = split(url).ok_or_else(|| format!("{WANTS}, and this has no `scheme://`"))?;
        match scheme.as_str() {
            "file" if rest.is_empty() => Err("needs the path of a folder after file://".to_owned()),
            "file" => Ok(Self::File(PathBuf::from(rest))),
            "s3" => remote(RemoteKind::S3, rest),
            "az" => remote(RemoteKind::Azure, rest),
            "gs" => remote(RemoteKind::Gcs, rest),
            other => Err(format!("{WANTS}, not {other}://")),
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
            "names a bucket and a prefix after {scheme}://, nothing else; endpoint and credentials go into environment variables"
        ));
    }
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(is_name) {
        return Err(format!("needs a name of 3 to 63 letters, digits, `-`, `_` and `.` after {scheme}://"));
    }
    let prefix = prefix.trim_end_matches('/');
    if !prefix.is_empty()
        && !prefix.split('/').all(|step| step != "." && step != ".." && !step.is_empty() && step.chars().all(is_name))
    {
        return Err("takes a prefix of letters, digits, `-`, `_`, `.` and `/`".to_owned());
    }
    Ok(BlobsUrl::Remote { kind, bucket: bucket.to_owned(), prefix: prefix.to_owned() })
}

/// A scheme is letters, digits, `+`, `-` and `.`: anything else before `://` may be part of a secret and is not repeated.
fn split(url: &str) -> Option<(String, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let plain = !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    plain.then(|| (scheme.to_ascii_lowercase(), rest))
}

/// Hides `user:PASSWORD@` and `?password=PASSWORD`. Passwords pasted without escaping hold `@`, `/` and `?` themselves, so
/// everything from the first `:` to the last `@` goes: hiding a little too much is the better mistake.
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
    fn sqlite_paths_may_be_relative_or_absolute() {
        assert_eq!(DatabaseUrl::parse("sqlite://a/b.db"), Ok(DatabaseUrl::Sqlite("a/b.db".into())));
        assert_eq!(DatabaseUrl::parse("sqlite:///var/b.db"), Ok(DatabaseUrl::Sqlite("/var/b.db".into())));
    }

    #[test]
    fn both_spellings_of_postgres_are_taken_as_they_are() {
        for url in ["postgres://h/db", "postgresql://u:p@h:1/db"] {
            assert_eq!(DatabaseUrl::parse(url), Ok(DatabaseUrl::Postgres(Secret::new(url.to_owned()))));
        }
    }

    #[test]
    fn a_database_that_cannot_keep_mail_is_refused() {
        for url in ["sqlite://", "sqlite://:memory:", "sqlite://a.db?mode=ro", "sqlite://folder/", "postgres://"] {
            assert!(DatabaseUrl::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_refused_url_is_not_repeated() {
        for url in ["mysql://u:hunter2@h/db", "host=h password=hunter2", "user hunter2://x", "hunter2"] {
            let error = DatabaseUrl::parse(url).unwrap_err();

            assert!(!error.contains("hunter2"), "{error}");
            assert!(error.contains("sqlite://PATH"), "{error}");
        }
    }

    #[test]
    fn blobs_lie_in_a_folder_or_in_a_bucket_below_a_prefix() {
        let remote = |kind, prefix: &str| {
            Ok(BlobsUrl::Remote { kind, bucket: "mail.acme-1".to_owned(), prefix: prefix.to_owned() })
        };
        assert_eq!(BlobsUrl::parse("file:///b"), Ok(BlobsUrl::File("/b".into())));
        assert_eq!(BlobsUrl::parse("s3://mail.acme-1"), remote(RemoteKind::S3, ""));
        assert_eq!(BlobsUrl::parse("S3://mail.acme-1/"), remote(RemoteKind::S3, ""));
        assert_eq!(BlobsUrl::parse("az://mail.acme-1/a/b/"), remote(RemoteKind::Azure, "a/b"));
        assert_eq!(BlobsUrl::parse("gs://mail.acme-1/x"), remote(RemoteKind::Gcs, "x"));
        assert_eq!(BlobsUrl::parse("az://mail.acme-1/a/b/").unwrap().shown(), "az://mail.acme-1/a/b");
    }

    #[test]
    fn a_bucket_that_cannot_be_is_refused_without_repeating_it() {
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
    fn passwords_are_hidden_wherever_a_url_can_hold_them() {
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
