//! The introduction that a demo prints: its address, what is going on, and five things to try.

use serde_json::json;
use terminal::{Failure, Output};

use super::folder::{DemoFolder, for_shell};
use super::providers::{ARCHIVE, CONTRACTOR, GOOGLE, IMAP_ADDRESSES, THROTTLED};
use super::system::DemoSystem;

/// Something to try, with commands that work as pasted.
struct TourStep {
    what: &'static str,
    commands: Vec<String>,
}

pub async fn announce(system: &DemoSystem, folder: &DemoFolder, out: Output) -> Result<(), Failure> {
    let steps = steps(system, folder).await?;
    let url = &system.api.url;
    if out.json {
        let steps: Vec<_> = steps.iter().map(|step| json!({"what": step.what, "commands": step.commands})).collect();
        return out.object(&json!({
            "url": url, "key": system.api.key, "providers": system.providers.url(), "try": steps,
        }));
    }
    let mailboxes = system.mailboxes().await?;
    let [harbour, orchard] = ["harbour", "orchard"].map(|name| {
        let tenant = system.tenant(name);
        mailboxes.iter().filter(|mailbox| mailbox.tenant_id == tenant).count()
    });
    out.line(&format!("Mailroom is at {url}, and {url}/docs shows its API. The operator's key is {}", system.api.key))?;
    out.line("")?;
    out.line(&format!(
        "  harbour    an organisation at Google: {} mailboxes by discovery, and {CONTRACTOR}, whose token was revoked",
        harbour - 1
    ))?;
    out.line(&format!(
        "  orchard    an organisation at Microsoft: {orchard} mailboxes by discovery, of which {THROTTLED} is asked to wait"
    ))?;
    out.line(&format!("  workshop   {} mailboxes at an IMAP server", IMAP_ADDRESSES.len()))?;
    out.line("")?;
    out.line(&format!(
        "New mail is pushed, older mail of {ARCHIVE} comes in as fast as Google allows, and one job is a dead letter."
    ))?;
    out.line("Five things to try in another terminal:")?;
    for (number, step) in steps.iter().enumerate() {
        out.line("")?;
        out.line(&format!("{}. {}", number + 1, step.what))?;
        step.commands.iter().try_for_each(|command| out.line(&format!("     {command}")))?;
    }
    out.line("")
}

async fn steps(system: &DemoSystem, folder: &DemoFolder) -> Result<Vec<TourStep>, Failure> {
    let mailroom = for_shell(&folder.program());
    let (key_file, token) = (for_shell(&folder.path("admin.key")), for_shell(&folder.path("token")));
    let (url, providers) = (&system.api.url, system.providers.url());
    let control = format!("{providers}/control/google");
    let dead = system.dead_letters().await?;
    let dead = dead.first().map(|job| job.id.to_string()).unwrap_or_default();
    let (payload, harbour) = (system.corrected_payload().await?, system.id("harbour"));
    Ok(vec![
        TourStep {
            what: "Every mailbox: how far older mail has come, and what is wrong with whom",
            commands: vec![format!("{mailroom} mailbox list")],
        },
        TourStep {
            what: "Search, while mail comes in",
            commands: vec![format!("{mailroom} search 'has:attachment' --tenant harbour --limit 5")],
        },
        TourStep {
            what: "Follow what happens, as it happens",
            commands: vec![format!(
                "curl -sN -H \"Authorization: Bearer $(cat {key_file})\" -H 'X-Tenant-Id: {harbour}' '{url}/v1/events/stream?backfill=true' | head -n 12"
            )],
        },
        TourStep {
            what: "Somebody joins the organisation, and has a mailbox",
            commands: vec![
                format!(
                    "curl -sS -H 'Content-Type: application/json' {control}/organisations/{GOOGLE}/apply -d '{{\"op\":\"join\",\"address\":\"new@{GOOGLE}\",\"messages\":20}}'"
                ),
                format!("{mailroom} directory discover --tenant harbour"),
                format!("{mailroom} mailbox sync new@{GOOGLE} --tenant harbour --wait"),
            ],
        },
        TourStep {
            what: "Mend what is wrong: the contractor says yes once more, and the dead letter gets what it was to be about",
            commands: vec![
                format!("{mailroom} mailbox show {CONTRACTOR} --tenant harbour"),
                format!(
                    "curl -sS -X POST {control}/accounts/{CONTRACTOR}/grant | sed -E 's/.*\"refresh_token\":\"([^\"]+)\".*/\\1/' > {token}"
                ),
                format!("{mailroom} mailbox resume {CONTRACTOR} --tenant harbour --refresh-token-file {token}"),
                format!("{mailroom} dead-letters show {dead}"),
                format!("{mailroom} dead-letters replay {dead} --payload '{payload}'"),
            ],
        },
    ])
}
