//! API descriptions, and the validation of requests and responses.
//!
//! [`Document`] reads a description in the format of Google's discovery documents, to which `specs/` has converted the
//! others. Nothing here depends on a provider.

/// Includes an API description of `specs/`, which is parsed at the first use.
macro_rules! spec_document {
    ($name:literal) => {
        std::sync::LazyLock::new(|| {
            let text = include_str!(concat!("../../specs/", $name));
            crate::spec::Document::read(text).expect("the documents are part of the program, and a test reads them")
        })
    };
}
pub(crate) use spec_document;

mod check;
mod document;
mod request;
mod shape;
mod violations;

pub use document::{Document, Method};
pub use request::MethodCall;
pub use violations::{Side, Violation, Violations};
