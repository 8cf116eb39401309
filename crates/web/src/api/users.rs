//! Users found in the directories of a tenant.

use axum::Json;
use domain::address::canonical;
use domain::{ExclusionReason, MailboxId, Provider, UserId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::sql::users::{User, UserFilter};
use utoipa::{IntoParams, ToSchema};

use super::Query;
use super::auth::TenantReader;
use super::page::{Page, limit, parse_cursor};
use super::problem::Problem;

/// A user in a directory, and whether their mailbox is synced.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = User)]
pub struct UserView {
    #[schema(value_type = String, format = "uuid")]
    id: UserId,
    #[schema(example = "gmail")]
    provider: &'static str,
    /// Permanent id of the user in the directory.
    provider_user_id: String,
    #[schema(example = "ann@acme.test")]
    address: Option<String>,
    aliases: Vec<String>,
    name: Option<String>,
    /// Organisational unit or department.
    unit: Option<String>,
    /// Null here and below: unknown.
    is_suspended: Option<bool>,
    is_guest: Option<bool>,
    is_licensed: Option<bool>,
    /// `active`: the mailbox is synced. `inactive`: it is not synced, or does not exist.
    #[schema(example = "active")]
    state: &'static str,
    /// Why the mailbox is not synced: `gone`, `no_address`, `suspended`, `guest`, `unlicensed`, `excluded`, `not_included`,
    /// `address_taken` or `disconnected`.
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
            left_out: user.left_out.map(ExclusionReason::as_str),
            mailbox_id: user.mailbox,
            created_at: user.created_at,
            updated_at: user.updated_at,
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UserQuery {
    /// Only users of this directory: `gmail` or `outlook`.
    provider: Option<String>,
    /// Only users in this state: `active` or `inactive`.
    state: Option<String>,
    /// Only users that are left out for this reason.
    left_out: Option<String>,
    /// Only the user with this address or alias.
    address: Option<String>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u64>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

impl UserQuery {
    fn filter(&self) -> Result<UserFilter, Problem> {
        Ok(UserFilter {
            provider: self.provider.as_deref().map(parse_provider).transpose()?,
            is_active: self.state.as_deref().map(parse_state).transpose()?,
            left_out: self.left_out.as_deref().map(parse_left_out).transpose()?,
            address: self.address.as_deref().map(parse_address).transpose()?,
        })
    }
}

fn parse_provider(name: &str) -> Result<Provider, Problem> {
    Provider::parse(name).ok_or_else(|| {
        Problem::invalid("provider", format!("must be {}", engine::directory::directory_providers().join(" or ")))
    })
}

/// Returns whether the state is `active`.
fn parse_state(state: &str) -> Result<bool, Problem> {
    match state {
        "active" => Ok(true),
        "inactive" => Ok(false),
        _ => Err(Problem::invalid("state", "must be active or inactive")),
    }
}

fn parse_left_out(word: &str) -> Result<ExclusionReason, Problem> {
    ExclusionReason::parse(word).ok_or_else(|| {
        Problem::invalid(
            "left_out",
            format!("must be one of {}", ExclusionReason::ALL.map(ExclusionReason::as_str).join(", ")),
        )
    })
}

pub fn parse_address(text: &str) -> Result<String, Problem> {
    canonical(text).ok_or_else(|| Problem::invalid("address", "must be an email address, such as me@acme.test"))
}

/// List the users of the tenant's directories, in the order in which they were found.
#[utoipa::path(get, path = "/v1/users", operation_id = "list_users", tag = "directories", params(UserQuery), responses(
    (status = 200, description = "Matching users", body = Page<UserView>)))]
pub async fn list(
    TenantReader(store): TenantReader,
    Query(query): Query<UserQuery>,
) -> Result<Json<Page<UserView>>, Problem> {
    let limit = limit(query.limit)?;
    let after = query.cursor.as_deref().map(parse_cursor).transpose()?;
    let users = store.list_users(&query.filter()?, after, limit + 1).await?;
    Ok(Json(Page::cut(users, limit, |user| user.id).map(UserView::from)))
}
