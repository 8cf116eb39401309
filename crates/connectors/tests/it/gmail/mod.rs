//! The Gmail connector, against a Gmail of somebody else's making and against our simulator.

mod emulate;
mod follow;
mod mirror;
mod shim;
