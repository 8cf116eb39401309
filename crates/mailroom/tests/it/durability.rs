//! Bytes before rows, rows before the answer: proven from the system calls of imports and exports.

use std::path::Path;

use crate::mail::{hashes, simple};
use crate::place::{Done, PROGRAM, Place};

/// One system call that succeeded, on the path of its file.
#[derive(Debug, PartialEq)]
enum Call {
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
type Trace = Vec<(usize, usize, Call)>;

fn parse(text: &str) -> Trace {
    let mut open: Vec<(&str, usize, &str)> = Vec::new();
    let mut trace = Trace::new();
    for (line_number, line) in text.lines().enumerate() {
        let (thread, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim_start();
        if let Some(begun) = rest.strip_suffix(" <unfinished ...>") {
            open.push((thread, line_number, begun));
        } else if rest.starts_with("<... ") {
            let Some(at) = open.iter().position(|(owner, ..)| *owner == thread) else { continue };
            let (_, began, begun) = open.remove(at);
            let ended = rest.split_once("resumed>").map_or("", |(_, ended)| ended);
            trace.extend(call(&format!("{begun}{ended}")).map(|call| (began, line_number, call)));
        } else {
            trace.extend(call(rest).map(|call| (line_number, line_number, call)));
        }
    }
    trace
}

fn call(text: &str) -> Option<Call> {
    let (name, rest) = text.split_once('(')?;
    let (args, result) = rest.rsplit_once(')')?;
    if result.trim_start_matches([' ', '=']).starts_with('-') {
        return None;
    }
    let path = || args.split_once('<')?.1.split_once('>').map(|(path, _)| path.to_owned());
    let quoted: Vec<&str> = args.split('"').skip(1).step_by(2).collect();
    Some(match name {
        "fsync" | "fdatasync" => Call::Sync(path()?),
        // A pack gets its name by a link, which never replaces anything.
        "rename" | "renameat" | "renameat2" | "link" | "linkat" => {
            Call::Rename { from: quoted.first()?.to_string(), to: quoted.get(1)?.to_string() }
        }
        "write" | "pwrite64" => Call::Write { path: path()?, data: args.split_once('"')?.1.to_owned() },
        _ => return None,
    })
}

/// The order that a power cut cannot break, or what is wrong with it.
fn check(trace: &Trace, sha256: &str) -> Result<(), String> {
    let is_log = |path: &str| path.ends_with(".db-wal");
    let names_it = |call: &Call| matches!(call, Call::Write { path, data } if is_log(path) && data.contains(sha256));
    let synced = |path: &str, from: usize, to: usize| {
        trace.iter().any(|(began, ended, call)| *began > from && *ended < to && *call == Call::Sync(path.to_owned()))
    };

    let rename = trace.iter().find_map(|(began, ended, call)| match call {
        Call::Rename { from, to } if to.contains("/packs/") => Some((*began, *ended, from, to)),
        _ => None,
    });
    let (began, renamed, staged, pack) = rename.ok_or("no pack was given its name")?;
    let written = trace.iter().filter(|(.., call)| matches!(call, Call::Write { path, .. } if path == staged));
    let written = written.map(|(_, ended, _)| *ended).max().ok_or("nothing was written to the pack")?;
    let first_row = trace.iter().find(|(.., call)| names_it(call)).ok_or("no row names the message")?.0;
    let last_row = trace.iter().rfind(|(.., call)| names_it(call)).ok_or("no row names the message")?.1;
    let is_answer = |call: &Call| matches!(call, Call::Write { data, .. } if data.starts_with("{\\\"read\\\":"));
    let answer = trace.iter().find(|(.., call)| is_answer(call)).ok_or("no summary was written")?.0;

    if !synced(staged, written, began) {
        return Err("the pack was not synced before it got its name".to_owned());
    }
    let folder = Path::new(pack).parent().and_then(Path::to_str).unwrap_or_default();
    if !synced(folder, renamed, first_row) {
        return Err("the pack's folder was not synced before a row named its content".to_owned());
    }
    let log = trace.iter().find_map(|(.., call)| match call {
        Call::Write { path, .. } if is_log(path) => Some(path),
        _ => None,
    });
    if !synced(log.ok_or("no log was written")?, last_row, answer) {
        return Err("the log was not synced before the answer".to_owned());
    }
    Ok(())
}

#[test]
fn an_import_answers_only_when_bytes_and_then_rows_are_durable() {
    let place = Place::sqlite();
    let mail = simple("Durable", "whatever happens to the power");
    let file = place.write("a.eml", &mail);
    let trace = place.path("trace").into_os_string().into_string().unwrap();
    let calls = "trace=fsync,fdatasync,write,pwrite64,rename,renameat,renameat2,link,linkat";
    let args = ["-f", "-y", "-s", "20000", "-e", calls, "-o", &trace, PROGRAM];
    let import = ["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test", "--json"];

    let traced = Done::of(&mut place.command("strace", &[&args[..], &import].concat()));

    assert_eq!(traced.code, Some(0), "strace, which `make test` installs, must be able to trace: {traced}");
    let text = std::fs::read_to_string(&trace).unwrap();
    let sha256 = hashes([&mail]).pop_first().unwrap();
    assert_eq!(check(&parse(&text), &sha256), Ok(()));

    // The checker has teeth: without each of the syncs it says so.
    let without = |is_gone: &dyn Fn(&str) -> bool| {
        let kept: Vec<&str> = text.lines().filter(|line| !(line.contains("sync") && is_gone(line))).collect();
        check(&parse(&kept.join("\n")), &sha256)
    };
    assert!(without(&|_| true).is_err());
    assert!(without(&|line| line.contains("-wal")).unwrap_err().contains("the log"));
    assert!(without(&|line| line.contains("#1>")).unwrap_err().contains("got its name"));
    assert!(without(&|line| line.contains("/packs/") && !line.contains('#')).unwrap_err().contains("folder"));
}

/// The files and folders whose renames and syncs must be in this order.
fn steps(trace: &Trace, out: &str) -> Vec<String> {
    let shown = |path: &str| {
        let name = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        match name {
            name if name.ends_with(".partial") => "partial".to_owned(),
            name if name.ends_with(".eml") => "email".to_owned(),
            _ => "parent".to_owned(),
        }
    };
    let step = |call: &Call| match call {
        Call::Sync(path) if !path.contains("/data") => Some(format!("sync {}", shown(path))),
        Call::Rename { from, to } if to.ends_with(out) => Some(format!("rename {}", shown(from))),
        _ => None,
    };
    trace.iter().filter_map(|(.., call)| step(call)).collect()
}

#[test]
fn an_export_answers_only_when_it_is_durable() {
    let place = Place::sqlite();
    place.import(&place.write("a.eml", simple("one", "x")));
    place.import(&place.write("b.eml", simple("two", "x")));

    for (format, expected) in [
        ("mbox", &["sync partial", "rename partial", "sync parent"][..]),
        ("eml", &["sync email", "sync email", "sync partial", "rename partial", "sync parent"]),
    ] {
        let trace = place.path("trace").into_os_string().into_string().unwrap();
        let args = ["-f", "-y", "-e", "trace=fsync,fdatasync,rename,renameat,renameat2", "-o", &trace, PROGRAM];
        let export = ["export", "--tenant", "acme", "--format", format, "--out", &format!("exported-{format}")];

        let traced = Done::of(&mut place.command("strace", &[&args[..], &export].concat()));

        assert_eq!(traced.code, Some(0), "{traced}");
        let text = std::fs::read_to_string(&trace).unwrap();
        assert_eq!(steps(&parse(&text), export[6]), expected, "{text}");
    }
}

/// Syncs and renames in the order in which they ended, with ids and hashes left out.
fn order(trace: &Trace) -> Vec<String> {
    let shown = |path: &str| {
        let name = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match name {
            "backup" | "data" | "manifest.json" | "manifest.partial" | "snapshot.partial" => name.to_owned(),
            _ if name.contains('#') => "staged object".to_owned(),
            _ if path.contains("/packs/") && name.len() == 2 => "object's folder".to_owned(),
            _ if path.contains("/packs/") => "object".to_owned(),
            _ if name.starts_with("mailroom") && name.ends_with(".restoring") => "staged database".to_owned(),
            _ if name.starts_with("mailroom") && name.ends_with(".db") => "database".to_owned(),
            _ => String::new(),
        }
    };
    let step = |call: &Call| match call {
        Call::Sync(path) => Some(format!("sync {}", shown(path))),
        Call::Rename { from, to } => Some(format!("{} becomes {}", shown(from), shown(to))),
        Call::Write { .. } => None,
    };
    let mut ended: Vec<(usize, String)> =
        trace.iter().filter_map(|(_, ended, call)| Some((*ended, step(call)?))).collect();
    ended.sort();
    ended.into_iter().map(|(_, step)| step).filter(|step| step != "sync ").collect()
}

/// A power cut anywhere leaves a backup that is whole or none, and a database only with its objects.
#[test]
fn backups_and_restores_are_durable_in_their_order() {
    let (place, restored) = (Place::sqlite(), Place::sqlite());
    place.import(&place.write("a.eml", simple("one", "x")));
    let out = place.path("backup").into_os_string().into_string().unwrap();
    let trace = place.path("trace").into_os_string().into_string().unwrap();
    let traced = |place: &Place, args: &[&str]| {
        let calls = "trace=fsync,fdatasync,rename,renameat,renameat2,link,linkat";
        let strace = ["-f", "-y", "-e", calls, "-o", &trace, PROGRAM];
        let done = Done::of(&mut place.command("strace", &[&strace[..], args].concat()));
        assert_eq!(done.code, Some(0), "{done}");
        order(&parse(&std::fs::read_to_string(&trace).unwrap()))
    };

    let backup = traced(&place, &["backup", "--out", &out]);
    let restore = traced(&restored, &["restore", &out]);

    let object = ["sync staged object", "staged object becomes object", "sync object's folder"];
    let backup: Vec<&str> = backup.iter().map(String::as_str).filter(|step| *step != "sync data").collect();
    let first = ["sync snapshot.partial", "snapshot.partial becomes database", "sync backup"];
    let last = ["sync manifest.partial", "manifest.partial becomes manifest.json", "sync backup"];
    assert_eq!(without_repeats(&backup), [&first[..], &object, &last].concat());
    let restore: Vec<&str> = restore.iter().map(String::as_str).collect();
    let last = ["sync staged database", "staged database becomes database", "sync data"];
    assert_eq!(without_repeats(&restore), [&object[..], &last].concat());
}

/// New folders are synced from the bottom up, before anything is in them and after.
fn without_repeats<'a>(steps: &[&'a str]) -> Vec<&'a str> {
    let is_folder = |step: &str| step == "sync object's folder";
    let last = steps.iter().rposition(|step| is_folder(step));
    steps.iter().enumerate().filter(|(n, step)| !is_folder(step) || Some(*n) == last).map(|(_, step)| *step).collect()
}

#[test]
fn postgresql_is_never_asked_to_commit_with_less_care() {
    let place = Place::postgres();
    let name = place.url().unwrap().rsplit('/').next().unwrap();
    place.sql(&format!("alter database {name} set synchronous_commit = on"));
    place.sql(
        "create table seen (synchronous_commit text not null);
         create function note() returns trigger language plpgsql security definer as
             $$ begin insert into seen values (current_setting('synchronous_commit')); return null; end $$;
         create trigger note after insert on ledger for each statement execute function note();
         create trigger note after insert on packs for each statement execute function note()",
    );

    place.import(&place.write("a.eml", simple("Durable", "on PostgreSQL too")));

    let seen = place.select("select synchronous_commit from seen");
    assert!(seen.len() >= 2 && seen.iter().all(|setting| setting == "on"), "{seen:?}");
}
