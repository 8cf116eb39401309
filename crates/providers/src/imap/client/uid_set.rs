//! Sets of UIDs, stored as ranges: a server's `1:4294967295` costs as much as a single UID.

use std::fmt;

use super::ImapError;

/// The longest set within one command: servers accept lines of 8,000 octets.
const MAX_SET_CHARS: usize = 7_000;

/// UIDs as ranges in ascending order that neither overlap nor touch. A range up to `u32::MAX` is written `n:*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UidSet(Vec<(u32, u32)>);

impl UidSet {
    /// Returns all UIDs from `first` on.
    pub fn from(first: u32) -> Self {
        Self::range(first, u32::MAX)
    }

    /// Returns a range with both ends, in either order. There is no UID 0.
    pub fn range(one: u32, other: u32) -> Self {
        let (first, last) = (one.min(other).max(1), one.max(other));
        Self(if last == 0 { Vec::new() } else { vec![(first, last)] })
    }

    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of UIDs.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    pub fn first(&self) -> Option<u32> {
        self.0.first().map(|range| range.0)
    }

    pub fn last(&self) -> Option<u32> {
        self.0.last().map(|range| range.1)
    }

    /// Returns the UID of a set that has exactly one.
    pub fn only(&self) -> Option<u32> {
        self.first().filter(|first| self.len() == 1 && *first > 0)
    }

    pub fn contains(&self, uid: u32) -> bool {
        let after = self.0.partition_point(|range| range.0 <= uid);
        after > 0 && self.0[after - 1].1 >= uid
    }

    /// Iterates over the UIDs in ascending order. Check [`UidSet::len`] first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// Returns the UIDs in either set.
    pub fn union(&self, other: &Self) -> Self {
        normalized([self.0.as_slice(), &other.0].concat())
    }

    /// Returns the UIDs in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut mine, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = Vec::new();
        while let (Some(one), Some(two)) = (mine.peek(), theirs.peek()) {
            let (first, last) = (one.0.max(two.0), one.1.min(two.1));
            if first <= last {
                both.push((first, last));
            }
            if one.1 < two.1 {
                mine.next()
            } else {
                theirs.next()
            };
        }
        Self(both)
    }

    /// Returns the UIDs that are not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        let mut others = other.0.as_slice();
        for (first, last) in &self.0 {
            let mut from = Some(*first);
            others = &others[others.partition_point(|range| range.1 < *first)..];
            for (taken_first, taken_last) in others.iter().take_while(|range| range.0 <= *last) {
                if let Some(start) = from.filter(|start| start < taken_first) {
                    left.push((start, taken_first - 1));
                }
                from = taken_last.checked_add(1).filter(|next| next <= last);
            }
            if let Some(start) = from {
                left.push((start, *last));
            }
        }
        Self(left)
    }

    /// Parses `2,4:7,9:*`, with the ends of a range in either order.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut ranges = Vec::new();
        for part in text.split(|byte| *byte == b',') {
            let mut ends = part.splitn(2, |byte| *byte == b':');
            let one = parse_end(ends.next()?)?;
            let other = ends.next().map_or(Some(one), parse_end)?;
            let (first, last) = (one.min(other).max(1), one.max(other));
            if last > 0 {
                ranges.push((first, last));
            }
        }
        Some(normalized(ranges))
    }

    /// Splits the set into parts that fit into a command each.
    pub fn chunks(&self) -> Vec<Self> {
        let mut chunks = Vec::new();
        let (mut chunk, mut length) = (Vec::new(), 0);
        for range in &self.0 {
            // Two numbers of at most ten digits, a colon and a comma.
            let more = digits(range.0) + digits(range.1) + 2;
            if length + more > MAX_SET_CHARS {
                chunks.push(Self(std::mem::take(&mut chunk)));
                length = 0;
            }
            length += more;
            chunk.push(*range);
        }
        if !chunk.is_empty() {
            chunks.push(Self(chunk));
        }
        chunks
    }
}

fn parse_end(text: &[u8]) -> Option<u32> {
    if text == b"*" { Some(u32::MAX) } else { super::lex::number(text) }
}

fn digits(number: u32) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

fn normalized(mut ranges: Vec<(u32, u32)>) -> UidSet {
    ranges.sort_unstable();
    let mut set: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match set.last_mut() {
            Some(before) if before.1.checked_add(1).is_none_or(|next| next >= first) => before.1 = before.1.max(last),
            _ => set.push((first, last)),
        }
    }
    UidSet(set)
}

/// Collects the UIDs that a server sends, up to a limit.
#[derive(Debug)]
pub struct UidCollector {
    ranges: Vec<(u32, u32)>,
    max_ranges: usize,
}

impl UidCollector {
    pub fn new(max_ranges: usize) -> Self {
        Self { ranges: Vec::new(), max_ranges }
    }

    pub fn add(&mut self, ranges: &[(u32, u32)]) -> Result<(), ImapError> {
        if self.ranges.len() + ranges.len() > self.max_ranges {
            // Many of them may be repetitions.
            self.ranges = normalized(std::mem::take(&mut self.ranges)).0;
        }
        if self.ranges.len() + ranges.len() > self.max_ranges {
            return Err(ImapError::LimitExceeded("a set of UIDs is too long"));
        }
        self.ranges.extend_from_slice(ranges);
        Ok(())
    }

    /// Adds a UID, which usually follows the last one.
    pub fn add_one(&mut self, uid: u32) -> Result<(), ImapError> {
        match self.ranges.last_mut() {
            Some(before) if before.1.checked_add(1) == Some(uid) => {
                before.1 = uid;
                Ok(())
            }
            _ if uid == 0 => Ok(()),
            _ => self.add(&[(uid, uid)]),
        }
    }

    pub fn into_set(self) -> UidSet {
        normalized(self.ranges)
    }
}

impl FromIterator<u32> for UidSet {
    fn from_iter<I: IntoIterator<Item = u32>>(uids: I) -> Self {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        // UIDs mostly come in order, and then no normalization is needed.
        for uid in uids.into_iter().filter(|uid| *uid > 0) {
            match ranges.last_mut() {
                Some(before) if before.1.checked_add(1) == Some(uid) => before.1 = uid,
                _ => ranges.push((uid, uid)),
            }
        }
        normalized(ranges)
    }
}

/// The syntax of commands.
impl fmt::Display for UidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            match (first, last) {
                (first, &u32::MAX) => write!(f, "{first}:*")?,
                (first, last) if first == last => write!(f, "{first}")?,
                (first, last) => write!(f, "{first}:{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> UidSet {
        UidSet::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn set_is_written_in_its_shortest_form() {
        for (text, normalized) in [
            ("1", "1"),
            ("3,1,2", "1:3"),
            ("7:4,9:*", "4:7,9:*"),
            ("5:6,1:10,11", "1:11"),
            ("4294967295", "4294967295:*"),
            ("0:3", "1:3"),
            ("1:4294967295", "1:*"),
        ] {
            assert_eq!(set(text).to_string(), normalized, "{text}");
        }
        for text in ["", "a", "1,", "1:", ":1", "1:2:3", "4294967296", "-1", "1 2", "**"] {
            assert_eq!(UidSet::parse(text.as_bytes()), None, "{text}");
        }
        assert!(set("0").is_empty());
        assert_eq!(set("1:4294967295").len(), u64::from(u32::MAX));
    }

    #[test]
    fn set_is_collected_from_uids_in_any_order() {
        assert_eq!(
            [5, 1, 2, 3, 2, 0, u32::MAX].into_iter().collect::<UidSet>().ranges(),
            [(1, 3), (5, 5), (u32::MAX, u32::MAX)]
        );
        assert_eq!(set("1:3,7").iter().collect::<Vec<_>>(), [1, 2, 3, 7]);
    }

    #[test]
    fn sets_are_united_intersected_and_subtracted() {
        let (one, two) = (set("1:10,20,30:40"), set("5:8,20:35"));

        assert_eq!(one.union(&two), set("1:10,20:40"));
        assert_eq!(one.intersection(&two), set("5:8,20,30:35"));
        assert_eq!(one.without(&two), set("1:4,9:10,36:40"));
        assert_eq!(two.without(&one), set("21:29"));
        assert_eq!(set("1:*").without(&set("3:*")), set("1:2"));
        for uid in [1, 10, 20, 30, 40] {
            assert!(one.contains(uid), "{uid}");
        }
        for uid in [0, 11, 19, 21, 29, 41, u32::MAX] {
            assert!(!one.contains(uid), "{uid}");
        }
    }

    #[test]
    fn long_set_is_split_for_commands() {
        let long: UidSet = (0..10_000).map(|n| 4_000_000_000 + 2 * n).collect();

        let chunks = long.chunks();

        assert!(chunks.iter().all(|chunk| chunk.to_string().len() <= MAX_SET_CHARS));
        assert!(chunks.len() > 10 && chunks.len() < 40);
        assert_eq!(chunks.iter().fold(UidSet::default(), |all, chunk| all.union(chunk)), long);
        assert!(UidSet::default().chunks().is_empty());
    }
}
