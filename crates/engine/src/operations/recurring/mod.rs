//! What an operator can do to a recurring job.

mod pause;
mod resume;
mod run;

use store::sql::schedules::Schedule;

use super::invocation::AuditedChange;
use super::{Operation, Refusal};
use jobs::recurring::RecurringError;

pub use pause::pause;
pub use resume::resume;
pub use run::run;

fn audited(operation: &'static Operation, schedule: &Schedule) -> AuditedChange {
    AuditedChange::new(operation, schedule.tenant_id, &schedule.name)
}

impl From<RecurringError> for Refusal {
    fn from(e: RecurringError) -> Self {
        match e {
            RecurringError::Store(e) => e.into(),
            e => Self::Other(e.into()),
        }
    }
}
