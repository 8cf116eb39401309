//! Lets benchmarks and the demo build installations of Mailroom from settings, as this binary does for its own commands.

use std::path::Path;

use engine::Engine;
use engine::sync::Syncer;
use futures_util::future::BoxFuture;
use jobs::Worker;
use lab::Installation;
use store::Location;
use terminal::Failure;

use crate::app;
use crate::config::Config;

impl Installation for Config {
    fn load(&self, file: Option<&Path>, variables: Vec<(String, String)>) -> Result<Box<dyn Installation>, Failure> {
        Ok(Box::new(Self::load(file, variables, None)?))
    }

    fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    fn database(&self) -> Location {
        app::database_location(self)
    }

    fn open(&self) -> BoxFuture<'_, Result<Engine, Failure>> {
        Box::pin(app::open(self))
    }

    fn syncer(&self, engine: &Engine, holder: &str) -> Result<Syncer, Failure> {
        app::syncer(self, engine, holder)
    }

    fn start_worker(&self, syncer: &Syncer, name: &str) -> Worker {
        app::start_worker(self, syncer, name)
    }
}
