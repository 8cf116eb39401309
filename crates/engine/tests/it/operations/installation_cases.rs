//! Operations on the whole installation.

use std::sync::Arc;

use engine::Progress;
use engine::operations::{Operation, Refusal, installation};
use store::Location;

use super::subject::Subject;

pub async fn perform(operation: &Operation, subject: &Subject<'_>) -> Result<(), Refusal> {
    match operation.name {
        "secrets.rotate" => installation::rotate_secrets(&subject.call().await, None).await.map(drop),
        "backup" => {
            let dump_url = match &subject.app.db.location {
                Location::Postgres { url, .. } => Some(url.as_str()),
                Location::Sqlite { .. } => None,
            };
            let (call, progress) = (subject.call().await, Arc::new(Progress::default()));
            installation::backup(&call, &subject.path("backup"), dump_url, &progress).await.map(drop)
        }
        other => panic!("{other} has no case"),
    }
}
