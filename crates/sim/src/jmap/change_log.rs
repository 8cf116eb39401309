//! The log of changes to one type of object, as `/changes` lists it.

use std::collections::{BTreeMap, BTreeSet};

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoggedEvent {
    Created,
    Updated,
    /// Only its counts have changed.
    Counted,
    Destroyed,
}

/// The order in which pages list changes, which RFC 8620 leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeOrder {
    /// As they happened: a page is a part of the log.
    Log,
    /// Each object once, where it changed last, as Cyrus has it. So an object that is created and soon changed is new on no
    /// page, if one ends in between: it is reported as updated alone, or as destroyed.
    LastChange,
}

#[derive(Debug)]
pub struct JmapChangeLog<K> {
    order: ChangeOrder,
    entries: Vec<(K, LoggedEvent)>,
    /// Changes since an earlier state can no longer be calculated.
    forgotten: usize,
}

/// The changes from one state to another.
#[derive(Debug, PartialEq, Eq)]
pub struct ChangeWindow<K> {
    pub created: Vec<K>,
    pub updated: Vec<K>,
    pub destroyed: Vec<K>,
    /// Nothing but counts has changed.
    pub is_counts_only: bool,
    pub new_state: usize,
    pub has_more: bool,
}

impl<K> Default for ChangeWindow<K> {
    fn default() -> Self {
        let (created, updated, destroyed) = (Vec::new(), Vec::new(), Vec::new());
        Self { created, updated, destroyed, is_counts_only: true, new_state: 0, has_more: false }
    }
}

impl<K: Copy + Ord> JmapChangeLog<K> {
    pub fn new(order: ChangeOrder) -> Self {
        Self { order, entries: Vec::new(), forgotten: 0 }
    }

    pub fn state(&self) -> usize {
        self.entries.len()
    }

    pub fn add(&mut self, key: K, event: LoggedEvent) {
        self.entries.push((key, event));
    }

    /// Forgets all changes so far.
    pub fn forget(&mut self) {
        // Not even changes since the present state, which a client has, can be calculated.
        self.forgotten = self.entries.len() + 1;
    }

    /// Goes back to an earlier state.
    pub fn rewind(&mut self) {
        self.entries.truncate(self.entries.len() / 2);
        self.forgotten = self.forgotten.min(self.entries.len());
    }

    /// Returns the changes of at most `max` objects since a state; `None` if they cannot be calculated. Since a state that is
    /// yet to come there are none, as at Cyrus.
    pub fn since(&self, state: usize, max: usize) -> Option<ChangeWindow<K>> {
        if state < self.forgotten {
            return None;
        }
        let entries = self.entries.get(state..).unwrap_or_default();
        let length = self.page_length(entries, max.max(1));
        let later: BTreeSet<K> = match self.order {
            ChangeOrder::Log => BTreeSet::new(),
            ChangeOrder::LastChange => entries[length..].iter().map(|(key, _)| *key).collect(),
        };
        let page = entries[..length].iter().filter(|(key, _)| !later.contains(key));
        Some(ChangeWindow {
            is_counts_only: entries[..length].iter().all(|(_, event)| *event == LoggedEvent::Counted),
            new_state: state.min(self.entries.len()) + length,
            has_more: length < entries.len(),
            ..sum_up(page)
        })
    }

    /// Returns how many entries a page of at most `max` objects covers.
    fn page_length(&self, entries: &[(K, LoggedEvent)], max: usize) -> usize {
        let mut place_of: BTreeMap<K, usize> = BTreeMap::new();
        for (at, (key, _)) in entries.iter().enumerate() {
            let place = place_of.entry(*key).or_insert(at);
            if self.order == ChangeOrder::LastChange {
                *place = at;
            }
        }
        let mut places: Vec<usize> = place_of.into_values().collect();
        places.sort_unstable();
        match (self.order, places.get(max)) {
            (_, None) => entries.len(),
            (ChangeOrder::Log, Some(next)) => *next,
            (ChangeOrder::LastChange, Some(_)) => places[max - 1] + 1,
        }
    }
}

/// Sums up what happened to each object.
fn sum_up<'a, K: Copy + Ord + 'a>(entries: impl Iterator<Item = &'a (K, LoggedEvent)>) -> ChangeWindow<K> {
    let mut changed: BTreeMap<K, (LoggedEvent, LoggedEvent)> = BTreeMap::new();
    for (key, event) in entries {
        changed.entry(*key).and_modify(|(_, last)| *last = *event).or_insert((*event, *event));
    }
    let mut window = ChangeWindow::default();
    for (key, events) in changed {
        match events {
            (LoggedEvent::Created, LoggedEvent::Destroyed) => {}
            (LoggedEvent::Created, _) => window.created.push(key),
            (_, LoggedEvent::Destroyed) => window.destroyed.push(key),
            _ => window.updated.push(key),
        }
    }
    window
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(order: ChangeOrder) -> JmapChangeLog<u32> {
        let mut log = JmapChangeLog::new(order);
        for (key, event) in [
            (1, LoggedEvent::Created),
            (2, LoggedEvent::Created),
            (1, LoggedEvent::Updated),
            (2, LoggedEvent::Destroyed),
            (3, LoggedEvent::Created),
            (1, LoggedEvent::Destroyed),
        ] {
            log.add(key, event);
        }
        log
    }

    #[test]
    fn window_sums_up_what_happened_to_each_object() {
        let mut log = log(ChangeOrder::Log);

        let all = log.since(0, 10).unwrap();
        assert_eq!((all.created, all.updated, all.destroyed, all.has_more), (vec![3], vec![], vec![], false));
        let first = log.since(0, 2).unwrap();
        assert_eq!((first.created, first.new_state, first.has_more), (vec![1], 4, true));
        let second = log.since(4, 2).unwrap();
        assert_eq!((second.created, second.destroyed, second.has_more), (vec![3], vec![1], false));
        log.forget();
        assert_eq!(log.since(6, 10), None);
    }

    #[test]
    fn object_may_be_listed_only_where_it_changed_last() {
        let mut log = log(ChangeOrder::LastChange);
        log.add(3, LoggedEvent::Updated);

        let first = log.since(0, 2).unwrap();
        assert_eq!((first.created, first.destroyed, first.new_state, first.has_more), (vec![], vec![], 6, true));
        let second = log.since(6, 2).unwrap();
        assert_eq!((second.created, second.updated, second.new_state), (vec![], vec![3], 7));
        assert!(!second.has_more);
    }

    #[test]
    fn later_state_than_the_present_has_no_changes() {
        let mut log = log(ChangeOrder::Log);

        log.rewind();

        let window = log.since(6, 10).unwrap();
        assert_eq!((window.created, window.new_state, window.has_more), (vec![], 3, false));
    }
}
