//! What a backup knows of a snapshot of the database.

/// Called with the progress of a copy: bytes done, and bytes in all.
pub type ProgressCallback = dyn Fn(u64, u64) + Send + Sync;

/// The contents of a snapshot, read from the file itself or from the transaction that it was taken in.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub schema_version: u32,
    /// When the database got its first schema, as stored: two that differ in this are not the same Mailroom.
    pub origin: String,
    /// The objects that the rows of this snapshot refer to.
    pub packs: Vec<LivePack>,
}

#[derive(Debug, Clone)]
pub struct LivePack {
    pub object_key: String,
    pub size_bytes: u64,
}
