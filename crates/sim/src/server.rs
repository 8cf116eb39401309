//! Every simulated provider on one listener.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::http::Listening;
use crate::{google, microsoft, scripted};

/// Serves until it is dropped.
#[derive(Debug)]
pub struct Server(Listening);

impl Server {
    pub fn start(
        listener: TcpListener,
        scripted: Arc<scripted::World>,
        google: &Arc<google::World>,
        microsoft: &Arc<microsoft::World>,
    ) -> io::Result<Self> {
        let routes = scripted::routes(&scripted).merge(google::routes(google)).merge(microsoft::routes(microsoft));
        let listening = google::start_tasks(Listening::start(listener, routes)?, google);
        Ok(Self(microsoft::start_tasks(listening, microsoft).with_task(scripted::change(scripted))))
    }

    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    pub fn url(&self) -> String {
        self.0.url()
    }
}
