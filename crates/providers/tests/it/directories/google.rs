use domain::ConnectorError;
use domain::connector::Cursors;
use serde_json::json;
use sim::google::GoogleFaultKind;
use sim::people::PeopleOperation;
use testkit::contract::directory::{
    DirectoryUnderTest, GoogleDirectoryUnderTest, assert_directory_error_is_confidential, assert_people, list_users,
    open_directory, open_directory_as,
};

const ADMIN: &str = GoogleDirectoryUnderTest::ADMIN;
const USERS_SCOPE: &str = "https://www.googleapis.com/auth/admin.directory.user.readonly";

#[tokio::test]
async fn everybody_is_listed_anew_each_time() {
    let google = GoogleDirectoryUnderTest::new(1_200).await;
    let account = open_directory(&google).await.unwrap();

    let before = list_users(&google.gmail, &account, Cursors::new()).await.unwrap();
    assert_people(&google, &before.people);
    google.apply(PeopleOperation::Delete { person: "user3@harbour.example".to_owned() });
    let after = list_users(&google.gmail, &account, before.cursors.clone()).await.unwrap();

    assert_eq!((before.pages, before.removed.len(), before.cursors.len()), (3, 0, 0));
    assert_eq!((after.people.len(), after.removed.len()), (before.people.len() - 1, 0));
    assert_people(&google, &after.people);
}

#[tokio::test]
async fn empty_page_takes_one_call_more() {
    let google = GoogleDirectoryUnderTest::new(20).await;
    let account = open_directory(&google).await.unwrap();
    google.send_empty_page();

    let listing = list_users(&google.gmail, &account, Cursors::new()).await.unwrap();

    assert_eq!(listing.pages, 2);
    assert_people(&google, &listing.people);
}

#[tokio::test]
async fn directory_errors_are_classified() {
    let google = GoogleDirectoryUnderTest::new(4).await;
    let account = open_directory(&google).await.unwrap();

    google.fail_next_page(GoogleFaultKind::QuotaExceeded);
    let throttled = list_users(&google.gmail, &account, Cursors::new()).await.unwrap_err();
    assert!(matches!(throttled, ConnectorError::Throttled { .. }), "{throttled:?}");
    let nobody = open_directory_as(&google.gmail, "user2@harbour.example", &json!({"app_only": true})).await.unwrap();
    let refused = list_users(&google.gmail, &nobody, Cursors::new()).await.unwrap_err();
    assert!(matches!(&refused, ConnectorError::Unauthorized(why) if why.contains("administrator")), "{refused:?}");
    assert_directory_error_is_confidential(&google, &refused);
}

#[tokio::test]
async fn group_scope_is_requested_only_if_needed() {
    let google = GoogleDirectoryUnderTest::new(4).await;
    google.world.set_delegated_scopes_of(GoogleDirectoryUnderTest::DOMAIN, Some(vec![USERS_SCOPE.to_owned()]));

    let account = open_directory_as(&google.gmail, ADMIN, &json!({"app_only": true})).await.unwrap();
    let refused = open_directory(&google).await.unwrap_err();

    assert_eq!(list_users(&google.gmail, &account, Cursors::new()).await.unwrap().people.len(), 4);
    assert!(matches!(&refused, ConnectorError::Unauthorized(why) if why.contains("group.member.readonly")));
    assert_directory_error_is_confidential(&google, &refused);
}
