//! What each refusal of Microsoft's token endpoint means to the engine.
//!
//! The word in `error` decides. The numbers beside it (AADSTS…) tell more and may change: those that are known here say who
//! is concerned where the word leaves it open, and all of them are told to people.

use std::time::Duration;

use domain::ConnectorError;

use super::is_directory;
use crate::http::{Refused, protocol, retry_after};
use crate::oauth::{ErrorAnswer, is_clock_wrong, operator, unauthorized};

/// What was asked for: the same word means something else each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Code,
    Refresh,
    /// Our app asks for itself, in one directory.
    AppOnly,
}

/// Microsoft sees the same question again and again. Asking on would only make it last.
const LOOP: u64 = 50_196;
const AFTER_A_LOOP: Duration = Duration::from_secs(300);

/// They pass, whatever the word beside them is.
const PASSING: [u64; 5] = [50_033, 50_087, 90_006, 90_024, 90_033];
const DIRECTORY_THROTTLED: u64 = 90_055;

/// One directory does not have our app, or has not allowed it what it asks for: others may well have.
const NOT_ADMITTED: [u64; 5] = [700_016, 7_000_229, 90_094, 650_052, 65_004];

/// There is no such directory, or nobody could have one of that name; or it has to be one, and is `common`.
const NO_SUCH_DIRECTORY: [u64; 4] = [90_002, 900_023, 900_021, 9_001_023];

const SECRET_EXPIRED: u64 = 7_000_222;
const ASSERTION_REFUSED: [u64; 2] = [700_027, 700_024];

/// `authority` is whom we asked: a directory, or everybody's.
pub fn refusal(refused: &Refused, asked: Asked, authority: &str) -> ConnectorError {
    let answer = ErrorAnswer::of(refused);
    let is = |known: &[u64]| answer.codes.iter().any(|code| known.contains(code));
    if is(&[LOOP]) {
        let asked_to_wait = retry_after(&refused.headers).unwrap_or_default();
        return ConnectorError::Throttled { retry_after: Some(AFTER_A_LOOP.max(asked_to_wait)) };
    }
    let by_status = refused.error();
    if matches!(by_status, ConnectorError::Throttled { .. } | ConnectorError::Unavailable(_)) {
        return by_status;
    }
    if is(&[DIRECTORY_THROTTLED]) {
        return ConnectorError::Throttled { retry_after: retry_after(&refused.headers) };
    }
    let said = said(&answer);
    if is(&PASSING) || ["temporarily_unavailable", "server_error"].contains(&&*answer.error) {
        return ConnectorError::Unavailable(format!("a token call was refused for now ({said})"));
    }
    if is(&NO_SUCH_DIRECTORY) {
        return no_such_directory(&said, asked, authority);
    }
    match &*answer.error {
        "unauthorized_client" => not_admitted(&said, asked),
        _ if is(&NOT_ADMITTED) => not_admitted(&said, asked),
        "invalid_client" => not_us(&answer, &said, refused),
        "invalid_grant" | "interaction_required" | "login_required" | "consent_required" | "access_denied" => {
            ended(&answer, &said, asked)
        }
        "invalid_scope" | "invalid_resource" | "invalid_request" | "unsupported_grant_type" => {
            protocol(&format!("a token call was refused as a wrong one ({said})"))
        }
        _ => ConnectorError::Unavailable(format!("a token call was refused with status {}", refused.status.as_u16())),
    }
}

/// The word, if it is one of those that are known, and the first number. Nothing else of an answer is repeated.
fn said(answer: &ErrorAnswer) -> String {
    const WORDS: [&str; 13] = [
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
    let word = WORDS.into_iter().find(|word| *word == answer.error).unwrap_or("refused");
    match answer.codes.first() {
        Some(code) => format!("{word}, AADSTS{code}"),
        None => word.to_owned(),
    }
}

/// The right of one mailbox has ended, or needs its owner.
fn ended(answer: &ErrorAnswer, said: &str, asked: Asked) -> ConnectorError {
    let why = match (answer.codes.first().copied().unwrap_or(0), asked) {
        (_, Asked::Code) => "the code was used before or is too old",
        (50_057, _) => "its user is disabled",
        (50_034, _) => "its user does not exist any more",
        (50_105, _) => "its administrator has not assigned its user to this app",
        (50_055 | 50_144, _) => "the password of its user has expired",
        (65_001, Asked::AppOnly) => "the directory's administrator has not allowed it",
        (50_072 | 50_074 | 50_076 | 50_078 | 50_079, _) => "its user has to prove with a second factor who they are",
        (50_158 | 53_000..=53_004 | 530_032, _) => "a rule of its administrator wants its user to sign in again",
        (700_082, _) => "its consent was not used for too long",
        (50_173, _) => "its consent has ended with a new password, or was taken back",
        _ if ["interaction_required", "login_required", "consent_required"].contains(&&*answer.error) => {
            "its user has to sign in again"
        }
        _ => "its consent has ended or was taken back",
    };
    match asked {
        Asked::Code => unauthorized(&format!("{why} ({said})")),
        Asked::Refresh => unauthorized(&format!("{why} ({said}); connect it again")),
        Asked::AppOnly => unauthorized(&format!("{why} ({said}); once that is mended, resume it")),
    }
}

/// It concerns whoever is in that directory, and nobody else.
fn not_admitted(said: &str, asked: Asked) -> ConnectorError {
    match asked {
        Asked::Code => operator(&format!(
            "the app is not known there, or not for people of that kind ({said}); check providers.microsoft.client_id and authority"
        )),
        Asked::Refresh => unauthorized(&format!(
            "its administrator does not allow this app, or not any more ({said}); once that is changed, connect it again. If all are told so, check providers.microsoft.client_id"
        )),
        Asked::AppOnly => unauthorized(&format!(
            "the directory has not let this app in ({said}); its administrator does so under the link that `mailroom mailbox authorize outlook` prints. If all are told so, check providers.microsoft.client_id"
        )),
    }
}

fn no_such_directory(said: &str, asked: Asked, authority: &str) -> ConnectorError {
    match asked {
        Asked::AppOnly => unauthorized(&format!(
            "there is no such directory ({said}); name it with --directory, by its id or one of its domains"
        )),
        // Microsoft took it from the account itself.
        Asked::Code | Asked::Refresh if !is_directory(authority) => {
            unauthorized(&format!("its directory does not exist any more ({said}); connect it again"))
        }
        Asked::Code | Asked::Refresh => {
            operator(&format!("there is no such directory ({said}); check providers.microsoft.authority"))
        }
    }
}

/// Nobody there believes that we are who we say, whatever the mailbox.
fn not_us(answer: &ErrorAnswer, said: &str, refused: &Refused) -> ConnectorError {
    if answer.codes.contains(&SECRET_EXPIRED) {
        return operator(&format!(
            "the secret of the app has expired ({said}); make a new one there, and set providers.microsoft.client_secret_file"
        ));
    }
    if answer.codes.iter().any(|code| ASSERTION_REFUSED.contains(code)) {
        if is_clock_wrong(refused) {
            return operator(&format!(
                "this machine's clock differs from Microsoft's; let it follow a time server ({said})"
            ));
        }
        return operator(&format!(
            "the certificate is not one of the app's, or has expired ({said}); check providers.microsoft.certificate_file"
        ));
    }
    operator(&format!(
        "the app is not known or its secret is wrong ({said}); check providers.microsoft.client_id and client_secret"
    ))
}
