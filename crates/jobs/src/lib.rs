//! The durable queue: kinds of work, who does it, when it is tried again. Has never heard of mail.
//!
//! Rows and their moves are in `store::sql::jobs`; here is everything that happens in memory.

pub mod cron;
pub mod dice;
pub mod fair;
pub mod gate;
pub mod kind;
pub mod leader;
pub mod probe;
pub mod recurring;
pub mod retry;
pub mod trace;
pub mod worker;

pub use dice::{Dice, SystemDice};
pub use gate::{Gate, NoGate};
pub use kind::{Held, Job, JobError, Kind, Kinds, Pool, Verdict, new_job};
pub use retry::Retry;
pub use worker::{Settings, Worker, panic_message};
