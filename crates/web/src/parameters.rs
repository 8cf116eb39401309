//! Parameters of requests.

use axum::extract::FromRequestParts;

use crate::problem::Problem;

/// Query parameters; like axum's, but a rejection is a [`Problem`].
#[derive(Debug, FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(Problem))]
pub struct Query<T>(pub T);

/// Path parameters; like axum's, but a rejection is a [`Problem`].
#[derive(Debug, FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(Problem))]
pub struct Path<T>(pub T);
