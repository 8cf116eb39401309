//! The bytes of messages, folder by folder, streamed through.

use std::collections::{BTreeMap, HashMap};
use std::io;

use domain::ConnectorError;
use domain::connector::{Account, Facts, Sink, Wanted};

use super::changes::is_about_the_folder;
use super::client::{BodyFault, BodySink, Class, ImapError, Search, UidSet, WireName};
use super::sessions::Session;
use super::translate::uid_of;

/// Messages of one command; several commands are under way at once.
const AT_ONCE: usize = 100;

/// A message, and which of its places is tried next.
type Asked<'a> = (&'a Wanted, usize);

pub async fn fetch(
    session: &mut Session,
    account: &Account,
    wanted: &[Wanted],
    sink: &mut dyn Sink,
) -> Result<(), ConnectorError> {
    let mut asked: Vec<Asked<'_>> = wanted.iter().map(|wanted| (wanted, 0)).collect();
    while !asked.is_empty() {
        let mut by_folder: BTreeMap<(&str, u32), HashMap<u32, Asked<'_>>> = BTreeMap::new();
        let mut again = Vec::new();
        for (wanted, at) in asked {
            let Some(place) = wanted.places.get(at) else {
                sink.fail(&wanted.message, ConnectorError::Gone);
                continue;
            };
            let Some((validity, uid)) = uid_of(place) else {
                again.push((wanted, at + 1));
                continue;
            };
            let there = by_folder.entry((&place.folder, validity)).or_default();
            // Two messages in one place: of one of them we know an older story.
            again.extend(there.insert(uid, (wanted, at)).map(|(wanted, at)| (wanted, at + 1)));
        }
        for ((folder, validity), messages) in by_folder {
            let missing = fetch_from(session, account, (folder, validity), messages, sink).await?;
            again.extend(missing.into_iter().map(|(wanted, at)| (wanted, at + 1)));
        }
        asked = again;
    }
    Ok(())
}

/// Those of a folder; which of them are not there.
async fn fetch_from<'a>(
    session: &mut Session,
    account: &Account,
    (folder, validity): (&str, u32),
    messages: HashMap<u32, Asked<'a>>,
    sink: &mut dyn Sink,
) -> Result<Vec<Asked<'a>>, ConnectorError> {
    let newest = messages.keys().max().copied().unwrap_or(0);
    match enter(session, account, (folder, validity), newest).await? {
        Entered::There => {}
        Entered::Gone => return Ok(messages.into_values().collect()),
        Entered::Shut => {
            for (wanted, _) in messages.into_values() {
                sink.fail(&wanted.message, ConnectorError::Unavailable("its folder cannot be opened".to_owned()));
            }
            return Ok(Vec::new());
        }
    }
    let mut uids: Vec<u32> = messages.keys().copied().collect();
    uids.sort_unstable();
    let sets: Vec<UidSet> = uids.chunks(AT_ONCE).map(|uids| uids.iter().copied().collect()).collect();
    let mut bodies = Bodies { sink, messages, missing: Vec::new() };
    session.client().fetch_bodies(&sets, &mut bodies).await?;
    let Bodies { sink, missing, .. } = bodies;
    let uid = |(wanted, at): &Asked<'_>| uid_of(&wanted.places[*at]).map(|(_, uid)| uid);
    let unanswered: UidSet = missing.iter().filter_map(uid).collect();
    if unanswered.is_empty() {
        return Ok(missing);
    }
    // A server may leave out one that it has; only what it does not find either is gone.
    session.client().noop().await?;
    let there = session.client().search(&Search { within: Some(unanswered), ..Search::default() }).await?;
    let (there, gone): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|asked| uid(asked).is_some_and(|uid| there.contains(uid)));
    for (wanted, _) in there {
        sink.fail(&wanted.message, ConnectorError::Unavailable("the server has it and did not give it".to_owned()));
    }
    Ok(gone)
}

/// Whether a folder is still what it was when its messages were seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entered {
    There,
    Gone,
    /// It is listed and cannot be opened, perhaps for a while: that says nothing of what is in it.
    Shut,
}

/// Opens the folder as it was when the messages were seen.
async fn enter(
    session: &mut Session,
    account: &Account,
    (folder, validity): (&str, u32),
    newest: u32,
) -> Result<Entered, ConnectorError> {
    // What it was called a moment ago; if that does not hold any more, all are listed.
    if let Some(name) = session.name_of(folder)
        && try_to_enter(session, &name, validity, newest).await? == Entered::There
    {
        return Ok(Entered::There);
    }
    let matched = session.folders(account).await?;
    match matched.find(folder) {
        Some(ours) => try_to_enter(session, &ours.wire, validity, newest).await,
        None => Ok(Entered::Gone),
    }
}

async fn try_to_enter(
    session: &mut Session,
    name: &WireName,
    validity: u32,
    newest: u32,
) -> Result<Entered, ConnectorError> {
    let mut entered = session.enter(name).await;
    // It was opened before the newest of them came.
    if entered.as_ref().is_ok_and(|examined| examined.uid_next.is_none_or(|next| next <= newest)) {
        entered = session.examine(name).await;
    }
    match entered {
        Ok(examined) if examined.uid_validity.is_none_or(|now| now == validity || validity == 0) => Ok(Entered::There),
        Ok(_) => Ok(Entered::Gone),
        Err(ImapError::Refused(refusal)) if is_about_the_folder(&refusal) => Ok(Entered::Shut),
        Err(e) => Err(e.into()),
    }
}

/// From UIDs to what the messages are called.
struct Bodies<'s, 'a> {
    sink: &'s mut dyn Sink,
    messages: HashMap<u32, Asked<'a>>,
    missing: Vec<Asked<'a>>,
}

impl BodySink for Bodies<'_, '_> {
    fn begin(&mut self, uid: u32, _length: u64) {
        if let Some((wanted, _)) = self.messages.get(&uid) {
            self.sink.begin(&wanted.message);
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sink.write(bytes)
    }

    fn end(&mut self) -> io::Result<()> {
        self.sink.end(Facts::default())
    }

    fn fail(&mut self, uid: u32, fault: BodyFault) {
        let Some((wanted, at)) = self.messages.get(&uid) else { return };
        let error = match fault {
            BodyFault::Missing => return self.missing.push((wanted, *at)),
            BodyFault::Empty => ConnectorError::Protocol("the server has no bytes of it".to_owned()),
            BodyFault::TooLarge(_) => ConnectorError::Protocol("it is longer than anything we take".to_owned()),
            BodyFault::Refused(refusal) => match refusal.class {
                Class::Transient | Class::Throttled => ConnectorError::Unavailable("the server refuses it".to_owned()),
                _ => ConnectorError::Protocol("the server refuses it".to_owned()),
            },
            BodyFault::Cut => ConnectorError::Unavailable("it was cut off".to_owned()),
        };
        self.sink.fail(&wanted.message, error);
    }
}
