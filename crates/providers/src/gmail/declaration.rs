//! What Gmail declares to the rest of the product.

use domain::address::canonical;
use domain::{
    ConnectionDeclaration, ConnectionInput, ConsentDeclaration, DirectoryDeclaration, DirectoryLocation, InvalidField,
    NewConnection, Provider, ProviderDeclaration, PushDeclaration,
};
use serde_json::Value;

use crate::oauth::access_fields::{self, APP_ONLY, REFRESH_TOKEN};

pub static DECLARATION: ProviderDeclaration = ProviderDeclaration {
    provider: Provider::Gmail,
    connection: ConnectionDeclaration {
        fields: &[&REFRESH_TOKEN, &APP_ONLY],
        has_byte_quota: false,
        about: "A mailbox at Google, with the consent of its owner or its domain",
        add_help: "Examples:\n  mailroom mailbox add gmail --tenant acme --address me@acme.test --refresh-token-file token\n  mailroom mailbox add gmail --tenant acme --address me@acme.test --app-only --backfill 90d\n\nTo have its owner connect it in a browser, use `mailroom mailbox connect gmail`.",
        connect,
        change,
        secret_field: access_fields::secret_field,
        prompt: None,
    },
    push: Some(PushDeclaration {
        routes: include_str!("push_routes.json"),
        not_configured: "Gmail push is not configured on this server (providers.google.push_service_account)",
    }),
    consent: Some(ConsentDeclaration {
        name: "Google",
        route: "google",
        about: "A mailbox at Google",
        not_configured: "Google is not configured on this server: set providers.google.client_id and client_secret",
        no_refresh_token: "Google granted no lasting access. Remove this app in your Google account under third-party access, then start again.",
        has_admin_consent: false,
    }),
    directory: Some(DirectoryDeclaration { check: check_directory }),
};

fn connect(input: &ConnectionInput, _address: &str) -> Result<NewConnection, InvalidField> {
    access_fields::connect(input, "/v1/oauth/google/start")
}

fn change(before: &Value, input: &ConnectionInput) -> Result<NewConnection, InvalidField> {
    Ok(access_fields::change(before, input))
}

/// Requires an administrator: Google finds the directory by that address.
fn check_directory(location: DirectoryLocation) -> Result<DirectoryLocation, InvalidField> {
    const FIELD: &str = "administrator";
    let given = location.administrator.as_deref().ok_or_else(|| {
        InvalidField::new(FIELD, "is required: the address of an administrator on whose behalf the directory is read")
    })?;
    let administrator = canonical(given)
        .ok_or_else(|| InvalidField::new(FIELD, "must be an email address, such as admin@acme.test"))?;
    if location.directory.is_some() {
        return Err(InvalidField::new(
            "directory",
            "must not be set for gmail: Google finds the directory by its administrator",
        ));
    }
    Ok(DirectoryLocation { directory: None, administrator: Some(administrator) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(directory: Option<&str>, administrator: Option<&str>) -> Result<DirectoryLocation, String> {
        let [directory, administrator] = [directory, administrator].map(|text| text.map(str::to_owned));
        check_directory(DirectoryLocation { directory, administrator }).map_err(|wrong| wrong.field)
    }

    #[test]
    fn directory_is_found_by_its_administrator() {
        let good = check(None, Some("Admin@Acme.test")).unwrap();

        assert_eq!(good.administrator.as_deref(), Some("admin@acme.test"));
        assert_eq!(check(None, None), Err("administrator".to_owned()));
        assert_eq!(check(None, Some("admin")), Err("administrator".to_owned()));
        assert_eq!(check(Some("acme.test"), Some("a@acme.test")), Err("directory".to_owned()));
    }
}
