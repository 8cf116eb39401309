//! What providers say their APIs are, and a way to hold requests and answers against it.
//!
//! [`Document`] reads a description in the language of Google's discovery documents, into which `specs/` has put the others
//! too; `check` holds a value against one of its schemas. Nothing here knows a provider.

mod check;
mod document;
mod request;
mod shape;
mod violations;

pub use document::{Document, Method};
pub use request::Call;
pub use violations::{Side, Violation, Violations};
