//! The simulated Microsoft, as programs and scripts meet it.

mod identity;
mod place;
mod programs;
