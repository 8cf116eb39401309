use std::sync::Arc;

use connectors::gmail::Gmail;
use connectors::google::GoogleSettings;
use connectors::http::{Deadlines, Http};
use domain::connector::{Account, Cursors};
use domain::{Clock, ConnectorError, Secret, SystemClock};
use serde_json::json;
use sim::google::{Fault, Kind, Route, Server, World};
use sim::people::{NewOrganisation, Organised, PeopleOperation, TruthPerson};

use super::{assert_is_true, assert_says_nothing, members, opened, told};

const DOMAIN: &str = "harbour.example";
const ADMIN: &str = "user1@harbour.example";
const USERS: &str = "https://www.googleapis.com/auth/admin.directory.user.readonly";

fn is_suspended(person: &TruthPerson) -> bool {
    person.is_suspended || person.is_archived
}

struct Place {
    world: Arc<World>,
    gmail: Gmail,
    _server: Server,
}

impl Place {
    async fn new(people: usize) -> Self {
        let world = Arc::new(World::new(3, 20, Arc::new(|| SystemClock.now())));
        world.organise(&NewOrganisation { domain: DOMAIN.to_owned(), people, ..NewOrganisation::default() }).unwrap();
        let server = Server::start_here(Arc::clone(&world)).await.unwrap();
        let url = server.url();
        let settings = GoogleSettings {
            token_url: format!("{url}/token"),
            api_url: url.clone(),
            directory_url: url,
            service_account: Some(Secret::new(world.service_account_key().to_string())),
            ..GoogleSettings::default()
        };
        let gmail = Gmail::new(Http::new(Deadlines::default()).unwrap(), &settings).unwrap();
        Self { world, gmail, _server: server }
    }

    async fn as_administrator(&self) -> Account {
        opened(&self.gmail, ADMIN, &json!({"app_only": true, "groups": true})).await.unwrap()
    }

    /// Once, for the next page of people.
    fn fails(&self, kind: Kind) {
        self.world.add_fault(Fault { route: Some(Route::UsersList), ..Fault::once(kind) });
    }
}

#[tokio::test]
async fn everybody_is_told_of_over_many_pages() {
    let place = Place::new(1_200).await;
    let account = place.as_administrator().await;

    let told = told(&place.gmail, &account, Cursors::new()).await.unwrap();

    assert_is_true(&told.people, &place.world.organisation(DOMAIN).unwrap(), is_suspended);
    assert_eq!((told.pages, told.gone.len(), told.cursors.len()), (3, 0, 0));
    assert_eq!(place.world.violations(), []);
}

#[tokio::test]
async fn an_empty_page_is_not_the_last_one() {
    let place = Place::new(20).await;
    let account = place.as_administrator().await;
    place.fails(Kind::EmptyPage);

    let told = told(&place.gmail, &account, Cursors::new()).await.unwrap();

    assert_is_true(&told.people, &place.world.organisation(DOMAIN).unwrap(), is_suspended);
    assert_eq!(told.pages, 2);
}

#[tokio::test]
async fn who_is_in_a_group_is_told_however_deep() {
    let place = Place::new(300).await;
    let account = place.as_administrator().await;
    let truth = place.world.organisation(DOMAIN).unwrap();

    for (id, group) in &truth.groups {
        let expected = group.all_people.iter().cloned().collect();
        assert_eq!(members(&place.gmail, &account, &group.address).await.unwrap(), expected);
        assert_eq!(members(&place.gmail, &account, id).await.unwrap(), expected);
    }
    assert_eq!(members(&place.gmail, &account, "nobody@harbour.example").await, Err(ConnectorError::Gone));
    assert_eq!(place.world.violations(), []);
}

#[tokio::test]
async fn what_the_directory_refuses_is_known_for_what_it_is() {
    let place = Place::new(4).await;
    let account = place.as_administrator().await;
    let told = async || told(&place.gmail, &account, Cursors::new()).await.unwrap_err();

    place.fails(Kind::QuotaExceeded);
    assert!(matches!(told().await, ConnectorError::Throttled { .. }));
    let long_ago = Cursors::from([("next".to_owned(), "abc".to_owned())]);
    assert_eq!(super::told(&place.gmail, &account, long_ago).await.unwrap_err(), ConnectorError::CursorExpired);
    let nobody = opened(&place.gmail, "user2@harbour.example", &json!({"app_only": true})).await.unwrap();
    let e = super::told(&place.gmail, &nobody, Cursors::new()).await.unwrap_err();
    assert!(matches!(&e, ConnectorError::Unauthorized(why) if why.contains("administrator")), "{e:?}");
    assert_says_nothing(&e);
}

#[tokio::test]
async fn groups_are_asked_for_only_where_they_are_wanted() {
    let place = Place::new(4).await;
    place.world.set_delegated_scopes_of(DOMAIN, Some(vec![USERS.to_owned()]));

    let account = opened(&place.gmail, ADMIN, &json!({"app_only": true})).await.unwrap();
    let refused = opened(&place.gmail, ADMIN, &json!({"app_only": true, "groups": true})).await.unwrap_err();

    assert_eq!(told(&place.gmail, &account, Cursors::new()).await.unwrap().people.len(), 4);
    assert!(matches!(&refused, ConnectorError::Unauthorized(why) if why.contains("group.member.readonly")));
    assert_says_nothing(&refused);
}

#[tokio::test]
async fn who_leaves_is_not_told_of_any_more() {
    let place = Place::new(6).await;
    let account = place.as_administrator().await;
    let before = told(&place.gmail, &account, Cursors::new()).await.unwrap();

    place.world.apply_to_people(DOMAIN, PeopleOperation::Delete { person: "user3@harbour.example".into() }).unwrap();
    let after = told(&place.gmail, &account, before.cursors).await.unwrap();

    assert_eq!((before.people.len(), after.people.len()), (6, 5));
    assert_is_true(&after.people, &place.world.organisation(DOMAIN).unwrap(), is_suspended);
}
