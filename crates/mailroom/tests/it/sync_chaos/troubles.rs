//! What happens to the processes and to what they rely on.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{LEASE, MAILBOXES, Storm};
use crate::crash::Random;
use crate::servers::Postgres;

/// How often each came.
#[derive(Debug, Default)]
pub struct Troubles {
    pub kills: u32,
    pub pauses: u32,
    pub restarts: u32,
    pub redis_away: u32,
    pub blobs_away: u32,
    pub cursors_expired: u32,
}

/// So many before a storm may end, however slow everything is.
const FEWEST: u32 = 4;

impl Storm<'_> {
    pub fn rage(&mut self, random: &mut Random, duration: Duration, server: Option<&Postgres>) -> Troubles {
        let mut troubles = Troubles::default();
        let begun = Instant::now();
        let mut made = 0;
        while begun.elapsed() < duration || made < FEWEST {
            sleep(Duration::from_millis(200 + random.below(1200)));
            if random.below(2) == 0 {
                let number = 1 + usize::try_from(random.below(MAILBOXES as u64)).unwrap();
                self.source.expire_cursors(number, random.below(3) == 0);
                troubles.cursors_expired += 1;
            }
            self.make_trouble(random, server, &mut troubles);
            made += 1;
            if random.below(3) == 0 {
                self.help("needs_reauth");
            }
        }
        troubles
    }

    fn make_trouble(&mut self, random: &mut Random, server: Option<&Postgres>, troubles: &mut Troubles) {
        let n = usize::try_from(random.below(self.running.len() as u64)).unwrap();
        match (random.below(10), server) {
            (0, Some(server)) => {
                server.restart();
                troubles.restarts += 1;
            }
            (1 | 8, _) if self.redis.is_some() && random.below(2) == 0 => {
                self.take_redis_away(Duration::from_millis(200 + random.below(2000)));
                troubles.redis_away += 1;
            }
            (1, _) => {
                self.take_blobs_away(Duration::from_millis(200 + random.below(800)));
                troubles.blobs_away += 1;
            }
            (2..=4, _) => {
                assert!(self.running[n].pause(), "a server ended by itself");
                // Long enough for the others to take it for dead.
                sleep(LEASE.mul_f64(1.2 + random.below(10) as f64 / 10.0));
                self.running[n].resume();
                troubles.pauses += 1;
            }
            _ => {
                assert!(!self.running[n].has_ended(), "a server ended by itself");
                self.running.remove(n).kill();
                self.start();
                troubles.kills += 1;
            }
        }
    }

    /// It comes back empty: whoever had a turn has none any more.
    fn take_redis_away(&self, how_long: Duration) {
        let Some(redis) = &self.redis else { return };
        redis.halt();
        sleep(how_long);
        redis.resume();
    }

    /// Where the folder of the blobs was there is nothing that anything can be written to.
    fn take_blobs_away(&self, how_long: Duration) {
        let blobs = self.place.data_dir().join("blobs");
        let away = self.place.data_dir().join("blobs-away");
        fs::rename(&blobs, &away).unwrap();
        fs::write(&blobs, "").unwrap();
        sleep(how_long);
        fs::remove_file(&blobs).unwrap();
        fs::rename(&away, &blobs).unwrap();
    }
}
