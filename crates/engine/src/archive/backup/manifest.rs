//! The manifest of a backup. Written last: a folder with a manifest is a complete backup.

use domain::Sha256;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The format version, raised when an older program could not restore a newer backup.
pub const FORMAT: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub format: u32,
    pub made_at: Timestamp,
    pub schema_version: u32,
    /// Identifies the installation; see [`store::snapshot::Snapshot::origin`].
    pub origin: String,
    pub database: DatabaseFile,
    pub object_bytes: u64,
    pub objects: Vec<ManifestObject>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseFile {
    pub kind: DatabaseKind,
    pub file: String,
    pub size_bytes: u64,
    pub sha256: Sha256,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DatabaseKind {
    Sqlite,
    Postgres,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestObject {
    pub key: String,
    pub size_bytes: u64,
    pub sha256: Sha256,
}

/// Why a manifest cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub enum ManifestError {
    Newer,
    Damaged,
}

impl DatabaseKind {
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

    /// Names a file by its content, so that the database of the last complete backup stays beside that of the next.
    pub fn file_name(self, sha256: &Sha256) -> String {
        format!("mailroom-{}.{}", &sha256.hex()[..16], self.extension())
    }
}

impl Manifest {
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        struct Header {
            format: u32,
        }
        let header: Header = serde_json::from_str(text).map_err(|_| ManifestError::Damaged)?;
        if header.format > FORMAT {
            return Err(ManifestError::Newer);
        }
        let manifest: Self = serde_json::from_str(text).map_err(|_| ManifestError::Damaged)?;
        // The names come from a file that may have been altered; none may lead out of the folder.
        let is_plain = manifest.objects.iter().all(|object| is_key(&object.key));
        let is_ours = manifest.database.file == manifest.database.kind.file_name(&manifest.database.sha256);
        if is_plain && is_ours { Ok(manifest) } else { Err(ManifestError::Damaged) }
    }
}

fn is_key(key: &str) -> bool {
    key.split('/').all(|step| !step.is_empty() && step.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)))
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
            database: DatabaseFile {
                kind: DatabaseKind::Sqlite,
                file: DatabaseKind::Sqlite.file_name(&sha256),
                size_bytes: 8,
                sha256,
            },
            object_bytes: 3,
            objects: vec![ManifestObject { key: key.into(), size_bytes: 3, sha256: Sha256::of(b"abc") }],
        }
    }

    fn parse(manifest: &Manifest) -> Result<Manifest, ManifestError> {
        Manifest::parse(&serde_json::to_string(manifest).unwrap())
    }

    #[test]
    fn manifest_names_stay_within_the_folder() {
        assert!(parse(&manifest("0190-aa/packs/0f/0190-bb")).is_ok());
        for key in ["../x", "/etc/passwd", "a//b", "a/./b", "a/..", "", "a\\b", "a/\0"] {
            assert_eq!(parse(&manifest(key)).unwrap_err(), ManifestError::Damaged, "{key}");
        }
        let mut elsewhere = manifest("a");
        elsewhere.database.file = "../mailroom.db".into();
        assert_eq!(parse(&elsewhere).unwrap_err(), ManifestError::Damaged);
    }

    #[test]
    fn newer_manifest_is_not_taken_for_a_damaged_one() {
        let newer = r#"{"format": 2, "something": "else"}"#;
        assert_eq!(Manifest::parse(newer).unwrap_err(), ManifestError::Newer);
        for damaged in ["", "{", "[]", r#"{"format": 1}"#] {
            assert_eq!(Manifest::parse(damaged).unwrap_err(), ManifestError::Damaged, "{damaged}");
        }
    }
}
