//! What Outlook declares to the rest of the product.

use domain::{
    ConnectionDeclaration, ConnectionField, ConnectionInput, ConsentDeclaration, DirectoryDeclaration,
    DirectoryLocation, FieldKind, FieldOption, InvalidField, NewConnection, Provider, ProviderDeclaration,
    PushDeclaration,
};
use serde_json::Value;

use super::app_settings::is_directory;
use crate::oauth::access_fields::{self, APP_ONLY, REFRESH_TOKEN};

pub static DECLARATION: ProviderDeclaration = ProviderDeclaration {
    provider: Provider::Outlook,
    connection: ConnectionDeclaration {
        fields: &[&REFRESH_TOKEN, &APP_ONLY, &DIRECTORY],
        has_byte_quota: false,
        about: "A mailbox at Microsoft, with the consent of its owner or its directory",
        add_help: "Examples:\n  mailroom mailbox add outlook --tenant acme --address me@acme.test --refresh-token-file token\n  mailroom mailbox add outlook --tenant acme --address me@acme.test --app-only --directory acme.onmicrosoft.com\n\nTo have its owner connect it in a browser, use `mailroom mailbox connect outlook`. --app-only requires the consent of an administrator once: `mailroom mailbox authorize outlook`.",
        connect,
        change,
        secret_field: access_fields::secret_field,
        prompt: None,
    },
    push: Some(PushDeclaration {
        routes: include_str!("push_routes.json"),
        not_configured: "Microsoft Graph notifications are not configured on this server (providers.microsoft.client_id, notification_url)",
    }),
    consent: Some(ConsentDeclaration {
        name: "Microsoft",
        route: "microsoft",
        about: "A mailbox at Microsoft, of an organisation or a personal one",
        not_configured: "Microsoft is not configured on this server: set providers.microsoft.client_id, and client_secret or certificate_file",
        no_refresh_token: "Microsoft granted no lasting access. Your administrator may not allow it; otherwise start again.",
        has_admin_consent: true,
    }),
    directory: Some(DirectoryDeclaration { check: check_directory }),
};

const DIRECTORY: ConnectionField = ConnectionField {
    help: Some(
        "With `app_only` at Outlook: id or domain of the Microsoft directory. Default: the domain of the address.",
    ),
    example: Some("acme.onmicrosoft.com"),
    is_changeable: false,
    ..ConnectionField::new(
        "directory",
        FieldKind::Text,
        FieldOption {
            conflicts_with: &["refresh_token"],
            ..FieldOption::new(
                "directory",
                "DIRECTORY",
                "Id or domain of its directory (default: the domain of the address)",
            )
        },
    )
};

fn connect(input: &ConnectionInput, _address: &str) -> Result<NewConnection, InvalidField> {
    let mut made = access_fields::connect(input, "/v1/oauth/microsoft/start")?;
    let Some(directory) = input.text(&DIRECTORY) else { return Ok(made) };
    if !input.is_set(&APP_ONLY) {
        let why = "requires {app_only}: with a {refresh_token} the directory is known";
        return Err(InvalidField::new(DIRECTORY.name, why));
    }
    if !is_directory(directory) {
        return Err(InvalidField::new(DIRECTORY.name, "must be the id of a directory or one of its domains"));
    }
    made.settings[DIRECTORY.name] = directory.into();
    Ok(made)
}

fn change(before: &Value, input: &ConnectionInput) -> Result<NewConnection, InvalidField> {
    Ok(access_fields::change(before, input))
}

/// Requires the directory: Microsoft grants access to the app itself, in each directory for itself.
fn check_directory(location: DirectoryLocation) -> Result<DirectoryLocation, InvalidField> {
    const FIELD: &str = "directory";
    let given = location
        .directory
        .as_deref()
        .ok_or_else(|| InvalidField::new(FIELD, "is required: the id of the directory, or one of its domains"))?;
    if !is_directory(given) {
        return Err(InvalidField::new(FIELD, "must be the id of a directory, or one of its domains"));
    }
    if location.administrator.is_some() {
        return Err(InvalidField::new(
            "administrator",
            "must not be set for outlook: Microsoft grants access to the app itself",
        ));
    }
    Ok(location)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(directory: Option<&str>, administrator: Option<&str>) -> Result<DirectoryLocation, String> {
        let [directory, administrator] = [directory, administrator].map(|text| text.map(str::to_owned));
        check_directory(DirectoryLocation { directory, administrator }).map_err(|wrong| wrong.field)
    }

    #[test]
    fn directory_is_named_by_its_id_or_domain() {
        assert!(check(Some("acme.test"), None).is_ok());
        assert_eq!(check(None, None), Err("directory".to_owned()));
        assert_eq!(check(Some("common"), None), Err("directory".to_owned()));
        assert_eq!(check(Some("acme.test"), Some("a@acme.test")), Err("administrator".to_owned()));
    }
}
