//! `mailroom demo`: the whole product at work in one command, with simulated providers.
//!
//! The providers run in this process, which knows what they have; the server is `mailroom serve` in a process of its own.

mod api;
mod args;
mod check;
mod folder;
mod memory;
mod providers;
mod report;
mod server;
mod settle;
mod system;
mod tour;
mod truth;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use terminal::{Failure, Output, count, note, size};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Installation;
pub use args::DemoArgs;
use folder::DemoFolder;
use memory::MemorySamples;
use report::DemoReport;
use system::{DemoSystem, SystemStatus};

/// Retry-After of the throttled mailbox: long enough for people to see, or short in a demo that ends by itself.
const LONG_RETRY_AFTER: Duration = Duration::from_secs(300);
const SHORT_RETRY_AFTER: Duration = Duration::from_secs(3);

const TICK_INTERVAL: Duration = Duration::from_millis(250);

/// Status lines of traffic that ends by itself: at least so many, and at least one in each interval.
const MIN_STATUS_LINES: u32 = 30;
const MAX_STATUS_INTERVAL: Duration = Duration::from_secs(10);

/// When the traffic ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum TrafficEnd {
    /// There is no traffic: only the mail that exists at the start is synced.
    AtOnce,
    After(Duration),
    OnSignal,
}

pub async fn run(args: &DemoArgs, installation: &dyn Installation, out: Output) -> Result<ExitCode, Failure> {
    let mut signals = StopSignals::listen()?;
    let end = match args.minutes {
        _ if args.once => TrafficEnd::AtOnce,
        Some(minutes) => TrafficEnd::After(Duration::from_secs_f64(minutes * 60.0)),
        None => TrafficEnd::OnSignal,
    };
    let speed = (end != TrafficEnd::AtOnce).then_some(args.rate);
    let listen = server::reserve_address(args.listen)?;
    let folder = DemoFolder::new(args.data_dir.as_deref())?;
    note("Starting a Google, a Microsoft, an IMAP server and Mailroom on this machine …");
    let started = tokio::select! {
        started = DemoSystem::start(args, installation, &folder, listen, speed) => started,
        () = signals.wait() => Err(interrupted()),
    };
    let mut system = match started {
        Ok(system) => system,
        Err(failure) => {
            note(&folder.close_unused());
            return Err(failure);
        }
    };
    let outcome = tokio::select! {
        outcome = play(&mut system, &folder, args, end, out) => outcome.map(DemoEnd::Completed),
        () = signals.wait() => Ok(DemoEnd::Interrupted),
    };
    if matches!(outcome, Ok(DemoEnd::Interrupted)) {
        note("Stopping …");
    }
    let DemoSystem { server, providers, engine, .. } = system;
    drop(engine);
    let stopped = tokio::select! {
        stopped = server.stop() => stopped,
        () = signals.wait() => Ok(()), // a second signal: at once
    };
    drop(providers);
    let is_good =
        matches!(outcome, Ok(DemoEnd::Interrupted | DemoEnd::Completed(ExitCode::SUCCESS))) && stopped.is_ok();
    note(&folder.close(is_good));
    let ended = outcome?;
    stopped?;
    match ended {
        DemoEnd::Completed(code) => Ok(code),
        DemoEnd::Interrupted if end == TrafficEnd::OnSignal => Ok(ExitCode::SUCCESS),
        // A script that waits for the comparison must not take this for a good one.
        DemoEnd::Interrupted => Err(interrupted()),
    }
}

/// How a demo ended.
enum DemoEnd {
    Completed(ExitCode),
    /// By a signal.
    Interrupted,
}

fn interrupted() -> Failure {
    Failure::problem("it was stopped before anything was compared")
}

async fn play(
    system: &mut DemoSystem,
    folder: &DemoFolder,
    args: &DemoArgs,
    end: TrafficEnd,
    out: Output,
) -> Result<ExitCode, Failure> {
    let begun = Instant::now();
    system.connect().await?;
    let retry_after = if end == TrafficEnd::OnSignal { LONG_RETRY_AFTER } else { SHORT_RETRY_AFTER };
    system.cause_problems(retry_after).await?;
    let mut traffic = Traffic::default();
    match end {
        TrafficEnd::AtOnce => {}
        TrafficEnd::After(duration) => traffic.run(system, args, Some(duration)).await?,
        TrafficEnd::OnSignal => {
            tour::announce(system, folder, out).await?;
            note("Ctrl-C ends it.");
            traffic.run(system, args, None).await?;
        }
    }
    let activity = system.providers.activity();
    let comparison = settle::settle(system, folder).await?;
    let Traffic { memory, faults, duration } = traffic;
    let expected_changes = args.rate * duration.as_secs_f64();
    let took = begun.elapsed();
    let report = DemoReport { comparison, memory, faults, activity, expected_changes, took, traffic: duration };
    report.show(out)?;
    Ok(if report.reasons().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Changes at the providers, the faults meanwhile, and the server's memory.
#[derive(Debug, Default)]
struct Traffic {
    memory: MemorySamples,
    faults: u64,
    duration: Duration,
}

impl Traffic {
    /// Lets mail change at the providers for so long, or for ever.
    async fn run(
        &mut self,
        system: &mut DemoSystem,
        args: &DemoArgs,
        duration: Option<Duration>,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let interval =
            duration.map_or(MAX_STATUS_INTERVAL, |duration| (duration / MIN_STATUS_LINES).min(MAX_STATUS_INTERVAL));
        let line = StatusLine::new();
        let mut last_status = begun;
        system.providers.set_rate(args.rate);
        while duration.is_none_or(|duration| begun.elapsed() < duration) {
            tokio::time::sleep(TICK_INTERVAL).await;
            system.server.check_running()?;
            let due = (args.faults_per_second * begun.elapsed().as_secs_f64()) as u64;
            while self.faults < due {
                system.providers.inject_fault(self.faults);
                self.faults += 1;
            }
            let is_due = last_status.elapsed() >= interval;
            if is_due || (line.is_visible() && last_status.elapsed() >= TICK_INTERVAL * 4) {
                last_status = Instant::now();
                let bytes = system.server.memory();
                // Without an end, the samples would take more and more memory.
                if duration.is_some() {
                    self.memory.add(bytes.ok_or_else(|| Failure::problem("the server's memory cannot be read"))?);
                }
                let text = status_line(&system.status().await?, bytes, self.faults, begun.elapsed());
                line.show(&text, duration.is_some());
            }
        }
        self.duration = begun.elapsed();
        Ok(())
    }
}

/// Formats `1:05  23 mailboxes, 3,120 emails; older mail 420 of 1,500; needs_reauth: 1, …`
fn status_line(now: &SystemStatus, bytes: Option<u64>, faults: u64, since: Duration) -> String {
    let seconds = since.as_secs();
    let mut parts = vec![format!("{} mailboxes, {} emails", now.mailboxes, count(now.emails))];
    if let Some((stored, to_fetch)) = now.backfill {
        parts.push(format!("older mail {} of {}", count(stored), count(stored + to_fetch)));
    }
    parts.push(format!(
        "needs_reauth: {}, asked to wait: {}, dead letters: {}, open jobs: {}",
        now.needs_reauth, now.waiting, now.dead_letters, now.open_jobs
    ));
    if faults > 0 {
        parts.push(format!("{} faults", count(faults)));
    }
    parts.extend(bytes.map(|bytes| format!("server {}", size(bytes))));
    format!("{}:{:02}  {}", seconds / 60, seconds % 60, parts.join("; "))
}

/// One line that changes on a terminal; elsewhere a new line now and then, if traffic ends by itself.
struct StatusLine(ProgressBar);

impl StatusLine {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::with_template("{wide_msg}").expect("the template is well-formed"));
        Self(bar)
    }

    fn is_visible(&self) -> bool {
        !self.0.is_hidden()
    }

    fn show(&self, text: &str, is_logged: bool) {
        if self.is_visible() {
            self.0.set_message(text.to_owned());
        } else if is_logged {
            note(text);
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The signals that end the demo; one is that the terminal was closed.
struct StopSignals([Signal; 3]);

impl StopSignals {
    fn listen() -> Result<Self, Failure> {
        Ok(Self([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?]))
    }

    async fn wait(&mut self) {
        let [terminate, interrupt, hangup] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
