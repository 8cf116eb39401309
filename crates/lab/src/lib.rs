//! Benchmarks, the demo and the simulators as commands of the binary, which has them under its feature `lab`.

pub mod bench;
pub mod demo;
mod installation;
pub mod simulator;

pub use installation::Installation;
