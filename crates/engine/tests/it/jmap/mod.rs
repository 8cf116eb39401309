//! JMAP mailboxes, synced by the engine from the simulator.

mod mailbox_life;
