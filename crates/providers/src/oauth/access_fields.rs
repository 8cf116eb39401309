//! The fields of mailboxes that are opened by consent: of their owner, who granted a refresh token, or of their
//! organisation, which has authorised our app.

use domain::{ConnectionField, ConnectionInput, FieldKind, FieldOption, InvalidField, NewConnection};
use serde_json::{Map, Value};

pub const REFRESH_TOKEN: ConnectionField = ConnectionField {
    help: Some("Refresh token from the owner's consent, for Gmail and Outlook."),
    ..ConnectionField::new(
        "refresh_token",
        FieldKind::Secret,
        FieldOption {
            noun: "a refresh token",
            replacement_help: Some("File with a new refresh token, for Gmail and Outlook"),
            required_unless: Some("app_only"),
            conflicts_with: &["app_only"],
            ..FieldOption::new("refresh-token-file", "FILE", "File with the refresh token from the owner's consent")
        },
    )
};

pub const APP_ONLY: ConnectionField = ConnectionField {
    help: Some(
        "Access without the owner's consent, by this server's own app: at Gmail by domain-wide delegation to\n`providers.google.service_account_file`, at Outlook by admin consent to `providers.microsoft.client_id`. Operator only.",
    ),
    is_changeable: false,
    operator_only: Some("app_only requires the operator's key: it gives access to any mailbox of a domain"),
    ..ConnectionField::new(
        "app_only",
        FieldKind::Bool,
        FieldOption::new("app-only", "", "Access by this server's own app, which the organisation has authorised"),
    )
};

/// Makes a connection of either the refresh token of the owner's consent, or access by our own app. `start` is where an
/// owner consents.
pub fn connect(input: &ConnectionInput, start: &str) -> Result<NewConnection, InvalidField> {
    let is_app_only = input.is_set(&APP_ONLY);
    let secret = input.secret(&REFRESH_TOKEN).cloned();
    if secret.is_some() && is_app_only {
        return Err(InvalidField::new(APP_ONLY.name, "cannot be combined with {refresh_token}"));
    }
    if secret.is_none() && !is_app_only {
        let why = format!("is required, unless {{app_only}} is set; an owner connects a mailbox by {start}");
        return Err(InvalidField::new(REFRESH_TOKEN.name, why));
    }
    let mut settings = Map::new();
    if is_app_only {
        settings.insert(APP_ONLY.name.to_owned(), true.into());
    }
    Ok(NewConnection { settings: settings.into(), secret, missing: None })
}

/// Gives a mailbox another consent, in place of whatever opened it before.
pub fn change(before: &Value, input: &ConnectionInput) -> NewConnection {
    let secret = input.secret(&REFRESH_TOKEN).cloned();
    let settings = if secret.is_some() || before.is_null() { Map::new().into() } else { before.clone() };
    NewConnection { settings, secret, missing: None }
}

pub fn secret_field(_: &Value) -> &'static str {
    REFRESH_TOKEN.name
}
