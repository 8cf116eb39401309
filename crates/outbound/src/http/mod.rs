//! HTTP to other people's servers: one way to build a client, with our TLS roots and without redirects. Every request is
//! bounded in time, every response in memory.
//!
//! [`HttpClient`] calls servers that we or the operator name. [`CheckedClient`] sends to URLs that tenants give: it resolves
//! names itself and connects to addresses that the [`AddressPolicy`] allows, and to no others.

mod address_policy;
mod checked_client;
mod client;
mod client_builder;
mod error_mapping;
mod headers;
mod resolver;
mod response;

pub use address_policy::{AddressClass, AddressPolicy, Network, host_address};
pub use checked_client::{CheckedClient, CheckedResponse, RequestFailure};
pub use client::{HttpClient, HttpTimeouts};
pub use client_builder::HttpClientError;
pub use error_mapping::{error_for_status, protocol, unavailable};
pub use headers::retry_after;
pub use reqwest::{Method, RequestBuilder, StatusCode, Url, header};
pub use resolver::{NoAddress, ResolvedAddresses, Resolver, SystemResolver};
pub use response::{ErrorResponse, HttpResponse, MAX_RESPONSE_BYTES, ResponseBody};
