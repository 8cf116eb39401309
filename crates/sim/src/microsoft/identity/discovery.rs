//! What programs read about the identity platform before they ask it anything.

use serde_json::json;

use super::super::directory::Tenant;
use super::super::world::World;
use super::error::Wrong;
use crate::answer::Answer;

pub fn configuration(world: &World, tenant: &str) -> Answer {
    let Some(known) = world.tenant(tenant) else { return unknown(tenant).answer(world) };
    let url = world.url();
    let issuer = match known {
        Tenant::Common | Tenant::Organizations => "{tenantid}".to_owned(),
        Tenant::Consumers => super::super::directory::CONSUMERS.to_owned(),
        Tenant::One(id) => id,
    };
    Answer::json(json!({
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

pub fn keys(world: &World, tenant: &str) -> Answer {
    match world.tenant(tenant) {
        Some(_) => Answer::json(world.identity.published()),
        None => unknown(tenant).answer(world),
    }
}

pub fn unknown(tenant: &str) -> Wrong {
    let message = format!(
        "Tenant '{tenant}' not found. Check to make sure you have the correct tenant ID and are signing into the correct \
         cloud."
    );
    Wrong::request(90_002, message)
}
