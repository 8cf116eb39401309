//! The Gmail connector, against a Gmail of somebody else's making and against our simulator.

mod emulate;
mod mirror;
mod shim;
