//! What Outlook declares to the rest of the product.

use domain::{
    ConsentDeclaration, DirectoryDeclaration, DirectoryLocation, InvalidField, Provider, ProviderDeclaration,
    PushDeclaration,
};

use super::app_settings::is_directory;

pub static DECLARATION: ProviderDeclaration = ProviderDeclaration {
    provider: Provider::Outlook,
    push: Some(PushDeclaration {
        routes: include_str!("push_routes.json"),
        not_configured: "Microsoft Graph notifications are not configured on this server (providers.microsoft.client_id, notification_url)",
    }),
    consent: Some(ConsentDeclaration {
        name: "Microsoft",
        route: "microsoft",
        not_configured: "Microsoft is not configured on this server: set providers.microsoft.client_id, and client_secret or certificate_file",
        no_refresh_token: "Microsoft granted no lasting access. Your administrator may not allow it; otherwise start again.",
        has_admin_consent: true,
    }),
    directory: Some(DirectoryDeclaration { check: check_directory }),
};

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
