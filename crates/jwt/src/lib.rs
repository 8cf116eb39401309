//! JSON Web Tokens that others sign and send us: their signature, checked by the issuer's published keys, and the claims
//! that every reader checks. What else a token must say is up to the caller: engine for callers of the API, a provider's
//! folder for its pushes.

mod claims;
mod issuer;
mod safe_url;
mod signed_token;

pub use claims::{ExpectedClaims, is_in_future};
pub use issuer::{Documents, Issuer, KeySetSource};
pub use safe_url::is_safe_url;
pub use signed_token::{Algorithm, TokenRefusal};
