//! Streams large blobs: a few pieces are in memory at a time, whatever the size.
//!
//! Reading, hashing and compressing happen on a blocking thread, requests on the async ones; a channel that holds one piece
//! joins the two, so the faster side waits for the slower.

mod pipe;
mod read;
mod write;

pub use read::ReadError;
