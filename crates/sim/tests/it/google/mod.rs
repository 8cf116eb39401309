//! The simulated Google, as programs and scripts meet it.

mod gmail;
mod history;
mod listing;
mod place;
