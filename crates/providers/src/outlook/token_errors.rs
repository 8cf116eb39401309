//! Maps errors of Microsoft's token endpoint to [`ConnectorError`].
//!
//! The code in `error` decides. The numbers beside it (AADSTS…) are more precise but may change: the known ones decide
//! whom the error concerns where the code leaves that open, and each is shown to people.

use std::time::Duration;

use domain::ConnectorError;

use super::app_settings::is_directory;
use crate::http::{ErrorResponse, protocol, retry_after};
use crate::oauth::{TokenError, app_rejected, is_clock_wrong, unauthorized};

/// The grant type of a token request: the same error code means something else for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MicrosoftGrantType {
    AuthorizationCode,
    RefreshToken,
    /// Our app in its own name, in one directory.
    ClientCredentials,
}

/// Microsoft has detected that a client repeats the same request; further requests would only prolong it.
const LOOP_CODE: u64 = 50_196;
const LOOP_RETRY_DELAY: Duration = Duration::from_secs(300);

/// Transient errors, whatever the code beside them is.
const TRANSIENT_CODES: [u64; 5] = [50_033, 50_087, 90_006, 90_024, 90_033];
const DIRECTORY_THROTTLED_CODE: u64 = 90_055;

/// One directory does not have our app, or has not granted what it requests; others may have.
const APP_NOT_ADMITTED_CODES: [u64; 5] = [700_016, 7_000_229, 90_094, 650_052, 65_004];

/// There is no such directory, its name is not valid, or it is `common` where one directory is required.
const UNKNOWN_DIRECTORY_CODES: [u64; 4] = [90_002, 900_023, 900_021, 9_001_023];

const SECRET_EXPIRED_CODE: u64 = 7_000_222;
const ASSERTION_REJECTED_CODES: [u64; 2] = [700_027, 700_024];

/// Returns the error that an error response means. `authority` is the directory of the request, or `common` and the like.
pub fn connector_error(response: &ErrorResponse, grant_type: MicrosoftGrantType, authority: &str) -> ConnectorError {
    let token_error = TokenError::of(response);
    if token_error.has_code(&[LOOP_CODE]) {
        let asked_to_wait = retry_after(&response.headers).unwrap_or_default();
        return ConnectorError::Throttled { retry_after: Some(LOOP_RETRY_DELAY.max(asked_to_wait)) };
    }
    let by_status = response.error();
    if matches!(by_status, ConnectorError::Throttled { .. } | ConnectorError::Unavailable(_)) {
        return by_status;
    }
    if token_error.has_code(&[DIRECTORY_THROTTLED_CODE]) {
        return ConnectorError::Throttled { retry_after: retry_after(&response.headers) };
    }
    let description = describe(&token_error);
    if token_error.has_code(&TRANSIENT_CODES)
        || ["temporarily_unavailable", "server_error"].contains(&&*token_error.error)
    {
        return ConnectorError::Unavailable(format!("the token request failed for now ({description})"));
    }
    if token_error.has_code(&UNKNOWN_DIRECTORY_CODES) {
        return unknown_directory(&description, grant_type, authority);
    }
    match &*token_error.error {
        "unauthorized_client" => app_not_admitted(&description, grant_type),
        _ if token_error.has_code(&APP_NOT_ADMITTED_CODES) => app_not_admitted(&description, grant_type),
        "invalid_client" => client_rejected(&token_error, &description, response),
        "invalid_grant" | "interaction_required" | "login_required" | "consent_required" | "access_denied" => {
            grant_ended(&token_error, &description, grant_type)
        }
        "invalid_scope" | "invalid_resource" | "invalid_request" | "unsupported_grant_type" => {
            protocol(&format!("the token request was rejected as invalid ({description})"))
        }
        _ => ConnectorError::Unavailable(format!("the token request failed with status {}", response.status.as_u16())),
    }
}

/// Returns the error code, if it is a known one, and the first number. Nothing else of the response is repeated.
fn describe(token_error: &TokenError) -> String {
    const KNOWN_ERRORS: [&str; 13] = [
        "invalid_grant",
        "interaction_required",
        "login_required",
        "consent_required",
        "access_denied",
        "unauthorized_client",
        "invalid_client",
        "invalid_scope",
        "invalid_resource",
        "invalid_request",
        "unsupported_grant_type",
        "temporarily_unavailable",
        "server_error",
    ];
    let error = KNOWN_ERRORS.into_iter().find(|known| *known == token_error.error).unwrap_or("refused");
    match token_error.codes.first() {
        Some(code) => format!("{error}, AADSTS{code}"),
        None => error.to_owned(),
    }
}

/// The grant of one mailbox has ended, or needs its owner.
fn grant_ended(token_error: &TokenError, description: &str, grant_type: MicrosoftGrantType) -> ConnectorError {
    let why = match (token_error.codes.first().copied().unwrap_or(0), grant_type) {
        (_, MicrosoftGrantType::AuthorizationCode) => "the authorization code was used before or has expired",
        (50_057, _) => "its user is disabled",
        (50_034, _) => "its user no longer exists",
        (50_105, _) => "its administrator has not assigned its user to this app",
        (50_055 | 50_144, _) => "the password of its user has expired",
        (65_001, MicrosoftGrantType::ClientCredentials) => "the directory's administrator has not allowed it",
        (50_072 | 50_074 | 50_076 | 50_078 | 50_079, _) => "its user must sign in with a second factor",
        (50_158 | 53_000..=53_004 | 530_032, _) => "a policy of its administrator requires its user to sign in again",
        (700_082, _) => "its consent has expired because it was not used",
        (50_173, _) => "its consent has ended with a new password, or was revoked",
        _ if ["interaction_required", "login_required", "consent_required"].contains(&&*token_error.error) => {
            "its user must sign in again"
        }
        _ => "its consent has expired or was revoked",
    };
    match grant_type {
        MicrosoftGrantType::AuthorizationCode => unauthorized(&format!("{why} ({description})")),
        MicrosoftGrantType::RefreshToken => unauthorized(&format!("{why} ({description}); connect it again")),
        MicrosoftGrantType::ClientCredentials => {
            unauthorized(&format!("{why} ({description}); once that is fixed, resume it"))
        }
    }
}

/// The directory has not admitted our app: it concerns the mailboxes of that directory only.
fn app_not_admitted(description: &str, grant_type: MicrosoftGrantType) -> ConnectorError {
    match grant_type {
        MicrosoftGrantType::AuthorizationCode => app_rejected(&format!(
            "the app is unknown there, or not registered for this kind of account ({description}); check providers.microsoft.client_id and authority"
        )),
        MicrosoftGrantType::RefreshToken => unauthorized(&format!(
            "its administrator does not allow this app, or no longer ({description}); once that is changed, connect it again. If all mailboxes have this error, check providers.microsoft.client_id"
        )),
        MicrosoftGrantType::ClientCredentials => unauthorized(&format!(
            "the directory has not admitted this app ({description}); its administrator does so under the link that `mailroom mailbox authorize outlook` prints. If all mailboxes have this error, check providers.microsoft.client_id"
        )),
    }
}

fn unknown_directory(description: &str, grant_type: MicrosoftGrantType, authority: &str) -> ConnectorError {
    match grant_type {
        MicrosoftGrantType::ClientCredentials => unauthorized(&format!(
            "there is no such directory ({description}); name it with --directory, by its id or one of its domains"
        )),
        // The directory came from the account itself.
        MicrosoftGrantType::AuthorizationCode | MicrosoftGrantType::RefreshToken if !is_directory(authority) => {
            unauthorized(&format!("its directory no longer exists ({description}); connect it again"))
        }
        MicrosoftGrantType::AuthorizationCode | MicrosoftGrantType::RefreshToken => {
            app_rejected(&format!("there is no such directory ({description}); check providers.microsoft.authority"))
        }
    }
}

/// Microsoft rejects the app's own credentials, whatever the mailbox.
fn client_rejected(token_error: &TokenError, description: &str, response: &ErrorResponse) -> ConnectorError {
    if token_error.codes.contains(&SECRET_EXPIRED_CODE) {
        return app_rejected(&format!(
            "the secret of the app has expired ({description}); create a new one there, and set providers.microsoft.client_secret_file"
        ));
    }
    if token_error.codes.iter().any(|code| ASSERTION_REJECTED_CODES.contains(code)) {
        if is_clock_wrong(response) {
            return app_rejected(&format!(
                "this machine's clock differs from Microsoft's; synchronize it with a time server ({description})"
            ));
        }
        return app_rejected(&format!(
            "the certificate is not one of the app's, or has expired ({description}); check providers.microsoft.certificate_file"
        ));
    }
    app_rejected(&format!(
        "the app is unknown or its secret is wrong ({description}); check providers.microsoft.client_id and client_secret"
    ))
}
