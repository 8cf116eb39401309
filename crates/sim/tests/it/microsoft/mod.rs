//! The simulated Microsoft, as programs and scripts meet it.

mod batch;
mod delta;
mod identity;
mod place;
mod programs;
mod reading;
mod speed;
