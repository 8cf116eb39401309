//! Progress bars on standard error, when it is a terminal.

use std::sync::Arc;
use std::time::Duration;

use engine::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What is counted.
#[derive(Debug, Clone, Copy)]
pub enum ProgressUnit {
    Bytes,
    Items,
}

/// Progress bar that follows a piece of work until it is dropped.
#[derive(Debug)]
pub struct Bar {
    bar: ProgressBar,
    ticking: tokio::task::JoinHandle<()>,
}

/// Often enough to look alive, at negligible cost.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

impl Bar {
    pub fn follow(progress: &Arc<Progress>, unit: ProgressUnit, what: &'static str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style(unit));
        let (watched, shown) = (progress.clone(), bar.clone());
        let ticking = tokio::spawn(async move {
            loop {
                tokio::time::sleep(REDRAW_INTERVAL).await;
                if watched.total() > 0 {
                    shown.set_length(watched.total());
                }
                shown.set_position(watched.done());
                shown.set_message(format!("{} {what}", crate::output::count(watched.items())));
            }
        });
        Self { bar, ticking }
    }

    /// Prints a sentence above the bar.
    pub fn note(&self, sentence: &str) {
        self.bar.suspend(|| crate::output::note(sentence));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.ticking.abort();
        self.bar.finish_and_clear();
    }
}

fn style(unit: ProgressUnit) -> ProgressStyle {
    let template = match unit {
        ProgressUnit::Bytes => "{bar:30} {percent:>3} %  {msg}  {bytes_per_sec}  {eta} left",
        ProgressUnit::Items => "{bar:30} {percent:>3} %  {msg}  {per_sec}  {eta} left",
    };
    ProgressStyle::with_template(template).expect("the templates above are well-formed").progress_chars("━╸─")
}
