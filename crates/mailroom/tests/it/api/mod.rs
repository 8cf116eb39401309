//! The HTTP API of a server that is a process: what needs kills, signals or several of them. The API itself is tested in
//! `web/tests/it`.

mod event_streams;
mod killed;
mod operator_key;
