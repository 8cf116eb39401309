//! OpenID discovery: configuration and keys.

use serde_json::json;

use super::super::directory::Authority;
use super::super::world::MicrosoftWorld;
use super::error::IdentityError;
use crate::response::SimResponse;

pub fn configuration(world: &MicrosoftWorld, tenant: &str) -> SimResponse {
    let Some(known) = world.tenant(tenant) else { return unknown_tenant(tenant).answer(world) };
    let url = world.url();
    let issuer = match known {
        Authority::Common | Authority::Organizations => "{tenantid}".to_owned(),
        Authority::Consumers => super::super::directory::CONSUMERS.to_owned(),
        Authority::One(id) => id,
    };
    SimResponse::json(json!({
        "issuer": format!("{url}/{issuer}/v2.0"),
        "authorization_endpoint": format!("{url}/{tenant}/oauth2/v2.0/authorize"),
        "token_endpoint": format!("{url}/{tenant}/oauth2/v2.0/token"),
        "jwks_uri": format!("{url}/{tenant}/discovery/v2.0/keys"),
        "response_modes_supported": ["query", "form_post"],
        "response_types_supported": ["code"],
        "subject_types_supported": ["pairwise"],
        "id_token_signing_alg_values_supported": ["RS256"],
        "scopes_supported": ["openid", "profile", "email", "offline_access"],
        "token_endpoint_auth_methods_supported": ["client_secret_post", "client_secret_basic", "private_key_jwt"],
        "claims_supported": ["sub", "iss", "aud", "exp", "iat", "nonce", "preferred_username", "name", "tid", "ver", "email"],
    }))
}

pub fn keys(world: &MicrosoftWorld, tenant: &str) -> SimResponse {
    match world.tenant(tenant) {
        Some(_) => SimResponse::json(world.provider.identity.published_keys()),
        None => unknown_tenant(tenant).answer(world),
    }
}

pub fn unknown_tenant(tenant: &str) -> IdentityError {
    let message = format!(
        "Tenant '{tenant}' not found. Check to make sure you have the correct tenant ID and are signing into the correct \
         cloud."
    );
    IdentityError::request(90_002, message)
}
