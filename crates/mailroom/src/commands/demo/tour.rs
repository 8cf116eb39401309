//! What is told to whoever looks at a demo: where it is, what is going on, and five things to try.

use serde_json::json;

use super::place::{Place, for_shell};
use super::providers::{ARCHIVE, AT_IMAP, CONTRACTOR, GOOGLE, THROTTLED};
use super::scene::Scene;
use crate::failure::Failure;
use crate::output::Output;

/// Something to try, with commands that work as they are pasted.
struct Thing {
    what: &'static str,
    commands: Vec<String>,
}

pub async fn announce(scene: &Scene, place: &Place, out: Output) -> Result<(), Failure> {
    let things = things(scene, place).await?;
    let url = &scene.api.url;
    if out.json {
        let things: Vec<_> =
            things.iter().map(|thing| json!({"what": thing.what, "commands": thing.commands})).collect();
        return out.object(&json!({
            "url": url, "key": scene.api.key, "providers": scene.providers.url(), "try": things,
        }));
    }
    let mailboxes = scene.mailboxes().await?;
    let of = |name: &str| mailboxes.iter().filter(|mailbox| mailbox.tenant_id == scene.tenant(name)).count();
    out.line(&format!("Mailroom is at {url}, and {url}/docs shows its API. The operator's key is {}", scene.api.key))?;
    out.line("")?;
    out.line(&format!(
        "  harbour    an organisation at Google: {} mailboxes by discovery, and {CONTRACTOR}, whose token was revoked",
        of("harbour") - 1
    ))?;
    out.line(&format!(
        "  orchard    an organisation at Microsoft: {} mailboxes by discovery, of which {THROTTLED} is asked to wait",
        of("orchard")
    ))?;
    out.line(&format!("  workshop   {} mailboxes at an IMAP server", AT_IMAP.len()))?;
    out.line("")?;
    out.line(&format!(
        "New mail is pushed, older mail of {ARCHIVE} comes in as fast as Google allows, and one job is a dead letter."
    ))?;
    out.line("Five things to try in another terminal:")?;
    for (number, thing) in things.iter().enumerate() {
        out.line("")?;
        out.line(&format!("{}. {}", number + 1, thing.what))?;
        thing.commands.iter().try_for_each(|command| out.line(&format!("     {command}")))?;
    }
    out.line("")
}

async fn things(scene: &Scene, place: &Place) -> Result<Vec<Thing>, Failure> {
    let mailroom = for_shell(&place.program());
    let (key_file, token) = (for_shell(&place.path("admin.key")), for_shell(&place.path("token")));
    let (url, providers) = (&scene.api.url, scene.providers.url());
    let control = format!("{providers}/control/google");
    let dead = scene.dead_letters().await?;
    let dead = dead.first().map(|job| job.id.to_string()).unwrap_or_default();
    let (payload, harbour) = (scene.right_payload().await?, scene.id("harbour"));
    Ok(vec![
        Thing {
            what: "Every mailbox: how far older mail has come, and what is wrong with whom",
            commands: vec![format!("{mailroom} mailbox list")],
        },
        Thing {
            what: "Search, while mail comes in",
            commands: vec![format!("{mailroom} search 'has:attachment' --tenant harbour --limit 5")],
        },
        Thing {
            what: "Follow what happens, as it happens",
            commands: vec![format!(
                "curl -sN -H \"Authorization: Bearer $(cat {key_file})\" -H 'X-Tenant-Id: {harbour}' '{url}/v1/events/stream?backfill=true' | head -n 12"
            )],
        },
        Thing {
            what: "Somebody joins the organisation, and has a mailbox",
            commands: vec![
                format!(
                    "curl -sS -H 'Content-Type: application/json' {control}/organisations/{GOOGLE}/apply -d '{{\"op\":\"join\",\"address\":\"new@{GOOGLE}\",\"messages\":20}}'"
                ),
                format!("{mailroom} directory discover --tenant harbour"),
                format!("{mailroom} mailbox sync new@{GOOGLE} --tenant harbour --wait"),
            ],
        },
        Thing {
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
