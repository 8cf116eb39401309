//! What Microsoft does wrong at each of our calls, and how that ends.

use sim::microsoft::{Kind, Operation, Route, World};
use store::testing::on_each_database;

use crate::fault_table::{End, MESSAGES, Row, Tabled, WAIT, walk};

/// Names that are asked for at once, and what they stand for.
const WELL_KNOWN: u64 = 14;

fn calls() -> Vec<(Route, bool)> {
    let first = [
        Route::Token,
        Route::Me,
        Route::FoldersGet,
        Route::FoldersDelta,
        Route::MessagesDelta,
        Route::Batch,
        Route::MessagesValue,
    ];
    let later = [Route::FoldersDelta, Route::MessagesDelta, Route::Batch, Route::MessagesValue, Route::MessagesGet];
    first.into_iter().map(|route| (route, false)).chain(later.into_iter().map(|route| (route, true))).collect()
}

/// What each fault leads to, wherever it comes.
fn faults() -> Vec<(Kind, u64, End)> {
    use End::{NeedsReauth, Whole, WholeAfterWait};
    let oauth = |error: &str, status, code| Kind::Oauth { error: error.to_owned(), status, code };
    vec![
        (Kind::Throttled { retry_after: Some(WAIT) }, 1, WholeAfterWait),
        (Kind::Throttled { retry_after: None }, 2, Whole),
        (Kind::Unavailable { retry_after: Some(WAIT) }, 1, WholeAfterWait),
        (Kind::Unavailable { retry_after: None }, 2, Whole),
        (Kind::Internal, 1, Whole),
        (Kind::BadGateway, 1, Whole),
        (Kind::GatewayTimeout, 1, Whole),
        (Kind::BandwidthExceeded, 1, Whole),
        (Kind::Locked, 1, Whole),
        (Kind::Hang { ms: 700 }, 1, Whole),
        (Kind::Cut, 2, Whole),
        (Kind::Reset, 1, Whole),
        (Kind::CutBody, 1, Whole),
        (Kind::Slow { bytes: 500, ms: 2 }, 1, Whole),
        (Kind::Garbage, 1, Whole),
        (Kind::TruncatedJson, 1, Whole),
        (Kind::Unauthorized, 1, Whole),
        (Kind::Unauthorized, 0, NeedsReauth),
        (Kind::AccessDenied, 0, NeedsReauth),
        (Kind::NotFound, 1, Whole),
        (Kind::MailboxNotEnabled, 1, Whole),
        (Kind::DeltaExpired, 1, Whole),
        (Kind::Resync { code: "SyncStateInvalid".into() }, 1, Whole),
        (Kind::DeltaQuota, 1, Whole),
        (Kind::EmptyPage, 2, Whole),
        (Kind::RepeatedItems, 1, Whole),
        (Kind::MissingPart, 1, Whole),
        (Kind::ShuffledParts, 1, Whole),
        (oauth("invalid_grant", 400, Some(70_008)), 0, NeedsReauth),
        (oauth("interaction_required", 400, Some(50_076)), 0, NeedsReauth),
        (oauth("temporarily_unavailable", 503, None), 1, Whole),
    ]
}

impl Tabled for World {
    const AT_ONCE: usize = 4;

    fn rows() -> Vec<Row<Kind>> {
        let mut rows = Vec::new();
        for (route, is_later) in calls() {
            for (kind, times, end) in faults() {
                // A client that is refused is everybody's, and has a test of its own.
                if !sim::microsoft::can_happen(&kind, route) {
                    continue;
                }
                let (times, end) = match (&kind, route) {
                    (Kind::NotFound, Route::MessagesValue) => (times, End::OneFewer),
                    // What is forbidden while the inbox may be read is the message's own.
                    (Kind::AccessDenied, Route::MessagesValue) => (1, End::Whole),
                    (Kind::AccessDenied, Route::MessagesGet) => (times, End::Whole),
                    _ => (times, end),
                };
                rows.push(Row { route, is_later, kind, times, end });
            }
        }
        rows
    }

    fn change(&self, address: &str) {
        self.apply(address, Operation::deliver()).unwrap();
        let truth = self.truth(address).unwrap();
        let inbox = truth.folders.iter().find(|(_, folder)| folder.well_known.as_deref() == Some("inbox")).unwrap().0;
        let mut there = truth.messages.iter().filter(|(_, message)| message.folder_id == *inbox).map(|(id, _)| id);
        let id = there.next().unwrap().clone();
        self.apply(address, Operation::Move { message: id, folder: "archive".into() }).unwrap();
    }

    fn parts(route: Route) -> Option<u64> {
        match route {
            Route::FoldersGet => Some(WELL_KNOWN),
            Route::MessagesDelta => Some(Self::AT_ONCE as u64),
            Route::MessagesValue | Route::MessagesGet => Some(MESSAGES as u64 + 1),
            _ => None,
        }
    }

    fn is_batch(route: Route) -> bool {
        route == Route::Batch
    }

    fn is_about_the_token(kind: &Kind) -> bool {
        *kind == Kind::Unauthorized
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_at_every_call_ends_as_it_should() {
    on_each_database(walk::<World>).await;
}
