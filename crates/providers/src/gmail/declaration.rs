//! What Gmail declares to the rest of the product.

use domain::address::canonical;
use domain::{
    ConsentDeclaration, DirectoryDeclaration, DirectoryLocation, InvalidField, Provider, ProviderDeclaration,
    PushDeclaration,
};

pub static DECLARATION: ProviderDeclaration = ProviderDeclaration {
    provider: Provider::Gmail,
    push: Some(PushDeclaration {
        routes: include_str!("push_routes.json"),
        not_configured: "Gmail push is not configured on this server (providers.google.push_service_account)",
    }),
    consent: Some(ConsentDeclaration {
        name: "Google",
        route: "google",
        not_configured: "Google is not configured on this server: set providers.google.client_id and client_secret",
        no_refresh_token: "Google granted no lasting access. Remove this app in your Google account under third-party access, then start again.",
        has_admin_consent: false,
    }),
    directory: Some(DirectoryDeclaration { check: check_directory }),
};

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
