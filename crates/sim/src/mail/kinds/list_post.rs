//! Posts to a mailing list, which rewrites subject and footer and adds its own fields (RFC 2369).

use super::MailKind;
use super::body::{LetterText, text_part};
use crate::mail::compose_context::ComposeContext;
use crate::mail::letter::Draft;
use crate::mail::mail_programs::WritingStyle;
use crate::mail::mime::Headers;
use crate::mail::people::{Contact, PersonId};

const LISTS: [(&str, &str); 3] =
    [("workshop-talk", "Workshop talk"), ("tooling", "Tooling and measuring"), ("harbour-news", "Harbour news")];
const LIST_HOST: &str = "lists.smallworkshops.example";

pub fn write(context: &mut ComposeContext<'_>) -> Draft {
    let (list, title) = *context.rng.pick(&LISTS);
    let author = member(context);
    let person = context.person(author);
    let style = WritingStyle::new(person.client, context.language, &mut context.rng);
    let subject = format!("[{list}] {}", context.writer().subject());
    let size = context.body_size();
    let to = vec![Contact { name: title.to_owned(), address: format!("{list}@{LIST_HOST}") }];
    let letter = LetterText::compose(context, author, &[context.contact(context.owner)], size, None);
    let text = format!(
        "{}\n_______________________________________________\n{list}@{LIST_HOST}\nhttps://{LIST_HOST}/{list}\n",
        letter.plain
    );
    Draft {
        kind: MailKind::ListPost,
        style,
        language: context.language,
        from: person.contact.clone(),
        return_path: Some(format!("{list}-bounces@{LIST_HOST}")),
        to,
        // A list does not name its members; the Cc shows whose copy this is.
        cc: vec![context.contact(context.owner)],
        subject,
        message_id: context.message_id(person.contact.domain()),
        fields: fields(list, title, style),
        body: text_part(style, "plain", text, context.language),
    }
}

/// Picks an author at another company who writes the context's language, if there is one.
fn member(context: &mut ComposeContext<'_>) -> PersonId {
    let abroad: Vec<usize> = (0..context.profile.companies.len())
        .filter(|number| *number != context.owner.company)
        .filter(|number| context.profile.companies[*number].language == context.language)
        .collect();
    let company = if abroad.is_empty() { context.owner.company } else { *context.rng.pick(&abroad) };
    let people = context.profile.companies[company].people.len();
    PersonId { company, person: (context.owner.person + 1 + context.rng.below(people - 1)) % people }
}

fn fields(list: &str, title: &str, style: WritingStyle) -> String {
    let mut headers = Headers::default();
    headers.field("Sender", &format!("{list}-bounces@{LIST_HOST}"));
    headers.field("List-Id", &format!("{title} <{list}.{LIST_HOST}>"));
    headers.field("List-Post", &format!("<mailto:{list}@{LIST_HOST}>"));
    headers.field("List-Archive", &format!("<https://{LIST_HOST}/archive/{list}/>"));
    headers.field(
        "List-Unsubscribe",
        &format!("<https://{LIST_HOST}/{list}>, <mailto:{list}-request@{LIST_HOST}?subject=leave>"),
    );
    headers.field("List-Help", &format!("<mailto:{list}-request@{LIST_HOST}?subject=help>"));
    headers.field("Precedence", "list");
    headers.field("X-BeenThere", &format!("{list}@{LIST_HOST}"));
    headers.field(style.client.agent.0, style.client.agent.1);
    headers.text
}
