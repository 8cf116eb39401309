//! `mailroom demo`: the whole product at work in one command, with providers that do not exist.
//!
//! The providers run in this process, which knows what they really have; the server is `mailroom serve` in one of its own.

mod api;
mod check;
mod memory;
mod place;
mod providers;
mod report;
mod scene;
mod server;
mod settle;
mod tour;
mod truth;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::demo::Demo;
use crate::failure::Failure;
use crate::output::{Output, count, size, tell};
use memory::Memory;
use place::Place;
use report::Report;
use scene::{Moment, Scene};

/// What the throttled mailbox is told to wait for: long enough to be seen by people, short where nobody looks.
const SEEN: Duration = Duration::from_secs(300);
const UNSEEN: Duration = Duration::from_secs(3);

const TICK: Duration = Duration::from_millis(250);

/// How often a line is told of traffic that ends by itself, at most and at least.
const TOLD: usize = 30;
const OFTEN: Duration = Duration::from_secs(10);

/// How long traffic goes on.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Until {
    /// There is none: what is there is taken in.
    Once,
    After(Duration),
    SomebodyEndsIt,
}

pub async fn run(args: &Demo, out: Output) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen()?;
    let until = match (args.once, args.minutes) {
        (true, _) => Until::Once,
        (false, Some(minutes)) => Until::After(Duration::from_secs_f64(minutes * 60.0)),
        (false, None) => Until::SomebodyEndsIt,
    };
    let pace = (until != Until::Once).then_some(args.rate);
    let listen = server::free(args.listen)?;
    let place = Place::new(args.data_dir.as_deref())?;
    tell("Starting a Google, a Microsoft, an IMAP server and Mailroom on this machine …");
    let started = tokio::select! {
        started = Scene::start(args, &place, listen, pace) => started,
        () = signals.wait() => Err(interrupted()),
    };
    let mut scene = match started {
        Ok(scene) => scene,
        Err(failure) => {
            tell(&place.leave_unused());
            return Err(failure);
        }
    };
    let outcome = tokio::select! {
        outcome = play(&mut scene, &place, args, until, out) => outcome.map(Ended::As),
        () = signals.wait() => Ok(Ended::BySomebody),
    };
    if matches!(outcome, Ok(Ended::BySomebody)) {
        tell("Stopping …");
    }
    let Scene { server, providers, engine, .. } = scene;
    drop(engine);
    let stopped = tokio::select! {
        stopped = server.stop() => stopped,
        () = signals.wait() => Ok(()), // once more: at once
    };
    drop(providers);
    let is_good = matches!(outcome, Ok(Ended::BySomebody | Ended::As(ExitCode::SUCCESS))) && stopped.is_ok();
    tell(&place.leave(is_good));
    let ended = outcome?;
    stopped?;
    match ended {
        Ended::As(code) => Ok(code),
        Ended::BySomebody if until == Until::SomebodyEndsIt => Ok(ExitCode::SUCCESS),
        // Whoever waits for the comparison must not take this for a good one.
        Ended::BySomebody => Err(interrupted()),
    }
}

/// How it ended.
enum Ended {
    As(ExitCode),
    BySomebody,
}

fn interrupted() -> Failure {
    Failure::problem("it was stopped before anything was compared")
}

async fn play(scene: &mut Scene, place: &Place, args: &Demo, until: Until, out: Output) -> Result<ExitCode, Failure> {
    let begun = Instant::now();
    scene.connect().await?;
    scene.make_trouble(if until == Until::SomebodyEndsIt { SEEN } else { UNSEEN }).await?;
    let mut traffic = Traffic::default();
    match until {
        Until::Once => {}
        Until::After(duration) => traffic.flow(scene, args, Some(duration)).await?,
        Until::SomebodyEndsIt => {
            tour::announce(scene, place, out).await?;
            tell("Ctrl-C ends it.");
            traffic.flow(scene, args, None).await?;
        }
    }
    let happened = scene.providers.happened();
    let checked = settle::settle(scene, place).await?;
    let Traffic { memory, faults, lasted } = traffic;
    let expected = args.rate * lasted.as_secs_f64();
    let report = Report { checked, memory, faults, happened, expected, took: begun.elapsed(), traffic: lasted };
    report.show(out)?;
    Ok(if report.reasons().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Mail that comes and goes, and what goes wrong meanwhile.
#[derive(Debug, Default)]
struct Traffic {
    memory: Memory,
    faults: u64,
    lasted: Duration,
}

impl Traffic {
    async fn flow(&mut self, scene: &mut Scene, args: &Demo, duration: Option<Duration>) -> Result<(), Failure> {
        let begun = Instant::now();
        let every = duration.map_or(OFTEN, |duration| (duration / TOLD as u32).min(OFTEN));
        let line = Line::new();
        let mut told = begun;
        scene.providers.set_rate(args.rate);
        while duration.is_none_or(|duration| begun.elapsed() < duration) {
            tokio::time::sleep(TICK).await;
            scene.server.check()?;
            let due = (args.faults_per_second * begun.elapsed().as_secs_f64()) as u64;
            while self.faults < due {
                scene.providers.fail(self.faults);
                self.faults += 1;
            }
            if told.elapsed() >= every || (line.is_seen() && told.elapsed() >= TICK * 4) {
                told = Instant::now();
                let bytes = scene.server.memory();
                // A demo that nobody ends would remember more and more.
                if duration.is_some() {
                    self.memory.add(bytes.ok_or_else(|| Failure::problem("the server's memory cannot be read"))?);
                }
                let text = sentence(&scene.look().await?, bytes, self.faults, begun.elapsed());
                line.show(&text, duration.is_some());
            }
        }
        self.lasted = begun.elapsed();
        Ok(())
    }
}

/// `1:05  23 mailboxes, 3,120 emails; older mail 420 of 1,500; needs_reauth: 1, …`
fn sentence(now: &Moment, bytes: Option<u64>, faults: u64, since: Duration) -> String {
    let seconds = since.as_secs();
    let mut parts = vec![format!("{} mailboxes, {} emails", now.mailboxes, count(now.emails))];
    if let Some((stored, to_fetch)) = now.backfill {
        parts.push(format!("older mail {} of {}", count(stored), count(stored + to_fetch)));
    }
    parts.push(format!(
        "needs_reauth: {}, asked to wait: {}, dead letters: {}, open jobs: {}",
        now.needs_reauth, now.waiting, now.dead, now.jobs
    ));
    if faults > 0 {
        parts.push(format!("{} faults", count(faults)));
    }
    parts.extend(bytes.map(|bytes| format!("server {}", size(bytes))));
    format!("{}:{:02}  {}", seconds / 60, seconds % 60, parts.join("; "))
}

/// One line that changes on a terminal; elsewhere a line now and then, where traffic ends by itself.
struct Line(ProgressBar);

impl Line {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::with_template("{wide_msg}").expect("the template is well-formed"));
        Self(bar)
    }

    fn is_seen(&self) -> bool {
        !self.0.is_hidden()
    }

    fn show(&self, text: &str, is_told: bool) {
        if self.is_seen() {
            self.0.set_message(text.to_owned());
        } else if is_told {
            tell(text);
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// What tells us to stop; a terminal that is closed does as well.
struct Signals([Signal; 3]);

impl Signals {
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
