//! What the crate makes of whole files.

mod fixtures;
mod large;
mod mutations;
