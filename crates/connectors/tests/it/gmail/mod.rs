//! The Gmail connector, against a Gmail of somebody else's making and against our simulator.

mod emulate;
mod follow;
mod shim;

use std::sync::Arc;

use connectors::gmail::Gmail;
use connectors::google::GoogleSettings;
use connectors::http::{Deadlines, Http};
use domain::connector::Access;

use crate::mirror::Mirror;

fn mirror(settings: &GoogleSettings, access: Arc<dyn Access>) -> Mirror {
    Mirror::new(Gmail::new(Http::new(Deadlines::default()).unwrap(), settings).unwrap(), access)
}
