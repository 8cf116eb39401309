//! The Outlook connector, against our simulator.

mod follow;
