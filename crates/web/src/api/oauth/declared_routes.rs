//! The paths of consent under the names that are registered in the providers' consoles. Each is the generic route with its
//! provider filled in, in the router and in the description.

use axum::Router;
use axum::extract::State;
use axum::http::request::Parts;
use axum::routing::get;
use utoipa::openapi::path::{HttpMethod, ParameterIn};
use utoipa::openapi::{OpenApi as Description, PathItem, RefOr};

use super::callback::{self, ConsentCallbackParams};
use super::site::ConsentSite;
use super::start::{self, StartConsentParams};
use crate::App;
use crate::api::Query;

const GENERIC_START: &str = "/v1/oauth/{provider}/start";
const GENERIC_CALLBACK: &str = "/v1/oauth/{provider}/callback";

/// Adds the routes of each provider with consent, and their descriptions.
pub fn add_declared_routes(app: &App, mut routes: Router<App>, description: &mut Description) -> Router<App> {
    for site in ConsentSite::list(app.providers) {
        let start =
            get(move |State(app): State<App>, Query(params): Query<StartConsentParams>, parts: Parts| async move {
                start::start_at(&app, site, params, parts).await
            });
        let callback =
            get(move |State(app): State<App>, Query(params): Query<ConsentCallbackParams>, parts: Parts| async move {
                callback::end_at(&app, site, params, &parts).await
            });
        let (start_path, callback_path) = (site.consent.start_path(), site.consent.callback_path());
        describe(description, GENERIC_START, &start_path, &format!("start_{}_consent", site.consent.route), site);
        describe(description, GENERIC_CALLBACK, &callback_path, &format!("end_{}_consent", site.consent.route), site);
        routes = routes.route(&start_path, start).route(&callback_path, callback);
    }
    routes
}

/// Describes a path as the generic one whose provider is this one.
fn describe(description: &mut Description, generic: &str, path: &str, operation_id: &str, site: ConsentSite) {
    let Some(mut operation) = description.paths.paths.get(generic).and_then(|item| item.get.clone()) else { return };
    operation.operation_id = Some(operation_id.to_owned());
    if let Some(parameters) = &mut operation.parameters {
        parameters.retain(|parameter| !matches!(parameter, RefOr::T(it) if it.parameter_in == ParameterIn::Path));
    }
    operation.summary = operation.summary.map(|text| format!("{}: {text}", site.consent.name));
    description.paths.paths.insert(path.to_owned(), PathItem::new(HttpMethod::Get, operation));
}
