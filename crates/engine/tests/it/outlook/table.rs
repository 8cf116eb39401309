//! What Microsoft does wrong at each of our calls, and how that ends.

use sim::microsoft::{MicrosoftFaultKind, MicrosoftRoute, MicrosoftWorld, OutlookOperation};
use store::testing::on_each_database;

use crate::fault_table::{
    FaultCase, FaultOutcome, FaultTable, MESSAGES_PER_ACCOUNT, RETRY_AFTER_SECONDS, run_fault_table,
};

/// Names that are asked for at once, and what they stand for.
const WELL_KNOWN: u64 = 14;

fn calls() -> Vec<(MicrosoftRoute, bool)> {
    let first = [
        MicrosoftRoute::Token,
        MicrosoftRoute::Me,
        MicrosoftRoute::FoldersGet,
        MicrosoftRoute::FoldersDelta,
        MicrosoftRoute::MessagesDelta,
        MicrosoftRoute::Batch,
        MicrosoftRoute::MessagesValue,
    ];
    let later = [
        MicrosoftRoute::FoldersDelta,
        MicrosoftRoute::MessagesDelta,
        MicrosoftRoute::Batch,
        MicrosoftRoute::MessagesValue,
        MicrosoftRoute::MessagesGet,
    ];
    first.into_iter().map(|route| (route, false)).chain(later.into_iter().map(|route| (route, true))).collect()
}

fn oauth(error: &str, status: u16, code: Option<u32>) -> MicrosoftFaultKind {
    MicrosoftFaultKind::Oauth { error: error.to_owned(), status, code }
}

/// What each fault leads to, wherever it comes.
fn faults() -> Vec<(MicrosoftFaultKind, u64, FaultOutcome)> {
    use FaultOutcome::{NeedsReauth, Whole, WholeAfterWait};
    vec![
        (MicrosoftFaultKind::Throttled { retry_after: Some(RETRY_AFTER_SECONDS) }, 1, WholeAfterWait),
        (MicrosoftFaultKind::Throttled { retry_after: None }, 2, Whole),
        (MicrosoftFaultKind::Unavailable { retry_after: Some(RETRY_AFTER_SECONDS) }, 1, WholeAfterWait),
        (MicrosoftFaultKind::Unavailable { retry_after: None }, 2, Whole),
        (MicrosoftFaultKind::Internal, 1, Whole),
        (MicrosoftFaultKind::BadGateway, 1, Whole),
        (MicrosoftFaultKind::GatewayTimeout, 1, Whole),
        (MicrosoftFaultKind::BandwidthExceeded, 1, Whole),
        (MicrosoftFaultKind::Locked, 1, Whole),
        (MicrosoftFaultKind::Hang { ms: 700 }, 1, Whole),
        (MicrosoftFaultKind::Cut, 2, Whole),
        (MicrosoftFaultKind::Reset, 1, Whole),
        (MicrosoftFaultKind::CutBody, 1, Whole),
        (MicrosoftFaultKind::Slow { bytes: 500, ms: 2 }, 1, Whole),
        (MicrosoftFaultKind::Garbage, 1, Whole),
        (MicrosoftFaultKind::TruncatedJson, 1, Whole),
        (MicrosoftFaultKind::Unauthorized, 1, Whole),
        (MicrosoftFaultKind::Unauthorized, 0, NeedsReauth),
        (MicrosoftFaultKind::AccessDenied, 0, NeedsReauth),
        (MicrosoftFaultKind::NotFound, 1, Whole),
        (MicrosoftFaultKind::MailboxNotEnabled, 1, Whole),
        (MicrosoftFaultKind::DeltaExpired, 1, Whole),
        (MicrosoftFaultKind::Resync { code: "SyncStateInvalid".into() }, 1, Whole),
        (MicrosoftFaultKind::DeltaQuota, 1, Whole),
        (MicrosoftFaultKind::EmptyPage, 2, Whole),
        (MicrosoftFaultKind::RepeatedItems, 1, Whole),
        (MicrosoftFaultKind::MissingPart, 1, Whole),
        (MicrosoftFaultKind::ShuffledParts, 1, Whole),
        (oauth("invalid_grant", 400, Some(70_008)), 0, NeedsReauth),
        (oauth("interaction_required", 400, Some(50_076)), 0, NeedsReauth),
        (oauth("temporarily_unavailable", 503, None), 1, Whole),
    ]
}

impl FaultTable for MicrosoftWorld {
    const CONCURRENT_CALLS: usize = 4;

    fn rows() -> Vec<FaultCase<MicrosoftFaultKind>> {
        let mut rows = Vec::new();
        for (route, is_later) in calls() {
            for (kind, times, end) in faults() {
                // A client that is refused is everybody's, and has a test of its own.
                if !sim::microsoft::can_happen(&kind, route) {
                    continue;
                }
                let (times, end) = match (&kind, route) {
                    (MicrosoftFaultKind::NotFound, MicrosoftRoute::MessagesValue) => (times, FaultOutcome::OneFewer),
                    // What is forbidden while the inbox may be read is the message's own.
                    (MicrosoftFaultKind::AccessDenied, MicrosoftRoute::MessagesValue) => (1, FaultOutcome::Whole),
                    (MicrosoftFaultKind::AccessDenied, MicrosoftRoute::MessagesGet) => (times, FaultOutcome::Whole),
                    _ => (times, end),
                };
                rows.push(FaultCase { route, is_later, kind, times, end });
            }
        }
        rows
    }

    fn change(&self, address: &str) {
        self.apply(address, OutlookOperation::deliver()).unwrap();
        let truth = self.truth(address).unwrap();
        let inbox = truth.folders.iter().find(|(_, folder)| folder.well_known.as_deref() == Some("inbox")).unwrap().0;
        let mut there = truth.messages.iter().filter(|(_, message)| message.folder_id == *inbox).map(|(id, _)| id);
        let id = there.next().unwrap().clone();
        self.apply(address, OutlookOperation::Move { message: id, folder: "archive".into() }).unwrap();
    }

    fn parts(route: MicrosoftRoute) -> Option<u64> {
        match route {
            MicrosoftRoute::FoldersGet => Some(WELL_KNOWN),
            MicrosoftRoute::MessagesDelta => Some(Self::CONCURRENT_CALLS as u64),
            MicrosoftRoute::MessagesValue | MicrosoftRoute::MessagesGet => Some(MESSAGES_PER_ACCOUNT as u64 + 1),
            _ => None,
        }
    }

    fn is_batch(route: MicrosoftRoute) -> bool {
        route == MicrosoftRoute::Batch
    }

    fn is_about_the_token(kind: &MicrosoftFaultKind) -> bool {
        *kind == MicrosoftFaultKind::Unauthorized
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_at_each_call_ends_as_listed() {
    on_each_database(run_fault_table::<MicrosoftWorld>).await;
}
