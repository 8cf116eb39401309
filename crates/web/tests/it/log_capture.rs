//! Log lines of one test.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;

/// Collects what this thread logs at the default level, so a test uses it on a runtime of one thread.
#[derive(Clone, Default)]
pub struct LogCapture(Arc<Mutex<Vec<u8>>>);

impl Write for LogCapture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LogCapture {
    /// Captures until the guard is dropped.
    pub fn start(&self) -> DefaultGuard {
        let lines = self.clone();
        let subscriber = tracing_subscriber::fmt().with_env_filter("info").with_writer(move || lines.clone());
        tracing::subscriber::set_default(subscriber.finish())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}
