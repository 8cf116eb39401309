//! Prints docs/sql-schema.md; see `make docs`.

#![expect(clippy::print_stdout, reason = "it writes the page to standard output")]

fn main() {
    print!("{}", store::views::page::page());
}
