//! Writes a benchmark mailbox to standard output as mboxrd, and how fast that went to standard error:
//! `cargo run --release -p sim --example mailbox -- 10000 > mail.mbox`

use std::io::{self, BufWriter, Write};
use std::time::Instant;

use sim::mail::{LineEnd, append_to_mbox, bench_mailbox};

fn main() -> io::Result<()> {
    let messages = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(10_000);
    let mut out = BufWriter::new(io::stdout().lock());
    let start = Instant::now();
    let mut bytes = 0;
    for message in bench_mailbox(1, messages) {
        bytes += message.raw.len();
        append_to_mbox(&mut out, &message, LineEnd::CrLf)?;
    }
    out.flush()?;
    let (megabytes, seconds) = (bytes as f64 / 1e6, start.elapsed().as_secs_f64());
    writeln!(io::stderr(), "{messages} messages, {megabytes:.1} MB in {seconds:.2} s")
}
