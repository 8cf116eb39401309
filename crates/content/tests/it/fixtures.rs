//! Every mail in `fixtures/eml` says exactly what the `.json` beside it says.

use std::fs;
use std::path::{Path, PathBuf};

use content::mime::{self, Attachment, ParsedEmail};
use domain::{MessageLimits, Sha256};
use serde_json::{Value, json};

const KINDS: [&str; 4] = ["rfc", "malformed", "hostile", "providers"];

#[test]
fn fixtures_parse_as_expected() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for mail in mails() {
        let expected = mail.with_extension("json");
        let expected = fs::read_to_string(&expected).unwrap_or_else(|e| panic!("{}: {e}", expected.display()));
        let expected: Value = serde_json::from_str(&expected).unwrap();
        let email = mime::parse(&fs::read(&mail).unwrap(), &MessageLimits::default());
        wrong.extend(differences(&expected, &email).iter().map(|line| format!("{}: {line}", mail.display())));
        count += 1;
    }

    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 150, "only {count} mails");
}

#[test]
fn every_expectation_has_its_mail() {
    for kind in KINDS {
        for file in files(&folder().join(kind)) {
            let other = if file.extension().is_some_and(|e| e == "json") { "eml" } else { "json" };

            assert!(file.with_extension(other).exists(), "{} stands alone", file.display());
        }
    }
}

#[test]
fn no_mail_has_a_nul_in_any_text() {
    for mail in mails() {
        let email = mime::parse(&fs::read(&mail).unwrap(), &MessageLimits::default());

        assert!(!format!("{:?}", texts(&email)).contains("\\0"), "{}", mail.display());
    }
}

pub fn mails() -> Vec<PathBuf> {
    let all = KINDS.iter().flat_map(|kind| files(&folder().join(kind)));
    all.filter(|file| file.extension().is_some_and(|e| e == "eml")).collect()
}

fn folder() -> PathBuf {
    PathBuf::from("../../fixtures/eml")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).expect("the folder is there").flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// Returns every string of an email.
pub fn texts(email: &ParsedEmail) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    all.extend([&email.message_id, &email.in_reply_to, &email.subject].into_iter().flatten().map(String::as_str));
    all.extend([&email.body_text, &email.body_html].into_iter().flatten().map(String::as_str));
    all.extend(email.references.iter().map(String::as_str));
    for address in email.from.iter().chain(email.recipients.iter().map(|recipient| &recipient.address)) {
        all.push(&address.address);
        all.extend(address.name.as_deref());
    }
    all.extend(email.headers.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]));
    for attachment in &email.attachments {
        all.extend([attachment.path.as_str(), attachment.content_type.as_str()]);
        all.extend(attachment.filename.as_deref());
        all.extend(attachment.content_id.as_deref());
    }
    all
}

fn differences(expected: &Value, email: &ParsedEmail) -> Vec<String> {
    let mut lines = Vec::new();
    let found = facts(email);
    for (key, wanted) in expected.as_object().expect("facts are an object") {
        let Some(is) = found.get(key) else {
            lines.push(format!("nothing is called {key}"));
            continue;
        };
        let is = if wanted.get("sha256").is_some() { digest(is.as_str().unwrap_or_default()) } else { is.clone() };
        if is != *wanted {
            lines.push(format!("{key}\n  is     {is}\n  should {wanted}"));
        }
    }
    for key in found.as_object().expect("facts are an object").keys().filter(|key| *key != "headers") {
        if expected.get(key).is_none() {
            lines.push(format!("nothing is said about {key}"));
        }
    }
    lines
}

pub fn facts(email: &ParsedEmail) -> Value {
    json!({
        "message_id": email.message_id,
        "in_reply_to": email.in_reply_to,
        "references": email.references,
        "subject": email.subject,
        "from": email.from,
        "recipients": email.recipients,
        "sent_at": email.sent_at,
        "received_at": email.received_at,
        "body_text": email.body_text,
        "body_html": email.body_html,
        "headers": email.headers,
        "attachments": email.attachments.iter().map(attachment).collect::<Vec<_>>(),
        "defects": email.defects,
    })
}

fn attachment(attachment: &Attachment) -> Value {
    let mut facts = json!({
        "path": attachment.path,
        "filename": attachment.filename,
        "content_type": attachment.content_type,
        "sniffed_type": attachment.sniffed_type,
        "inline": attachment.inline,
        "content_id": attachment.content_id,
        "size": attachment.content.len(),
        "sha256": attachment.content.sha256().to_string(),
        "is_cut": attachment.is_cut,
    });
    if let Some(message) = &attachment.message {
        facts["message"] = json!(message);
    }
    facts
}

/// Replaces a long text by its hash.
fn digest(text: &str) -> Value {
    json!({ "bytes": text.len(), "sha256": Sha256::of(text.as_bytes()).to_string() })
}
