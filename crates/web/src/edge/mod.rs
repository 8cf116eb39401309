//! What every request passes on its way in, and every answer on its way out.

mod address;
mod request_id;

pub use address::ClientAddress;
pub use request_id::RequestId;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use crate::App;

/// The outermost: who sent it, and what it is called.
pub(crate) async fn receive(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let address = address::of(&request);
    let id = RequestId::of(request.headers(), app.engine.store.clock());
    request.extensions_mut().insert(address);
    request.extensions_mut().insert(id.clone());
    let mut response = next.run(request).await;
    id.put(response.headers_mut());
    response
}
