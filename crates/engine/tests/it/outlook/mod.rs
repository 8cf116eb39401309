//! Outlook mailboxes, synced by the engine from the simulator.

mod scene;
mod story;
mod table;
