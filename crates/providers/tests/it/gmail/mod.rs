//! The Gmail connector, against a Gmail of somebody else's making and against our simulator.

mod account;
mod emulate;
mod faults;
mod hostile;
mod listing;
mod shim;
