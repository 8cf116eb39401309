use domain::connector::{ConnectorAccount, Cursors};
use domain::{Connector, ConnectorError};
use serde_json::json;
use sim::microsoft::{MicrosoftFault, MicrosoftFaultKind, MicrosoftRoute};
use sim::people::{NewPerson, PeopleOperation, PersonChange};
use testkit::contract::directory::{
    DirectoryUnderTest, MicrosoftDirectoryUnderTest, assert_directory_error_is_confidential, assert_people,
    list_members, list_users, open_directory,
};

#[tokio::test]
async fn delta_round_lists_added_changed_and_removed_users() {
    let microsoft = MicrosoftDirectoryUnderTest::new(30).await;
    let account = open_directory(&microsoft).await.unwrap();
    let first = list_users(&microsoft.outlook, &account, Cursors::new()).await.unwrap();
    let quiet = list_users(&microsoft.outlook, &account, first.cursors).await.unwrap();
    assert_eq!((quiet.people.len(), quiet.removed.len()), (0, 0));

    let join = NewPerson { address: "Ann@fabrikam.example".to_owned(), ..NewPerson::default() };
    let ann = microsoft.apply(PeopleOperation::Join(join)).unwrap();
    let renamed = PersonChange { address: Some("zoe@fabrikam.example".into()), ..change_of("user2@fabrikam.example") };
    let zoe = microsoft.apply(PeopleOperation::Set(renamed)).unwrap();
    let suspended = PersonChange { suspended: Some(true), ..change_of("user3@fabrikam.example") };
    microsoft.apply(PeopleOperation::Set(suspended));
    let unlicensed = PersonChange { licensed: Some(false), ..change_of("user4@fabrikam.example") };
    microsoft.apply(PeopleOperation::Set(unlicensed));
    let deleted = microsoft.apply(PeopleOperation::Delete { person: "user5@fabrikam.example".into() }).unwrap();
    let purged = microsoft.apply(PeopleOperation::Purge { person: "user6@fabrikam.example".into() }).unwrap();
    let second = list_users(&microsoft.outlook, &account, quiet.cursors).await.unwrap();

    assert_eq!(second.removed, [deleted.clone(), purged].into());
    assert_eq!(second.people.len(), 4);
    assert_eq!(second.people[&ann].address.as_deref(), Some("ann@fabrikam.example"));
    assert!(second.people[&zoe].aliases.as_ref().unwrap().contains(&"user2@fabrikam.example".to_owned()));
    let mut all = first.people;
    for (id, person) in second.people {
        let before = all.remove(&id).unwrap_or_default();
        all.insert(id, person.merged_over(before));
    }
    all.retain(|id, _| !second.removed.contains(id));
    assert_people(&microsoft, &all);

    microsoft.apply(PeopleOperation::Restore { person: deleted.clone() });
    let third = list_users(&microsoft.outlook, &account, second.cursors).await.unwrap();
    assert_eq!(third.people.keys().collect::<Vec<_>>(), [&deleted]);
    assert_eq!(microsoft.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn refused_link_lists_everybody_anew() {
    let microsoft = MicrosoftDirectoryUnderTest::new(5).await;
    let account = open_directory(&microsoft).await.unwrap();
    let first = list_users(&microsoft.outlook, &account, Cursors::new()).await.unwrap();
    let refuse = || {
        let kind = MicrosoftFaultKind::Resync { code: "Request_BadRequest".to_owned() };
        let route = Some(MicrosoftRoute::UsersDelta);
        microsoft.world.add_fault(MicrosoftFault { route, ..MicrosoftFault::once(kind) });
    };

    refuse();
    let resumed = list_users(&microsoft.outlook, &account, first.cursors).await.unwrap_err();
    refuse();
    let begun = list_users(&microsoft.outlook, &account, Cursors::new()).await.unwrap_err();

    assert_eq!(resumed, ConnectorError::CursorExpired);
    assert!(matches!(begun, ConnectorError::Protocol(_)), "{begun:?}");
}

#[tokio::test]
async fn token_is_not_sent_to_another_host() {
    let microsoft = MicrosoftDirectoryUnderTest::new(5).await;
    let account = open_directory(&microsoft).await.unwrap();
    let elsewhere = Cursors::from([("delta".to_owned(), "https://elsewhere.example/v1.0/users/delta".to_owned())]);

    let error = list_users(&microsoft.outlook, &account, elsewhere).await.unwrap_err();

    assert!(matches!(error, ConnectorError::Protocol(_)), "{error:?}");
}

#[tokio::test]
async fn group_with_an_odd_name_is_gone() {
    let microsoft = MicrosoftDirectoryUnderTest::new(5).await;
    let account = open_directory(&microsoft).await.unwrap();
    for group in ["it's@fabrikam.example", "00000000-0000-4000-a000-000000000000"] {
        let members = list_members(&microsoft.outlook, &account, group).await;

        assert_eq!(members, Err(ConnectorError::Gone), "{group}");
    }
}

#[tokio::test]
async fn missing_permission_is_named() {
    let microsoft = MicrosoftDirectoryUnderTest::new(4).await;
    microsoft.consent(Some(&["Mail.Read"]));
    let account = open_directory(&microsoft).await.unwrap();

    let users = list_users(&microsoft.outlook, &account, Cursors::new()).await.unwrap_err();
    let members = list_members(&microsoft.outlook, &account, "leaders@fabrikam.example").await.unwrap_err();

    assert!(matches!(&users, ConnectorError::Unauthorized(why) if why.contains("User.Read.All")), "{users:?}");
    assert_directory_error_is_confidential(&microsoft, &users);
    assert!(
        matches!(&members, ConnectorError::Unauthorized(why) if why.contains("GroupMember.Read.All")),
        "{members:?}"
    );
}

#[tokio::test]
async fn mailbox_is_opened_by_directory_user_id() {
    let microsoft = MicrosoftDirectoryUnderTest::new(3).await;
    let directory = open_directory(&microsoft).await.unwrap();
    let truth = microsoft.truth();
    let (id, _) = truth.people.iter().find(|(_, person)| person.address == "user2@fabrikam.example").unwrap();
    let settings = json!({"app_only": true, "directory": MicrosoftDirectoryUnderTest::DOMAIN, "user": id});

    let account =
        ConnectorAccount { settings: settings.to_string(), address: "other@name.example".to_owned(), ..directory };

    assert_eq!(microsoft.outlook.check(&account).await, Ok(()));
}

fn change_of(person: &str) -> PersonChange {
    PersonChange { person: person.to_owned(), ..PersonChange::default() }
}
