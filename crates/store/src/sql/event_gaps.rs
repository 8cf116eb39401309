//! Events that a follower has missed without a word: their numbers were given out before a restore, or they were pruned.

use crate::{Row, StoreError, TenantStore, params};

/// Numbers of a tenant that no event has: those between the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EventGap {
    after: u64,
    next: u64,
}

/// Why a follower cannot go on after the number that it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventLoss {
    /// The number was perhaps given out before the database was restored.
    Restored,
    /// Events after it were pruned.
    Pruned,
    /// The number was not given out yet.
    NeverGiven,
}

/// Events that a follower has missed, and the number after which it can go on once it has read what it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissedEvents {
    pub loss: EventLoss,
    pub continue_after: u64,
}

impl TenantStore {
    /// Finds out whether somebody who has read up to this number misses events that [`TenantStore::list_events`] does not
    /// have. Nobody misses any who begins with the first that is there, by the number 0.
    pub async fn find_missed_events(&self, after: u64) -> Result<Option<MissedEvents>, StoreError> {
        if after == 0 {
            return Ok(None);
        }
        let sql = "select (select min(seq) from events where tenant_id = $1),
                          (select event_seq from tenant_counters where tenant_id = $1)";
        let Some(row) = self.query_one(sql, params![self.id]).await? else { return Ok(None) };
        let (first, head): (Option<u64>, Option<u64>) = (row.get(0)?, row.get(1)?);
        let sql =
            "select after_seq, next_seq from event_gaps where tenant_id = $1 and next_seq > $2 order by after_seq";
        let gaps = self.query(sql, params![self.id, after]).await?;
        let gaps = gaps.iter().map(|row: &Row| Ok(EventGap { after: row.get(0)?, next: row.get(1)? }));
        Ok(missed(after, first, head.unwrap_or(0), &gaps.collect::<Result<Vec<_>, StoreError>>()?))
    }

    /// Finds the number of the first event after this one.
    pub async fn find_next_event(&self, after: u64) -> Result<Option<u64>, StoreError> {
        let sql = "select min(seq) from events where tenant_id = $1 and seq > $2";
        self.query_one(sql, params![self.id, after]).await?.map_or(Ok(None), |row| row.get(0))
    }
}

/// `first` is the number of the first event that is there, `head` the last one given out; the gaps end after `after`.
fn missed(after: u64, first: Option<u64>, head: u64, gaps: &[EventGap]) -> Option<MissedEvents> {
    let gap = gaps.iter().find(|gap| gap.after < after && after < gap.next - 1);
    if let Some(gap) = gap {
        return Some(MissedEvents { loss: EventLoss::Restored, continue_after: gap.next - 1 });
    }
    if after > head {
        return Some(MissedEvents { loss: EventLoss::NeverGiven, continue_after: head });
    }
    let last_absent = first.map_or(head, |first| first - 1);
    let absent = last_absent.saturating_sub(after);
    let never_given: u64 =
        gaps.iter().map(|gap| (gap.next - 1).min(last_absent).saturating_sub(gap.after.max(after))).sum();
    (absent > never_given).then_some(MissedEvents { loss: EventLoss::Pruned, continue_after: last_absent })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: EventGap = EventGap { after: 10, next: 100 };

    fn loss(after: u64, first: Option<u64>, head: u64) -> Option<(EventLoss, u64)> {
        let gaps = if head >= GAP.next && after < GAP.next { &[GAP][..] } else { &[] };
        missed(after, first, head, gaps).map(|missed| (missed.loss, missed.continue_after))
    }

    #[test]
    fn pruned_events_are_missed() {
        assert_eq!(loss(3, Some(5), 9), Some((EventLoss::Pruned, 4)));
        assert_eq!(loss(4, Some(5), 9), None);
        assert_eq!(loss(9, None, 9), None);
        assert_eq!(loss(8, None, 9), Some((EventLoss::Pruned, 9)));
        assert_eq!(loss(10, Some(5), 9), Some((EventLoss::NeverGiven, 9)));
    }

    #[test]
    fn numbers_of_a_gap_are_of_another_past() {
        assert_eq!(loss(10, Some(1), 101), None, "what it knows is still so");
        assert_eq!(loss(11, Some(1), 101), Some((EventLoss::Restored, 99)));
        assert_eq!(loss(98, Some(1), 101), Some((EventLoss::Restored, 99)));
        assert_eq!(loss(99, Some(1), 101), None, "it was told to go on there");
        assert_eq!(loss(5, Some(1), 101), None);
    }

    #[test]
    fn numbers_of_a_gap_were_not_pruned() {
        assert_eq!(loss(10, Some(100), 101), None);
        assert_eq!(loss(9, Some(100), 101), Some((EventLoss::Pruned, 99)));
        assert_eq!(loss(10, Some(101), 101), Some((EventLoss::Pruned, 100)));
        assert_eq!(loss(99, None, 101), Some((EventLoss::Pruned, 101)));
    }
}
