//! What Google does wrong at each of our calls, and how that ends.

use sim::google::{Kind, Operation, Route, World};
use store::testing::on_each_database;

use crate::fault_table::{End, MESSAGES, Row, Tabled, WAIT, walk};

fn calls() -> Vec<(Route, bool)> {
    let first =
        [Route::Token, Route::Profile, Route::LabelsList, Route::MessagesList, Route::Batch, Route::MessagesGet];
    let later = [Route::HistoryList, Route::LabelsList, Route::Batch, Route::MessagesGet];
    first.into_iter().map(|route| (route, false)).chain(later.into_iter().map(|route| (route, true))).collect()
}

/// What each fault leads to, wherever it comes.
fn faults() -> Vec<(Kind, u64, End)> {
    use End::{NeedsReauth, Operator, Paused, Whole, WholeAfterWait};
    vec![
        (Kind::Throttled { retry_after: Some(WAIT) }, 1, WholeAfterWait),
        (Kind::Throttled { retry_after: None }, 2, Whole),
        (Kind::UserRateLimited { retry_after: Some(WAIT) }, 1, WholeAfterWait),
        (Kind::RateLimited { retry_after: None }, 1, Whole),
        (Kind::Unavailable { retry_after: Some(WAIT) }, 1, WholeAfterWait),
        (Kind::Unavailable { retry_after: None }, 2, Whole),
        (Kind::Internal, 1, Whole),
        (Kind::Hang { ms: 700 }, 1, Whole),
        (Kind::Cut, 2, Whole),
        (Kind::Reset, 1, Whole),
        (Kind::CutBody, 1, Whole),
        (Kind::Slow { bytes: 500, ms: 2 }, 1, Whole),
        (Kind::Garbage, 1, Whole),
        (Kind::TruncatedJson, 1, Whole),
        (Kind::DailyLimit, 0, Paused),
        (Kind::DomainPolicy, 0, NeedsReauth),
        (Kind::InsufficientPermissions, 0, NeedsReauth),
        (Kind::AccessNotConfigured, 0, Operator),
        (Kind::FailedPrecondition, 1, Whole),
        (Kind::Unauthorized, 1, Whole),
        (Kind::Unauthorized, 0, NeedsReauth),
        (Kind::NotFound, 1, Whole),
        (Kind::HistoryExpired, 1, Whole),
        (Kind::EmptyPage, 2, Whole),
        (Kind::Padded, 3, Whole),
        (Kind::MissingPart, 1, Whole),
        (Kind::ShuffledParts, 1, Whole),
        (Kind::Oauth { error: "invalid_grant".into(), status: 400 }, 0, NeedsReauth),
        (Kind::Oauth { error: "admin_policy_enforced".into(), status: 400 }, 0, NeedsReauth),
        (Kind::Oauth { error: "internal_failure".into(), status: 503 }, 1, Whole),
    ]
}

impl Tabled for World {
    const AT_ONCE: usize = 1;

    fn rows() -> Vec<Row<Kind>> {
        let mut rows = Vec::new();
        for (route, is_later) in calls() {
            for (kind, times, end) in faults() {
                if !sim::google::can_happen(&kind, route) {
                    continue;
                }
                let end = match (&kind, route) {
                    (Kind::NotFound, Route::MessagesGet) => End::OneFewer,
                    _ => end,
                };
                rows.push(Row { route, is_later, kind, times, end });
            }
        }
        rows
    }

    fn change(&self, address: &str) {
        self.apply(address, Operation::deliver()).unwrap();
        let id = self.truth(address).unwrap().messages.keys().next().unwrap().clone();
        let (add, remove) = (vec!["STARRED".into()], Vec::new());
        self.apply(address, Operation::Label { message: id, add, remove }).unwrap();
    }

    fn parts(route: Route) -> Option<u64> {
        (route == Route::MessagesGet).then_some(MESSAGES as u64 + 1)
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
