//! Memory for what is fetched, which providers share.

use super::polls::{settled, start, until};
use super::*;

/// Has more new mail in every mailbox than fits, does not say how much it is, and never sends it.
#[derive(Debug, Default)]
struct Slow {
    /// Batches that have their room.
    begun: Mutex<u32>,
}

impl Connector for Slow {
    fn provider(&self) -> Provider {
        Provider::Gmail
    }

    fn changes<'a>(&'a self, _: &'a Account, _: &'a Cursors) -> Answer<'a, Page> {
        let unsized_one = |n| Seen { size_bytes: None, ..seen(&format!("slow {n}"), "INBOX", &[]) };
        let messages = (0..120).map(unsized_one).collect();
        let folders = vec![folder("INBOX", Some(FolderRole::Inbox))];
        Box::pin(async { Ok(Page { folders, ..page(messages) }) })
    }

    fn history<'a>(&'a self, _: &'a Account, _: &'a Cursors, _: &'a Cursors, _: Option<Timestamp>) -> Answer<'a, Page> {
        Box::pin(std::future::pending())
    }

    fn list<'a>(
        &'a self,
        _: &'a Account,
        _: &'a Cursors,
        _: Option<&'a Cursors>,
        _: Option<Timestamp>,
    ) -> Answer<'a, Page> {
        Box::pin(std::future::pending())
    }

    fn fetch<'a>(&'a self, _: &'a Account, wanted: &'a [Wanted], sink: &'a mut dyn Sink) -> Answer<'a, ()> {
        Box::pin(async move {
            sink.room(&names(wanted)).await?;
            *self.begun.lock().unwrap() += 1;
            std::future::pending().await
        })
    }

    fn check<'a>(&'a self, _: &'a Account) -> Answer<'a, ()> {
        Box::pin(std::future::pending())
    }
}

async fn ask(store: &TenantStore, mailbox: MailboxId) {
    let mut unit = store.write();
    unit.enqueue(vec![only_one(new_job(&SyncMailbox { mailbox }, &SystemClock, None).unwrap(), mailbox)]);
    unit.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_whose_messages_never_come_does_not_keep_those_of_another_waiting() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        let slow = Arc::new(Slow::default());
        let connectors: HashMap<Provider, Arc<dyn Connector>> =
            HashMap::from([(Provider::Outlook, scene.script.clone() as _), (Provider::Gmail, slow.clone() as _)]);
        let settings = SyncSettings { holder: "test".into(), lease: Duration::from_secs(60), duplicate_check: true };
        let syncer = Syncer::new(scene.syncer.engine.clone(), settings, connectors, Calls::default());
        for n in 0..4 {
            let (store, mailboxes) = settled(&db, &format!("tenant {n}"), &["me@acme.test"]).await;
            ask(&store, mailboxes[0]).await;
        }
        let kinds = syncer.list_kinds().into_iter().fold(Kinds::default(), Kinds::with).with(syncer.fetch_kind());
        let worker = start(&db, kinds, 30);
        // Of twelve batches of 4 MB, in 24 MB.
        until("as many as fit are begun", async || *slow.begun.lock().unwrap() >= 4).await;

        db.run("update mailboxes set provider = 'outlook' where provider = 'scripted'").await;
        scene.has("m1", "Subject: one\n\nhello");
        scene.says(page(vec![Seen { size_bytes: None, ..seen("m1", "INBOX", &[]) }]));
        ask(&scene.store, scene.mailbox).await;

        until("the other's mail is stored", async || scene.emails().await == pairs(&[("one", "INBOX[]")])).await;
        assert_eq!(*slow.begun.lock().unwrap(), 4, "and the slow one has no more than before");
        worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_larger_than_a_part_goes_through_the_spool() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        let spool = scene.syncer.engine.spool.folder.clone();
        for (message, mb, is_spooled) in [("m1", 3, false), ("m2", 5, true)] {
            let line = "so many words are in it that it takes its time\n";
            scene.has(message, &format!("Subject: {message}\n\n{}", line.repeat((mb << 20) / line.len())));
            scene.says(page(vec![Seen { size_bytes: Some((mb as u64) << 20), ..seen(message, "INBOX", &[]) }]));
            scene.sync().await;
            assert_eq!(spool.exists(), is_spooled, "{message}");
        }
        assert_eq!(scene.emails().await, pairs(&[("m1", "INBOX[]"), ("m2", "INBOX[]")]));
    })
    .await;
}
