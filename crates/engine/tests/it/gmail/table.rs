//! What Google does wrong at each of our calls, and how that ends.

use sim::google::{GmailOperation, GoogleFaultKind, GoogleRoute, GoogleWorld};
use store::testing::on_each_database;

use crate::fault_table::{
    FaultCase, FaultOutcome, FaultTable, MESSAGES_PER_ACCOUNT, RETRY_AFTER_SECONDS, run_fault_table,
};

fn calls() -> Vec<(GoogleRoute, bool)> {
    let first = [
        GoogleRoute::Token,
        GoogleRoute::Profile,
        GoogleRoute::LabelsList,
        GoogleRoute::MessagesList,
        GoogleRoute::Batch,
        GoogleRoute::MessagesGet,
    ];
    let later = [GoogleRoute::HistoryList, GoogleRoute::LabelsList, GoogleRoute::Batch, GoogleRoute::MessagesGet];
    first.into_iter().map(|route| (route, false)).chain(later.into_iter().map(|route| (route, true))).collect()
}

/// What each fault leads to, wherever it comes.
fn faults() -> Vec<(GoogleFaultKind, u64, FaultOutcome)> {
    use FaultOutcome::{NeedsReauth, Operator, Paused, Whole, WholeAfterWait};
    vec![
        (GoogleFaultKind::Throttled { retry_after: Some(RETRY_AFTER_SECONDS) }, 1, WholeAfterWait),
        (GoogleFaultKind::Throttled { retry_after: None }, 2, Whole),
        (GoogleFaultKind::UserRateLimited { retry_after: Some(RETRY_AFTER_SECONDS) }, 1, WholeAfterWait),
        (GoogleFaultKind::RateLimited { retry_after: None }, 1, Whole),
        (GoogleFaultKind::Unavailable { retry_after: Some(RETRY_AFTER_SECONDS) }, 1, WholeAfterWait),
        (GoogleFaultKind::Unavailable { retry_after: None }, 2, Whole),
        (GoogleFaultKind::Internal, 1, Whole),
        (GoogleFaultKind::Hang { ms: 700 }, 1, Whole),
        (GoogleFaultKind::Cut, 2, Whole),
        (GoogleFaultKind::Reset, 1, Whole),
        (GoogleFaultKind::CutBody, 1, Whole),
        (GoogleFaultKind::Slow { bytes: 500, ms: 2 }, 1, Whole),
        (GoogleFaultKind::Garbage, 1, Whole),
        (GoogleFaultKind::TruncatedJson, 1, Whole),
        (GoogleFaultKind::DailyLimit, 0, Paused),
        (GoogleFaultKind::DomainPolicy, 0, NeedsReauth),
        (GoogleFaultKind::InsufficientPermissions, 0, NeedsReauth),
        (GoogleFaultKind::AccessNotConfigured, 0, Operator),
        (GoogleFaultKind::FailedPrecondition, 1, Whole),
        (GoogleFaultKind::Unauthorized, 1, Whole),
        (GoogleFaultKind::Unauthorized, 0, NeedsReauth),
        (GoogleFaultKind::NotFound, 1, Whole),
        (GoogleFaultKind::HistoryExpired, 1, Whole),
        (GoogleFaultKind::EmptyPage, 2, Whole),
        (GoogleFaultKind::Padded, 3, Whole),
        (GoogleFaultKind::MissingPart, 1, Whole),
        (GoogleFaultKind::ShuffledParts, 1, Whole),
        (GoogleFaultKind::Oauth { error: "invalid_grant".into(), status: 400 }, 0, NeedsReauth),
        (GoogleFaultKind::Oauth { error: "admin_policy_enforced".into(), status: 400 }, 0, NeedsReauth),
        (GoogleFaultKind::Oauth { error: "internal_failure".into(), status: 503 }, 1, Whole),
    ]
}

impl FaultTable for GoogleWorld {
    const CONCURRENT_CALLS: usize = 1;

    fn rows() -> Vec<FaultCase<GoogleFaultKind>> {
        let mut rows = Vec::new();
        for (route, is_later) in calls() {
            for (kind, times, end) in faults() {
                if !sim::google::can_happen(&kind, route) {
                    continue;
                }
                let end = match (&kind, route) {
                    (GoogleFaultKind::NotFound, GoogleRoute::MessagesGet) => FaultOutcome::OneFewer,
                    _ => end,
                };
                rows.push(FaultCase { route, is_later, kind, times, end });
            }
        }
        rows
    }

    fn change(&self, address: &str) {
        self.apply(address, GmailOperation::deliver()).unwrap();
        let id = self.truth(address).unwrap().messages.keys().next().unwrap().clone();
        let (add, remove) = (vec!["STARRED".into()], Vec::new());
        self.apply(address, GmailOperation::Label { message: id, add, remove }).unwrap();
    }

    fn parts(route: GoogleRoute) -> Option<u64> {
        (route == GoogleRoute::MessagesGet).then_some(MESSAGES_PER_ACCOUNT as u64 + 1)
    }

    fn is_batch(route: GoogleRoute) -> bool {
        route == GoogleRoute::Batch
    }

    fn is_about_the_token(kind: &GoogleFaultKind) -> bool {
        *kind == GoogleFaultKind::Unauthorized
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_at_each_call_ends_as_listed() {
    on_each_database(run_fault_table::<GoogleWorld>).await;
}
