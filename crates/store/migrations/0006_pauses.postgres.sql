-- Until when a mailbox's provider is left alone, and why: for people. It is over by itself when the moment has passed.
alter table sync_states add column paused_until timestamptz, add column paused_reason text;
