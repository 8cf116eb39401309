//! The contract for [`WorldConnector`], which tests and storms use.

use std::sync::Arc;

use domain::connector::{ConnectorAccount, FetchRequest, NoApiAccess};
use domain::{Connector, Provider};

use super::{ConnectorUnderTest, ContractFault, CursorExpiry, THROTTLE_WAIT, account, placement_line};
use crate::world::{WorldConnector, WorldFault, WorldFaultKind};

const ADDRESS: &str = "ann@world.example";

/// An account of a world in this process.
#[derive(Debug)]
pub struct WorldUnderTest {
    connector: Arc<WorldConnector>,
}

impl WorldUnderTest {
    pub fn new(messages: usize, seed: u64) -> Self {
        let connector = WorldConnector::new(Provider::Gmail, seed);
        connector.create(ADDRESS, messages);
        Self { connector }
    }
}

impl ConnectorUnderTest for WorldUnderTest {
    fn name(&self) -> &'static str {
        "world"
    }

    fn connector(&self) -> Arc<dyn Connector> {
        self.connector.clone()
    }

    fn account(&self) -> ConnectorAccount {
        account(ADDRESS, "{}".to_owned(), None, Arc::new(NoApiAccess))
    }

    fn refused_account(&self) -> ConnectorAccount {
        account("nobody@world.example", "{}".to_owned(), None, Arc::new(NoApiAccess))
    }

    fn confidential(&self) -> Vec<String> {
        vec!["@world".to_owned()]
    }

    fn step(&self, changes: usize) {
        self.connector.step(ADDRESS, changes);
    }

    fn truth(&self) -> Vec<String> {
        let truth = self.connector.truth(ADDRESS);
        let mut lines = Vec::new();
        for (id, folder) in &truth.folders {
            lines.extend(folder.placements.iter().map(|at| placement_line(id, &at.uid, &at.flags, &at.sha256)));
        }
        lines
    }

    fn lists_sizes(&self) -> bool {
        true
    }

    fn delete(&self, message: &FetchRequest, _folder: &str) {
        for placement in &message.placements {
            self.connector.delete(ADDRESS, placement);
        }
    }

    fn expire_cursors(&self) -> CursorExpiry {
        self.connector.expire_cursors(ADDRESS, true);
        CursorExpiry::Reported
    }

    fn inject(&self, fault: ContractFault) {
        match fault {
            ContractFault::Throttled => {
                let throttled = WorldFaultKind::Throttled { retry_after: Some(THROTTLE_WAIT) };
                self.connector.add_fault(WorldFault::always(throttled));
            }
            ContractFault::Flaky => {
                for kind in [
                    WorldFaultKind::Throttled { retry_after: None },
                    WorldFaultKind::Unavailable,
                    WorldFaultKind::InvalidResponse,
                    WorldFaultKind::RepeatedPage,
                    WorldFaultKind::CutFetch,
                    WorldFaultKind::ShortMessage,
                ] {
                    self.connector.add_fault(WorldFault::sometimes(kind, 0.05));
                }
            }
            // Nothing is written down between this connector and its world, so only a page can be unusual.
            ContractFault::Unfamiliar => {
                self.connector.add_fault(WorldFault::sometimes(WorldFaultKind::RepeatedPage, 0.3));
            }
        }
    }

    fn clear_faults(&self) {
        self.connector.clear_faults();
    }
}
