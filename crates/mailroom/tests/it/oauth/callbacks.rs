//! What must not work, whoever the provider is: somebody comes back with something else than they were sent with.

use std::time::Duration;

use ::sim::google::Consent;
use domain::Sha256;

use super::browser::{Browser, parameter, says, without};
use super::scene::Scene;
use super::site::{Google, Microsoft, Site};
use crate::http;
use crate::place::{Place, block_on, on_each_database};
use crate::processes::{wait_until, watch_until};

#[test]
fn whoever_comes_back_with_something_else_changes_nothing() {
    on_each_database(comes_back_with_something_else::<Google>);
    on_each_database(comes_back_with_something_else::<Microsoft>);
}

fn comes_back_with_something_else<S: Site>(place: &Place) {
    let scene = Scene::<S>::start_web(place);
    says(&scene.go_through(&scene.beta, &format!("?address={}", S::BOB)), 200, "connected");
    let before = scene.everything();
    let mut browser = Browser::default();
    let back = browser.consent(&scene, &scene.link(&scene.acme, &format!("?address={}", S::ANN)));
    let state = parameter(&back, "state").unwrap();
    let mut open = |path: &str| browser.open(scene.address, path);

    // A state that is made up, altered, or missing.
    says(&open(&back.replace(&state, "AAAA")), 400, "begin again");
    let altered = if state.ends_with('A') {
        format!("{}B", &state[..state.len() - 1])
    } else {
        format!("{}A", &state[..state.len() - 1])
    };
    says(&open(&back.replace(&state, &altered)), 400, "begin again");
    says(&open(&without(&back, "state")), 400, "begin again");
    // Another tenant's state, by whoever got hold of it.
    let foreign = Browser::default().consent(&scene, &scene.link(&scene.beta, ""));
    let foreign_state = parameter(&foreign, "state").unwrap();
    says(&open(&back.replace(&state, &foreign_state)), 403, "another browser");
    // Another browser, with no cookie or with one of its own.
    says(&Browser::default().open(scene.address, &back), 403, "another browser");
    let mut other = Browser::default();
    other.consent(&scene, &scene.link(&scene.acme, ""));
    says(&other.open(scene.address, &back), 403, "another browser");
    // What went to one provider comes back from another.
    says(&open(&back.replace(&format!("/oauth/{}/", S::NAME), &format!("/oauth/{}/", S::OTHER))), 400, "begin again");
    // As JSON for who asks for it.
    let told = http::ask(scene.address, "GET", &back, &[("Accept", "application/json")]);
    told.assert_problem(403, "another browser");
    assert_eq!(scene.everything(), before);
    // The code is still good: nobody has used it.
    says(&open(&back), 200, "connected");
}

#[test]
fn a_person_who_does_not_allow_it_all_is_told_so_and_nothing_is_kept() {
    on_each_database(does_not_allow_it_all::<Google>);
    on_each_database(does_not_allow_it_all::<Microsoft>);
}

fn does_not_allow_it_all<S: Site>(place: &Place) {
    let scene = Scene::<S>::start_web(place);
    let before = scene.everything();
    let auto = || Consent { auto: true, ..Consent::default() };

    scene.site.people(Consent { denied: true, ..auto() });
    says(&scene.go_through(&scene.acme, ""), 403, "did not allow it");
    scene.site.assert_taken_back(0, "");

    scene.site.people(Consent { unticked: vec![S::READ.to_owned()], ..auto() });
    let told = scene.go_through(&scene.acme, "");
    says(&told, 403, "tick the box");
    scene.site.assert_taken_back(1, &told.text());

    scene.site.people(Consent { account: Some(S::BOB.to_owned()), ..auto() });
    let told = scene.go_through(&scene.acme, &format!("?address={}", S::ANN));
    says(&told, 409, "another account");
    scene.site.assert_taken_back(2, &told.text());

    scene.site.people(auto());
    let mut browser = Browser::default();
    let back = browser.consent(&scene, &scene.link(&scene.acme, ""));
    says(&browser.open(scene.address, &without(&back, "code")), 400, "no code");
    let back = browser.consent(&scene, &scene.link(&scene.acme, ""));
    let refused = format!("{}&error=server_error", without(&back, "code"));
    says(&browser.open(scene.address, &refused), 400, "did not let you in");
    let made_up = scene.link(&scene.acme, "").replace("ticket=", "ticket=A");
    says(&Browser::default().open(scene.address, &made_up), 400, "not valid");
    let elsewhere =
        scene.link(&scene.acme, "").replace(&format!("/oauth/{}/", S::NAME), &format!("/oauth/{}/", S::OTHER));
    says(&Browser::default().open(scene.address, &elsewhere), 400, "not valid");
    assert_eq!(scene.everything(), before);
    scene.site.assert_well_asked();
}

#[test]
fn a_callback_that_comes_twice_is_good_once() {
    on_each_database(comes_back_twice::<Google>);
    on_each_database(comes_back_twice::<Microsoft>);
}

fn comes_back_twice<S: Site>(place: &Place) {
    let scene = Scene::<S>::start_web(place);
    let mut browser = Browser::default();
    let back = browser.consent(&scene, &scene.link(&scene.acme, &format!("?address={}", S::ANN)));
    let cookies = browser.cookies.clone();
    says(&browser.open(scene.address, &back), 200, "connected");
    assert!(browser.cookies.is_empty(), "it is not needed any more");
    let before = scene.everything();

    says(&Browser { cookies }.open(scene.address, &back), 400, "used before");
    assert_eq!(scene.everything(), before);
}

/// Somebody holds the consent of an account.
struct Holding<'a> {
    place: &'a Place,
    name: String,
    token: u64,
}

impl<'a> Holding<'a> {
    fn new(place: &'a Place, address: &str) -> Self {
        let name = format!("grant:gmail:{}", &Sha256::of(address.as_bytes()).hex()[..32]);
        let token = block_on(async {
            let store = crate::jobs::store(place);
            store.system().acquire_lease(&name, "test", Duration::from_secs(600)).await.unwrap().unwrap()
        });
        Self { place, name, token }
    }

    fn release(self) {
        block_on(async {
            let store = crate::jobs::store(self.place);
            store.system().release_lease(&self.name, "test", self.token).await.unwrap();
        });
    }
}

#[test]
fn who_comes_back_while_the_account_is_being_let_go_of_is_asked_to_begin_again() {
    on_each_database(|place| {
        let scene = Scene::<Google>::start_web(place);
        let before = scene.everything();
        let held = Holding::new(place, Google::ANN);

        // Whether it was known before whose account it is, or not.
        for query in [format!("?address={}", Google::ANN), String::new()] {
            says(&scene.go_through(&scene.acme, &query), 409, "at this very moment");
        }
        assert_eq!((scene.everything(), scene.site.revoked()), (before, 0), "others may need what was given");
        held.release();
        wait_until("what came to nothing is given back", || scene.site.revoked() == 1);
        says(&scene.go_through(&scene.acme, ""), 200, "connected");
    });
}

#[test]
fn who_closes_the_page_too_soon_has_connected_the_mailbox_all_the_same() {
    on_each_database(|place| {
        let scene = Scene::<Google>::start_web(place);
        let held = Holding::new(place, Google::ANN);
        let mut browser = Browser::default();
        let back = browser.consent(&scene, &scene.link(&scene.acme, ""));

        let page = browser.begin_to_open(scene.address, &back);
        watch_until("the code is exchanged", || scene.site.exchanged() == 1);
        drop(page);
        assert_eq!(http::ask(scene.address, "GET", "/healthz", &[]).status, 200);
        held.release();
        wait_until("the mailbox is connected", || scene.state(Google::ANN) == "connecting");
    });
}
