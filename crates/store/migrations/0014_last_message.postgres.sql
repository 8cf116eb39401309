-- The provider's id of the last new message that a sync of changes found: where it stands, for people who compare with the
-- provider. Written by the update that guards the page. No index over (status, last_sync_at): no query asks by them (what is due
-- is found by next_sync_at), and it would make every sync's update, and every poll's, write an index.
alter table sync_states add column last_message_id text;
