//! Fetches the bytes of messages as streams, folder by folder.

use std::collections::{BTreeMap, HashMap};
use std::io;

use domain::ConnectorError;
use domain::connector::{ConnectorAccount, FetchRequest, MessageMetadata, MessageSink};

use super::changes::is_folder_refusal;
use super::client::{BodyFault, BodySink, ImapError, RefusalClass, SearchCriteria, UidSet, WireName};
use super::sessions::Session;
use super::translate::uid_of;

/// Messages of one command; several commands are pipelined.
const MESSAGES_PER_COMMAND: usize = 100;

/// A message, and the index of the placement that is tried next.
type FetchAttempt<'a> = (&'a FetchRequest, usize);

/// Fetches messages into the sink, each from the first of its placements that still exists.
pub async fn fetch(
    session: &mut Session,
    account: &ConnectorAccount,
    request: &[FetchRequest],
    sink: &mut dyn MessageSink,
) -> Result<(), ConnectorError> {
    let mut attempts: Vec<FetchAttempt<'_>> = request.iter().map(|request| (request, 0)).collect();
    while !attempts.is_empty() {
        let mut by_folder: BTreeMap<(&str, u32), HashMap<u32, FetchAttempt<'_>>> = BTreeMap::new();
        let mut next_attempts = Vec::new();
        for (request, at) in attempts {
            let Some(placement) = request.placements.get(at) else {
                sink.fail(&request.message, ConnectorError::Gone);
                continue;
            };
            let Some((validity, uid)) = uid_of(placement) else {
                next_attempts.push((request, at + 1));
                continue;
            };
            let messages_there = by_folder.entry((&placement.folder, validity)).or_default();
            // Two messages with the same placement: that of one of them is outdated.
            next_attempts.extend(messages_there.insert(uid, (request, at)).map(|(request, at)| (request, at + 1)));
        }
        for ((folder, validity), messages) in by_folder {
            let missing = fetch_from(session, account, (folder, validity), messages, sink).await?;
            next_attempts.extend(missing.into_iter().map(|(request, at)| (request, at + 1)));
        }
        attempts = next_attempts;
    }
    Ok(())
}

/// Fetches messages of one folder. Returns those that are not in it.
async fn fetch_from<'a>(
    session: &mut Session,
    account: &ConnectorAccount,
    (folder, validity): (&str, u32),
    messages: HashMap<u32, FetchAttempt<'a>>,
    sink: &mut dyn MessageSink,
) -> Result<Vec<FetchAttempt<'a>>, ConnectorError> {
    let newest = messages.keys().max().copied().unwrap_or(0);
    match open_folder(session, account, (folder, validity), newest).await? {
        FolderAccess::Open => {}
        FolderAccess::Gone => return Ok(messages.into_values().collect()),
        FolderAccess::Unavailable => {
            for (request, _) in messages.into_values() {
                sink.fail(
                    &request.message,
                    ConnectorError::Unavailable("the message's folder cannot be opened".to_owned()),
                );
            }
            return Ok(Vec::new());
        }
    }
    let mut uids: Vec<u32> = messages.keys().copied().collect();
    uids.sort_unstable();
    let sets: Vec<UidSet> = uids.chunks(MESSAGES_PER_COMMAND).map(|uids| uids.iter().copied().collect()).collect();
    let mut bodies = UidBodySink { sink, messages, missing: Vec::new() };
    session.client().fetch_bodies(&sets, &mut bodies).await?;
    let UidBodySink { sink, missing, .. } = bodies;
    let unanswered: UidSet = missing.iter().filter_map(uid_of_attempt).collect();
    if unanswered.is_empty() {
        return Ok(missing);
    }
    // A server may leave out a message that it has; only one that a search does not find either is gone.
    session.client().noop().await?;
    let messages_there =
        session.client().search(&SearchCriteria { within: Some(unanswered), ..SearchCriteria::default() }).await?;
    let (messages_there, gone): (Vec<_>, Vec<_>) = missing
        .into_iter()
        .partition(|attempt| uid_of_attempt(attempt).is_some_and(|uid| messages_there.contains(uid)));
    for (request, _) in messages_there {
        sink.fail(
            &request.message,
            ConnectorError::Unavailable("the server has the message but did not send it".to_owned()),
        );
    }
    Ok(gone)
}

fn uid_of_attempt((request, at): &FetchAttempt<'_>) -> Option<u32> {
    uid_of(&request.placements[*at]).map(|(_, uid)| uid)
}

/// Whether a folder could be opened as it was when its messages were listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FolderAccess {
    Open,
    Gone,
    /// It exists but cannot be opened, perhaps temporarily: its messages may still exist.
    Unavailable,
}

/// Opens the folder, whatever its present name is.
async fn open_folder(
    session: &mut Session,
    account: &ConnectorAccount,
    (folder, validity): (&str, u32),
    newest: u32,
) -> Result<FolderAccess, ConnectorError> {
    // Tries its last known name first; if that is outdated, the folders are listed.
    if let Some(name) = session.name_of(folder)
        && try_open(session, &name, validity, newest).await? == FolderAccess::Open
    {
        return Ok(FolderAccess::Open);
    }
    let matches = session.folders(account).await?;
    match matches.find(folder) {
        Some(matched) => try_open(session, &matched.wire, validity, newest).await,
        // One list that lacks it proves nothing.
        None if account.folders.iter().any(|known| known.id == folder) => Ok(FolderAccess::Unavailable),
        None => Ok(FolderAccess::Gone),
    }
}

async fn try_open(
    session: &mut Session,
    name: &WireName,
    validity: u32,
    newest: u32,
) -> Result<FolderAccess, ConnectorError> {
    let mut opened = session.open_if_needed(name).await;
    // Opens it again if it was opened before the newest of the messages arrived.
    if opened.as_ref().is_ok_and(|examined| examined.uid_next.is_none_or(|next| next <= newest)) {
        opened = session.examine(name).await;
    }
    match opened {
        Ok(examined) if examined.uid_validity.is_none_or(|now| now == validity || validity == 0) => {
            Ok(FolderAccess::Open)
        }
        Ok(_) => Ok(FolderAccess::Gone),
        Err(ImapError::Refused(refusal)) if is_folder_refusal(&refusal) => Ok(FolderAccess::Unavailable),
        Err(e) => Err(e.into()),
    }
}

/// Passes messages on under our ids instead of their UIDs.
struct UidBodySink<'s, 'a> {
    sink: &'s mut dyn MessageSink,
    messages: HashMap<u32, FetchAttempt<'a>>,
    missing: Vec<FetchAttempt<'a>>,
}

impl BodySink for UidBodySink<'_, '_> {
    fn begin(&mut self, uid: u32, _length: u64) {
        if let Some((request, _)) = self.messages.get(&uid) {
            self.sink.begin(&request.message);
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sink.write(bytes)
    }

    fn end(&mut self) -> io::Result<()> {
        self.sink.end(MessageMetadata::default())
    }

    fn fail(&mut self, uid: u32, fault: BodyFault) {
        let Some((request, at)) = self.messages.get(&uid) else { return };
        let error = match fault {
            BodyFault::Missing => return self.missing.push((request, *at)),
            BodyFault::Empty => ConnectorError::Protocol("the server has no bytes of the message".to_owned()),
            BodyFault::TooLarge(_) => ConnectorError::Protocol("the message is larger than the limit".to_owned()),
            BodyFault::Refused(refusal) => match refusal.class {
                RefusalClass::Transient | RefusalClass::Throttled => {
                    ConnectorError::Unavailable("the server refuses the message".to_owned())
                }
                _ => ConnectorError::Protocol("the server refuses the message".to_owned()),
            },
            BodyFault::Cut => ConnectorError::Unavailable("the message was cut off".to_owned()),
        };
        self.sink.fail(&request.message, error);
    }
}
