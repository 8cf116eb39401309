//! The log of changes to one type of object, as `/changes` lists it.

use std::collections::BTreeMap;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoggedEvent {
    Created,
    Updated,
    /// Only its counts have changed.
    Counted,
    Destroyed,
}

#[derive(Debug)]
pub struct JmapChangeLog<K> {
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

impl<K: Copy + Ord> JmapChangeLog<K> {
    pub fn new() -> Self {
        Self { entries: Vec::new(), forgotten: 0 }
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

    /// Returns the changes of at most `max` objects since a state; `None` if they cannot be calculated.
    pub fn since(&self, state: usize, max: usize) -> Option<ChangeWindow<K>> {
        if state < self.forgotten || state > self.entries.len() {
            return None;
        }
        let mut changed: BTreeMap<K, (LoggedEvent, LoggedEvent)> = BTreeMap::new();
        let (mut new_state, mut is_counts_only) = (state, true);
        for (key, event) in &self.entries[state..] {
            if changed.len() == max && !changed.contains_key(key) {
                break;
            }
            changed.entry(*key).and_modify(|(_, last)| *last = *event).or_insert((*event, *event));
            is_counts_only &= *event == LoggedEvent::Counted;
            new_state += 1;
        }
        let mut window = ChangeWindow {
            created: Vec::new(),
            updated: Vec::new(),
            destroyed: Vec::new(),
            is_counts_only,
            new_state,
            has_more: new_state < self.entries.len(),
        };
        for (key, events) in changed {
            match events {
                (LoggedEvent::Created, LoggedEvent::Destroyed) => {}
                (LoggedEvent::Created, _) => window.created.push(key),
                (_, LoggedEvent::Destroyed) => window.destroyed.push(key),
                _ => window.updated.push(key),
            }
        }
        Some(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_sums_up_what_happened_to_each_object() {
        let mut log = JmapChangeLog::new();
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

        let all = log.since(0, 10).unwrap();
        assert_eq!((all.created, all.updated, all.destroyed, all.has_more), (vec![3], vec![], vec![], false));
        let first = log.since(0, 2).unwrap();
        assert_eq!((first.created, first.new_state, first.has_more), (vec![1], 4, true));
        let second = log.since(4, 2).unwrap();
        assert_eq!((second.created, second.destroyed, second.has_more), (vec![3], vec![1], false));
        log.forget();
        assert_eq!(log.since(6, 10), None);
    }
}
