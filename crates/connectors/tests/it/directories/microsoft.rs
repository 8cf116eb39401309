use std::sync::Arc;

use connectors::http::{Deadlines, Http};
use connectors::microsoft::MicrosoftSettings;
use connectors::outlook::Outlook;
use domain::connector::{Account, Cursors};
use domain::{Clock, Connector, ConnectorError, Secret, SystemClock};
use serde_json::json;
use sim::microsoft::{CLIENT_ID, CLIENT_SECRET, DirectoryChange, Fault, Kind, Route, Server, World};
use sim::people::{NewOrganisation, NewPerson, Organised, PeopleOperation, PersonChange};

use super::{assert_is_true, assert_says_nothing, members, opened, told};

const DOMAIN: &str = "fabrikam.example";

struct Place {
    world: Arc<World>,
    outlook: Outlook,
    _server: Server,
}

impl Place {
    async fn new(people: usize) -> Self {
        let world = Arc::new(World::new(3, 20, Arc::new(|| SystemClock.now())));
        let new = NewOrganisation { domain: DOMAIN.to_owned(), people, messages: 1, ..NewOrganisation::default() };
        world.organise(&new).unwrap();
        let server = Server::start_here(Arc::clone(&world)).await.unwrap();
        let settings = MicrosoftSettings {
            authority_url: server.url(),
            graph_url: server.url(),
            client_id: Some(CLIENT_ID.to_owned()),
            client_secret: Some(Secret::new(CLIENT_SECRET.to_owned())),
            ..MicrosoftSettings::default()
        };
        let outlook = Outlook::new(Http::new(Deadlines::default()).unwrap(), &settings).unwrap();
        let place = Self { world, outlook, _server: server };
        place.admit(None);
        place
    }

    /// With these permissions, or with all that we need.
    fn admit(&self, permissions: Option<&[&str]>) {
        let permissions = permissions.map(|all| all.iter().map(|one| (*one).to_owned()).collect());
        let change = DirectoryChange { admin_consent: Some(true), permissions, ..DirectoryChange::default() };
        self.world.change_directory(DOMAIN, &change);
    }

    async fn opened(&self) -> Account {
        opened(&self.outlook, "", &json!({"app_only": true, "directory": DOMAIN})).await.unwrap()
    }

    fn apply(&self, operation: PeopleOperation) -> String {
        self.world.apply_to_people(DOMAIN, operation).unwrap().person.unwrap()
    }
}

#[tokio::test]
async fn everybody_is_told_of_in_a_first_round_and_then_nobody() {
    let place = Place::new(2_100).await;
    let account = place.opened().await;

    let first = told(&place.outlook, &account, Cursors::new()).await.unwrap();
    let second = told(&place.outlook, &account, first.cursors).await.unwrap();

    assert_is_true(&first.people, &place.world.organisation(DOMAIN).unwrap(), |person| person.is_suspended);
    assert!((3..=6).contains(&first.pages), "{}", first.pages);
    assert_eq!((second.people.len(), second.gone.len()), (0, 0));
    assert_eq!(place.world.violations(), []);
}

#[tokio::test]
async fn a_round_of_changes_tells_who_came_changed_and_went() {
    let place = Place::new(30).await;
    let account = place.opened().await;
    let first = told(&place.outlook, &account, Cursors::new()).await.unwrap();

    let ann = place
        .apply(PeopleOperation::Join(NewPerson { address: "Ann@fabrikam.example".to_owned(), ..NewPerson::default() }));
    let change = |person: &str| PersonChange { person: person.to_owned(), ..PersonChange::default() };
    let renamed = PersonChange { address: Some("zoe@fabrikam.example".into()), ..change("user2@fabrikam.example") };
    let zoe = place.apply(PeopleOperation::Set(renamed));
    place.apply(PeopleOperation::Set(PersonChange { suspended: Some(true), ..change("user3@fabrikam.example") }));
    place.apply(PeopleOperation::Set(PersonChange { licensed: Some(false), ..change("user4@fabrikam.example") }));
    let left = place.apply(PeopleOperation::Delete { person: "user5@fabrikam.example".into() });
    let gone = place.apply(PeopleOperation::Purge { person: "user6@fabrikam.example".into() });
    let second = told(&place.outlook, &account, first.cursors).await.unwrap();

    assert_eq!(second.gone, [left.clone(), gone].into());
    assert_eq!(second.people.len(), 4);
    assert_eq!(second.people[&ann].address.as_deref(), Some("ann@fabrikam.example"));
    assert!(second.people[&zoe].aliases.as_ref().unwrap().contains(&"user2@fabrikam.example".to_owned()));
    let mut all = first.people;
    for (id, person) in second.people {
        let before = all.remove(&id).unwrap_or_default();
        all.insert(id, person.over(before));
    }
    all.retain(|id, _| !second.gone.contains(id));
    assert_is_true(&all, &place.world.organisation(DOMAIN).unwrap(), |person| person.is_suspended);

    place.apply(PeopleOperation::Restore { person: left.clone() });
    let third = told(&place.outlook, &account, second.cursors).await.unwrap();
    assert_eq!(third.people.keys().collect::<Vec<_>>(), [&left]);
    assert_eq!(place.world.violations(), []);
}

#[tokio::test]
async fn changes_that_are_forgotten_are_told_as_forgotten() {
    let place = Place::new(5).await;
    let account = place.opened().await;
    let first = told(&place.outlook, &account, Cursors::new()).await.unwrap();

    place.world.apply_to_people(DOMAIN, PeopleOperation::ExpireDelta).unwrap();

    assert_eq!(told(&place.outlook, &account, first.cursors).await.unwrap_err(), ConnectorError::CursorExpired);
    let elsewhere = Cursors::from([("delta".to_owned(), "https://elsewhere.example/v1.0/users/delta".to_owned())]);
    let e = told(&place.outlook, &account, elsewhere).await.unwrap_err();
    assert!(matches!(e, ConnectorError::Protocol(_)), "our token stays here: {e:?}");
}

#[tokio::test]
async fn who_is_in_a_group_is_told_however_deep() {
    let place = Place::new(300).await;
    let account = place.opened().await;
    let truth = place.world.organisation(DOMAIN).unwrap();

    for (id, group) in &truth.groups {
        let expected = group.all_people.iter().cloned().collect();
        assert_eq!(members(&place.outlook, &account, &group.address).await.unwrap(), expected);
        assert_eq!(members(&place.outlook, &account, id).await.unwrap(), expected);
    }
    for nobody in ["nobody@fabrikam.example", "it's@fabrikam.example", "00000000-0000-4000-a000-000000000000"] {
        assert_eq!(members(&place.outlook, &account, nobody).await, Err(ConnectorError::Gone), "{nobody}");
    }
    assert_eq!(place.world.violations(), []);
}

#[tokio::test]
async fn what_the_directory_refuses_is_known_for_what_it_is() {
    let place = Place::new(4).await;
    let account = place.opened().await;
    place.world.add_fault(Fault { route: Some(Route::UsersDelta), ..Fault::once(Kind::EmptyPage) });
    assert_eq!(told(&place.outlook, &account, Cursors::new()).await.unwrap().people.len(), 4);

    place.admit(Some(&["Mail.Read"]));
    let account = place.opened().await;
    let e = told(&place.outlook, &account, Cursors::new()).await.unwrap_err();
    assert!(matches!(&e, ConnectorError::Unauthorized(why) if why.contains("User.Read.All")), "{e:?}");
    assert_says_nothing(&e);
    let e = members(&place.outlook, &account, "leaders@fabrikam.example").await.unwrap_err();
    assert!(matches!(&e, ConnectorError::Unauthorized(why) if why.contains("GroupMember.Read.All")), "{e:?}");
}

#[tokio::test]
async fn a_mailbox_is_opened_by_what_the_directory_calls_its_owner() {
    let place = Place::new(3).await;
    let directory = place.opened().await;
    let truth = place.world.organisation(DOMAIN).unwrap();
    let (id, _) = truth.people.iter().find(|(_, person)| person.address == "user2@fabrikam.example").unwrap();
    let settings = json!({"app_only": true, "directory": DOMAIN, "user": id});

    let account = Account { settings: settings.to_string(), address: "other@name.example".to_owned(), ..directory };

    assert_eq!(place.outlook.check(&account).await, Ok(()));
}
