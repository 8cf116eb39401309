//! Commands that connect mailboxes by a refresh token, a link or the right of an organization, against a Google and a
//! Microsoft that do not exist. Consents in the browser are tested in `web/tests/it`.

mod commands;
mod microsoft;
mod site;
