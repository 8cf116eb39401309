//! Prints docs/events.md; see `make docs`.

#![expect(clippy::print_stdout, reason = "it writes the page to standard output")]

fn main() {
    print!("{}", domain::event_type::page());
}
