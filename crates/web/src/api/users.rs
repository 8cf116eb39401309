//! People that directories have told of.

use axum::Json;
use domain::address::canonical;
use domain::{LeftOut, MailboxId, Provider, UserId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::sql::users::{User, UserFilter};
use utoipa::{IntoParams, ToSchema};

use super::Query;
use super::auth::Reader;
use super::page::{Page, limit};
use super::problem::Problem;

/// Somebody in a directory, and whether their mailbox is looked at.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = User)]
pub struct UserView {
    #[schema(value_type = String, format = "uuid")]
    id: UserId,
    #[schema(example = "gmail")]
    provider: &'static str,
    /// What the directory calls them, for ever.
    provider_user_id: String,
    #[schema(example = "ann@acme.test")]
    address: Option<String>,
    aliases: Vec<String>,
    name: Option<String>,
    /// Where in the organisation.
    unit: Option<String>,
    /// Null, here and below: that is not known.
    is_suspended: Option<bool>,
    is_guest: Option<bool>,
    is_licensed: Option<bool>,
    /// active: their mailbox is looked at. inactive: it is not, or there is none.
    #[schema(example = "active")]
    state: &'static str,
    /// Why it is not: gone, no_address, suspended, guest, unlicensed, excluded, not_included, address_taken or disconnected.
    left_out: Option<&'static str>,
    #[schema(value_type = Option<String>, format = "uuid")]
    mailbox_id: Option<MailboxId>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

impl From<User> for UserView {
    fn from(user: User) -> Self {
        let person = user.person;
        Self {
            id: user.id,
            provider: user.provider.as_str(),
            provider_user_id: person.id,
            address: person.address,
            aliases: person.aliases.unwrap_or_default(),
            name: person.name,
            unit: person.unit,
            is_suspended: person.is_suspended,
            is_guest: person.is_guest,
            is_licensed: person.is_licensed,
            state: if user.is_active { "active" } else { "inactive" },
            left_out: user.left_out.map(LeftOut::as_str),
            mailbox_id: user.mailbox,
            created_at: user.created_at,
            updated_at: user.updated_at,
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Wanted {
    /// gmail or outlook.
    provider: Option<String>,
    /// active or inactive.
    state: Option<String>,
    /// Left out for this reason.
    left_out: Option<String>,
    /// Whose address or alias this is.
    address: Option<String>,
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u64>,
    /// What the page before gave as `next_cursor`.
    cursor: Option<String>,
}

impl Wanted {
    fn filter(&self) -> Result<UserFilter, Problem> {
        let one = |field: &str, known: &str| Problem::invalid(field, format!("it is {known}"));
        let provider = |name: &String| Provider::parse(name).ok_or_else(|| one("provider", "gmail or outlook"));
        let state = |state: &String| match state.as_str() {
            "active" => Ok(true),
            "inactive" => Ok(false),
            _ => Err(one("state", "active or inactive")),
        };
        let words = || LeftOut::ALL.map(LeftOut::as_str).join(", ");
        let left_out =
            |word: &String| LeftOut::parse(word).ok_or_else(|| one("left_out", &format!("one of {}", words())));
        let address = |text: &String| canonical(text).ok_or_else(|| one("address", "like somebody@somewhere"));
        Ok(UserFilter {
            provider: self.provider.as_ref().map(provider).transpose()?,
            is_active: self.state.as_ref().map(state).transpose()?,
            left_out: self.left_out.as_ref().map(left_out).transpose()?,
            address: self.address.as_ref().map(address).transpose()?,
        })
    }
}

/// People that the tenant's directories have told of, in the order in which they were found.
#[utoipa::path(get, path = "/v1/users", operation_id = "list_users", tag = "directories", params(Wanted), responses(
    (status = 200, description = "What was asked for", body = Page<UserView>)))]
pub async fn list(Reader(store): Reader, Query(wanted): Query<Wanted>) -> Result<Json<Page<UserView>>, Problem> {
    let limit = limit(wanted.limit)?;
    let read = |cursor: &String| cursor.parse().map_err(|_| Problem::invalid("cursor", "no list gave this"));
    let after = wanted.cursor.as_ref().map(read).transpose()?;
    let users = store.list_users(&wanted.filter()?, after, limit + 1).await?;
    Ok(Json(Page::cut(users, limit, |user| user.id).map(UserView::from)))
}
