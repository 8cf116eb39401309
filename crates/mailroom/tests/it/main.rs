//! The product as a whole: the built program, run as people and scripts run it, on SQLite and on PostgreSQL.

#![expect(clippy::unwrap_used, reason = "this whole program is a test")]

mod api;
mod backup;
mod bad_input;
mod bench_jobs;
mod blobs_away;
mod commands;
mod corpus;
mod crash;
mod databases;
mod disks;
mod dump;
mod durability;
mod edge;
mod elsewhere;
mod export;
mod failpoints;
mod gc;
mod http;
mod imap_commands;
mod imap_serve;
mod import;
mod jobs;
mod jobs_killed;
mod jobs_unanswered;
mod mail;
mod mailboxes;
mod memory;
mod objects;
mod place;
mod processes;
mod restart;
mod search;
mod secrets;
mod serve;
mod servers;
mod signed_urls;
mod sim;
mod sync_chaos;
mod tenants;
mod tokens;
mod tour;
mod upgrade;
mod verify;
mod webhooks;
