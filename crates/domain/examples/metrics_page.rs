//! Prints docs/metrics.md; see `make docs`.

fn main() {
    print!("{}", domain::metrics::page());
}
