//! Bytes before rows, rows before the answer: proven from the system calls of imports and exports.

use std::path::Path;

use crate::installation::{CommandOutput, PROGRAM, TestInstallation};
use crate::mail::{hashes, simple};

/// One system call that succeeded, on the path of its file.
#[derive(Debug, PartialEq)]
enum SystemCall {
    Sync(String),
    Rename {
        from: String,
        to: String,
    },
    /// What was written is kept as strace shows it.
    Write {
        path: String,
        data: String,
    },
}

/// Calls with the lines where each began and ended; threads make them overlap.
type SystemCallTrace = Vec<(usize, usize, SystemCall)>;

fn parse(text: &str) -> SystemCallTrace {
    let mut open: Vec<(&str, usize, &str)> = Vec::new();
    let mut trace = SystemCallTrace::new();
    for (line_number, line) in text.lines().enumerate() {
        let (thread, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim_start();
        if let Some(begun) = rest.strip_suffix(" <unfinished ...>") {
            open.push((thread, line_number, begun));
        } else if rest.starts_with("<... ") {
            let Some(at) = open.iter().position(|(owner, ..)| *owner == thread) else { continue };
            let (_, began, begun) = open.remove(at);
            let ended = rest.split_once("resumed>").map_or("", |(_, ended)| ended);
            trace.extend(parse_call(&format!("{begun}{ended}")).map(|call| (began, line_number, call)));
        } else {
            trace.extend(parse_call(rest).map(|call| (line_number, line_number, call)));
        }
    }
    trace
}

fn path_of(args: &str) -> Option<String> {
    args.split_once('<')?.1.split_once('>').map(|(path, _)| path.to_owned())
}

fn is_log(path: &str) -> bool {
    path.ends_with(".db-wal")
}

fn is_synced_between(trace: &SystemCallTrace, path: &str, from: usize, to: usize) -> bool {
    let sync = SystemCall::Sync(path.to_owned());
    trace.iter().any(|(began, ended, call)| *began > from && *ended < to && *call == sync)
}

fn parse_call(text: &str) -> Option<SystemCall> {
    let (name, rest) = text.split_once('(')?;
    let (args, result) = rest.rsplit_once(')')?;
    if result.trim_start_matches([' ', '=']).starts_with('-') {
        return None;
    }
    let quoted: Vec<&str> = args.split('"').skip(1).step_by(2).collect();
    Some(match name {
        "fsync" | "fdatasync" => SystemCall::Sync(path_of(args)?),
        // A pack gets its name by a link, which never replaces anything.
        "rename" | "renameat" | "renameat2" | "link" | "linkat" => {
            SystemCall::Rename { from: quoted.first()?.to_string(), to: quoted.get(1)?.to_string() }
        }
        "write" | "pwrite64" => SystemCall::Write { path: path_of(args)?, data: args.split_once('"')?.1.to_owned() },
        _ => return None,
    })
}

/// The order that a power cut cannot break, or what is wrong with it.
fn check(trace: &SystemCallTrace, sha256: &str) -> Result<(), String> {
    let rename = trace.iter().find_map(|(began, ended, call)| match call {
        SystemCall::Rename { from, to } if to.contains("/packs/") => Some((*began, *ended, from, to)),
        _ => None,
    });
    let (began, renamed, staged, pack) = rename.ok_or("no pack was given its name")?;
    let written = trace.iter().filter(|(.., call)| matches!(call, SystemCall::Write { path, .. } if path == staged));
    let written = written.map(|(_, ended, _)| *ended).max().ok_or("nothing was written to the pack")?;
    let mut rows = trace
        .iter()
        .filter(|(.., call)| matches!(call, SystemCall::Write { path, data } if is_log(path) && data.contains(sha256)));
    let first = rows.next().ok_or("no row names the message")?;
    let (first_row, last_row) = (first.0, rows.next_back().unwrap_or(first).1);
    let mut answers = trace
        .iter()
        .filter(|(.., call)| matches!(call, SystemCall::Write { data, .. } if data.starts_with("{\\\"read\\\":")));
    let answer = answers.next().ok_or("no summary was written")?.0;

    if !is_synced_between(trace, staged, written, began) {
        return Err("the pack was not synced before it got its name".to_owned());
    }
    let folder = Path::new(pack).parent().and_then(Path::to_str).unwrap_or_default();
    if !is_synced_between(trace, folder, renamed, first_row) {
        return Err("the pack's folder was not synced before a row named its content".to_owned());
    }
    let log = trace.iter().find_map(|(.., call)| match call {
        SystemCall::Write { path, .. } if is_log(path) => Some(path),
        _ => None,
    });
    if !is_synced_between(trace, log.ok_or("no log was written")?, last_row, answer) {
        return Err("the log was not synced before the answer".to_owned());
    }
    Ok(())
}

/// Checks a trace without the syncs of these lines.
fn check_without(trace: &str, sha256: &str, is_gone: impl Fn(&str) -> bool) -> Result<(), String> {
    let kept: Vec<&str> = trace.lines().filter(|line| !(line.contains("sync") && is_gone(line))).collect();
    check(&parse(&kept.join("\n")), sha256)
}

#[test]
fn import_answers_after_bytes_and_rows_are_durable() {
    let mailroom = TestInstallation::sqlite();
    let mail = simple("Durable", "whatever happens to the power");
    let file = mailroom.write("a.eml", &mail);
    let trace = mailroom.path("trace").into_os_string().into_string().unwrap();
    let calls = "trace=fsync,fdatasync,write,pwrite64,rename,renameat,renameat2,link,linkat";
    let args = ["-f", "-y", "-s", "20000", "-e", calls, "-o", &trace, PROGRAM];
    let import = ["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test", "--json"];

    let traced = CommandOutput::of(&mut mailroom.command("strace", &[&args[..], &import].concat()));

    assert_eq!(traced.code, Some(0), "strace, which `make test` installs, must be able to trace: {traced}");
    let text = std::fs::read_to_string(&trace).unwrap();
    let sha256 = hashes([&mail]).pop_first().unwrap();
    assert_eq!(check(&parse(&text), &sha256), Ok(()));

    // The checker has teeth: without each of the syncs it says so.
    assert!(check_without(&text, &sha256, |_| true).is_err());
    assert!(check_without(&text, &sha256, |line| line.contains("-wal")).unwrap_err().contains("the log"));
    assert!(check_without(&text, &sha256, |line| line.contains("#1>")).unwrap_err().contains("got its name"));
    assert!(
        check_without(&text, &sha256, |line| line.contains("/packs/") && !line.contains('#'))
            .unwrap_err()
            .contains("folder")
    );
}

/// The files and folders whose renames and syncs must be in this order.
fn export_steps(trace: &SystemCallTrace, out: &str) -> Vec<String> {
    let steps = trace.iter().filter_map(|(.., call)| match call {
        SystemCall::Sync(path) if !path.contains("/data") => Some(format!("sync {}", exported_name(path))),
        SystemCall::Rename { from, to } if to.ends_with(out) => Some(format!("rename {}", exported_name(from))),
        _ => None,
    });
    steps.collect()
}

fn exported_name(path: &str) -> &'static str {
    if path.ends_with(".partial") {
        "partial"
    } else if path.ends_with(".eml") {
        "email"
    } else {
        "parent"
    }
}

#[test]
fn export_answers_when_it_is_durable() {
    let mailroom = TestInstallation::sqlite();
    mailroom.import(&mailroom.write("a.eml", simple("one", "x")));
    mailroom.import(&mailroom.write("b.eml", simple("two", "x")));

    for (format, expected) in [
        ("mbox", &["sync partial", "rename partial", "sync parent"][..]),
        ("eml", &["sync email", "sync email", "sync partial", "rename partial", "sync parent"]),
    ] {
        let trace = mailroom.path("trace").into_os_string().into_string().unwrap();
        let args = ["-f", "-y", "-e", "trace=fsync,fdatasync,rename,renameat,renameat2", "-o", &trace, PROGRAM];
        let export = ["export", "--tenant", "acme", "--format", format, "--out", &format!("exported-{format}")];

        let traced = CommandOutput::of(&mut mailroom.command("strace", &[&args[..], &export].concat()));

        assert_eq!(traced.code, Some(0), "{traced}");
        let text = std::fs::read_to_string(&trace).unwrap();
        assert_eq!(export_steps(&parse(&text), export[6]), expected, "{text}");
    }
}

/// Syncs and renames in the order in which they ended, with ids and hashes left out.
fn backup_steps(trace: &SystemCallTrace) -> Vec<String> {
    let mut steps: Vec<(usize, String)> = Vec::new();
    for (_, ended, call) in trace {
        match call {
            SystemCall::Sync(path) => steps.push((*ended, format!("sync {}", backup_name(path)))),
            SystemCall::Rename { from, to } => {
                steps.push((*ended, format!("{} becomes {}", backup_name(from), backup_name(to))));
            }
            SystemCall::Write { .. } => {}
        }
    }
    steps.sort();
    steps.into_iter().map(|(_, step)| step).filter(|step| step != "sync ").collect()
}

fn backup_name(path: &str) -> &str {
    let name = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match name {
        "backup" | "data" | "manifest.json" | "manifest.partial" | "snapshot.partial" => name,
        _ if name.contains('#') => "staged object",
        _ if path.contains("/packs/") && name.len() == 2 => "object's folder",
        _ if path.contains("/packs/") => "object",
        _ if name.starts_with("mailroom") && name.ends_with(".restored") => "mark",
        _ if name.starts_with("mailroom") && name.ends_with(".restoring") => "staged database",
        _ if name.starts_with("mailroom") && name.ends_with(".db") => "database",
        _ => "",
    }
}

/// Runs a command under strace, and returns its syncs and renames in order.
fn trace_steps(mailroom: &TestInstallation, args: &[&str]) -> Vec<String> {
    let trace = mailroom.path("trace").into_os_string().into_string().unwrap();
    let calls = "trace=fsync,fdatasync,rename,renameat,renameat2,link,linkat";
    let strace = ["-f", "-y", "-e", calls, "-o", &trace, PROGRAM];
    let done = CommandOutput::of(&mut mailroom.command("strace", &[&strace[..], args].concat()));
    assert_eq!(done.code, Some(0), "{done}");
    backup_steps(&parse(&std::fs::read_to_string(&trace).unwrap()))
}

/// A power cut anywhere leaves a backup that is whole or none, and a database only with its objects.
#[test]
fn backup_and_restore_sync_in_order() {
    let (mailroom, restored) = (TestInstallation::sqlite(), TestInstallation::sqlite());
    mailroom.import(&mailroom.write("a.eml", simple("one", "x")));
    let out = mailroom.path("backup").into_os_string().into_string().unwrap();

    let backup = trace_steps(&mailroom, &["backup", "--out", &out]);
    let restore = trace_steps(&restored, &["restore", &out]);

    let object = ["sync staged object", "staged object becomes object", "sync object's folder"];
    let backup: Vec<&str> = backup.iter().map(String::as_str).filter(|step| *step != "sync data").collect();
    let first = ["sync snapshot.partial", "snapshot.partial becomes database", "sync backup"];
    let last = ["sync manifest.partial", "manifest.partial becomes manifest.json", "sync backup"];
    // A process that ends may still fold the log of its own database into the file.
    let backup = backup.strip_suffix(&["sync database"]).unwrap_or(&backup);
    assert_eq!(without_repeats(backup), [&first[..], &object, &last].concat());
    let restore: Vec<&str> = restore.iter().map(String::as_str).collect();
    // Marked before it is there, so that no number of an event is given out twice whenever the power goes.
    let mark = ["sync mark", "sync data"];
    let last = ["sync staged database", "staged database becomes database", "sync data"];
    let expected = [&object[..], &mark, &last].concat();
    let restore = without_repeats(&restore);
    assert_eq!(restore[..expected.len()], expected, "{restore:?}");
    let upgrade = &restore[expected.len()..];
    assert!(upgrade.iter().all(|step| ["sync data", "sync database"].contains(step)), "{upgrade:?}");
}

/// New folders are synced from the bottom up, before anything is in them and after.
fn without_repeats<'a>(steps: &[&'a str]) -> Vec<&'a str> {
    const FOLDER_SYNC: &str = "sync object's folder";
    let last = steps.iter().rposition(|step| *step == FOLDER_SYNC);
    let kept = steps.iter().enumerate().filter(|(n, step)| **step != FOLDER_SYNC || Some(*n) == last);
    kept.map(|(_, step)| *step).collect()
}

#[test]
fn postgresql_commits_stay_synchronous() {
    let mailroom = TestInstallation::postgres();
    let name = mailroom.url().unwrap().rsplit('/').next().unwrap();
    mailroom.sql(&format!("alter database {name} set synchronous_commit = on"));
    mailroom.sql(
        "create table seen (synchronous_commit text not null);
         create function note() returns trigger language plpgsql security definer as
             $$ begin insert into seen values (current_setting('synchronous_commit')); return null; end $$;
         create trigger note after insert on ledger for each statement execute function note();
         create trigger note after insert on packs for each statement execute function note()",
    );

    mailroom.import(&mailroom.write("a.eml", simple("Durable", "on PostgreSQL too")));

    let seen = mailroom.select("select synchronous_commit from seen");
    assert!(seen.len() >= 2 && seen.iter().all(|setting| setting == "on"), "{seen:?}");
}
