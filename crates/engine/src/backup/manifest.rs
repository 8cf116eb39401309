//! What a finished backup holds. Written last: a folder with a manifest is a whole backup, one without is not yet.

use domain::Sha256;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Raised when an older program could not restore what a newer one keeps.
pub const FORMAT: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub format: u32,
    pub made_at: Timestamp,
    pub schema_version: u32,
    /// Tells one Mailroom from another; see [`store::snapshot::Snapshot::origin`].
    pub origin: String,
    pub database: DatabaseFile,
    pub object_bytes: u64,
    pub objects: Vec<Object>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseFile {
    pub kind: Kind,
    pub file: String,
    pub size_bytes: u64,
    pub sha256: Sha256,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Sqlite,
    Postgres,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Object {
    pub key: String,
    pub size_bytes: u64,
    pub sha256: Sha256,
}

/// Why a manifest cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub enum Unusable {
    Newer,
    Damaged,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Self::Sqlite => "db",
            Self::Postgres => "dump",
        }
    }

    /// By its content, so that the database of the last finished backup stays beside that of the next.
    pub fn file_name(self, sha256: &Sha256) -> String {
        format!("mailroom-{}.{}", &sha256.hex()[..16], self.extension())
    }
}

impl Manifest {
    pub fn parse(text: &str) -> Result<Self, Unusable> {
        #[derive(Deserialize)]
        struct Header {
            format: u32,
        }
        let header: Header = serde_json::from_str(text).map_err(|_| Unusable::Damaged)?;
        if header.format > FORMAT {
            return Err(Unusable::Newer);
        }
        let manifest: Self = serde_json::from_str(text).map_err(|_| Unusable::Damaged)?;
        // Names come from a file that somebody may have changed; none may lead out of the folder.
        let is_plain = manifest.objects.iter().all(|object| is_key(&object.key));
        let is_ours = manifest.database.file == manifest.database.kind.file_name(&manifest.database.sha256);
        if is_plain && is_ours { Ok(manifest) } else { Err(Unusable::Damaged) }
    }
}

fn is_key(key: &str) -> bool {
    let is_step = |step: &str| !step.is_empty() && step.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    key.split('/').all(is_step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(key: &str) -> Manifest {
        let sha256 = Sha256::of(b"database");
        Manifest {
            format: FORMAT,
            made_at: Timestamp::UNIX_EPOCH,
            schema_version: 1,
            origin: "2024".into(),
            database: DatabaseFile { kind: Kind::Sqlite, file: Kind::Sqlite.file_name(&sha256), size_bytes: 8, sha256 },
            object_bytes: 3,
            objects: vec![Object { key: key.into(), size_bytes: 3, sha256: Sha256::of(b"abc") }],
        }
    }

    fn parse(manifest: &Manifest) -> Result<Manifest, Unusable> {
        Manifest::parse(&serde_json::to_string(manifest).unwrap())
    }

    #[test]
    fn no_name_in_a_manifest_leads_out_of_the_folder() {
        assert!(parse(&manifest("0190-aa/packs/0f/0190-bb")).is_ok());
        for key in ["../x", "/etc/passwd", "a//b", "a/./b", "a/..", "", "a\\b", "a/\0"] {
            assert_eq!(parse(&manifest(key)).unwrap_err(), Unusable::Damaged, "{key}");
        }
        let mut elsewhere = manifest("a");
        elsewhere.database.file = "../mailroom.db".into();
        assert_eq!(parse(&elsewhere).unwrap_err(), Unusable::Damaged);
    }

    #[test]
    fn a_newer_manifest_is_told_from_a_damaged_one() {
        let newer = r#"{"format": 2, "something": "else"}"#;
        assert_eq!(Manifest::parse(newer).unwrap_err(), Unusable::Newer);
        for damaged in ["", "{", "[]", r#"{"format": 1}"#] {
            assert_eq!(Manifest::parse(damaged).unwrap_err(), Unusable::Damaged, "{damaged}");
        }
    }
}
