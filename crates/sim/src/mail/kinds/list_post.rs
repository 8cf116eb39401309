//! Posts to a discussion list: the list rewrites subject and footer and adds its own fields (RFC 2369).

use super::Kind;
use super::body::{Letter, text_part};
use crate::mail::clients::Style;
use crate::mail::desk::Desk;
use crate::mail::letter::Draft;
use crate::mail::mime::Headers;
use crate::mail::people::{Contact, PersonId};

const LISTS: [(&str, &str); 3] =
    [("workshop-talk", "Workshop talk"), ("tooling", "Tooling and measuring"), ("harbour-news", "Harbour news")];
const HOST: &str = "lists.smallworkshops.example";

pub fn write(desk: &mut Desk<'_>) -> Draft {
    let (list, title) = *desk.rng.pick(&LISTS);
    let author = member(desk);
    let person = desk.person(author);
    let style = Style::new(person.client, desk.language, &mut desk.rng);
    let subject = format!("[{list}] {}", desk.writer().subject());
    let size = desk.body_size();
    let to = vec![Contact { name: title.to_owned(), address: format!("{list}@{HOST}") }];
    let letter = Letter::compose(desk, author, &[desk.contact(desk.owner)], size, None);
    let text = format!(
        "{}\n_______________________________________________\n{list}@{HOST}\nhttps://{HOST}/{list}\n",
        letter.plain
    );
    Draft {
        kind: Kind::ListPost,
        style,
        language: desk.language,
        from: person.contact.clone(),
        return_path: Some(format!("{list}-bounces@{HOST}")),
        to,
        // Lists deliver to members who are named nowhere; the copy shows who got this one.
        cc: vec![desk.contact(desk.owner)],
        subject,
        message_id: desk.message_id(person.contact.domain()),
        fields: fields(list, title, style),
        body: text_part(style, "plain", text, desk.language),
    }
}

/// Someone at another company who writes the desk's language, if there is one.
fn member(desk: &mut Desk<'_>) -> PersonId {
    let speaks = |number: &usize| desk.profile.companies[*number].language == desk.language;
    let abroad: Vec<usize> =
        (0..desk.profile.companies.len()).filter(|number| *number != desk.owner.company).filter(speaks).collect();
    let company = if abroad.is_empty() { desk.owner.company } else { *desk.rng.pick(&abroad) };
    let people = desk.profile.companies[company].people.len();
    PersonId { company, person: (desk.owner.person + 1 + desk.rng.below(people - 1)) % people }
}

fn fields(list: &str, title: &str, style: Style) -> String {
    let mut headers = Headers::default();
    headers.field("Sender", &format!("{list}-bounces@{HOST}"));
    headers.field("List-Id", &format!("{title} <{list}.{HOST}>"));
    headers.field("List-Post", &format!("<mailto:{list}@{HOST}>"));
    headers.field("List-Archive", &format!("<https://{HOST}/archive/{list}/>"));
    headers
        .field("List-Unsubscribe", &format!("<https://{HOST}/{list}>, <mailto:{list}-request@{HOST}?subject=leave>"));
    headers.field("List-Help", &format!("<mailto:{list}-request@{HOST}?subject=help>"));
    headers.field("Precedence", "list");
    headers.field("X-BeenThere", &format!("{list}@{HOST}"));
    headers.field(style.client.agent.0, style.client.agent.1);
    headers.text
}
