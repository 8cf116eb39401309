//! Checks mailbox settings given over HTTP and applies them to those of the mailbox.

use domain::{MailboxSettings, Provider, ProviderDeclarations, Secret};
use store::sql::mailboxes::Mailbox;

use super::connection_body::{ConnectionBody, GivenFields, connect, refuse_operator_fields, unsupported};
use crate::problem::Problem;

/// Settings of a new or changed mailbox, as a request has them.
#[derive(Debug)]
pub struct MailboxSettingsInput<'a> {
    /// Those that mailboxes of all providers have; each may be absent.
    pub common: MailboxSettings,
    pub connection: &'a ConnectionBody,
}

/// Settings to store, and the secret that was given with them.
pub type SettingsWithSecret = (MailboxSettings, Option<Secret<String>>);

impl MailboxSettingsInput<'_> {
    /// Returns the settings of a new mailbox with this address.
    pub fn for_new(
        self,
        providers: ProviderDeclarations,
        provider: Provider,
        address: &str,
        is_operator: bool,
    ) -> Result<SettingsWithSecret, Problem> {
        let given = GivenFields::read(self.connection, providers, provider, true)?;
        let Some(declaration) = providers.find(provider) else { return self.for_files(&given) };
        let made = connect(&declaration.connection, &given.input, address)?;
        given.check_supported(provider)?;
        self.check_common(declaration.connection.has_byte_quota, provider)?;
        if !is_operator {
            refuse_operator_fields(&declaration.connection, &given.input)?;
        }
        Ok((MailboxSettings { connection: made.settings, ..self.common }, made.secret))
    }

    /// Applies the given settings to those of an existing mailbox.
    pub fn over(self, providers: ProviderDeclarations, mailbox: &Mailbox) -> Result<SettingsWithSecret, Problem> {
        let provider = mailbox.provider;
        let given = GivenFields::read(self.connection, providers, provider, false)?;
        let Some(declaration) = providers.find(provider) else {
            return self.for_files(&given).map(|_| (mailbox.settings.clone(), None));
        };
        given.check_supported(provider)?;
        self.check_common(declaration.connection.has_byte_quota, provider)?;
        let made = (declaration.connection.change)(&mailbox.settings.connection, &given.input)?;
        let settings = mailbox.settings.clone().overridden_by(self.common);
        Ok((MailboxSettings { connection: made.settings, ..settings }, made.secret))
    }

    fn for_files(self, connection: &GivenFields) -> Result<SettingsWithSecret, Problem> {
        connection.check_supported(Provider::Files)?;
        let common = &self.common;
        let given = [
            ("folders", common.folders.is_some()),
            ("exclude", common.exclude.is_some()),
            ("interval_seconds", common.interval_seconds.is_some()),
            ("bytes_per_day", common.bytes_per_day.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((field, _)) => Err(unsupported(field, Provider::Files)),
            None => Ok((MailboxSettings::default(), None)),
        }
    }

    fn check_common(&self, has_byte_quota: bool, provider: Provider) -> Result<(), Problem> {
        if self.common.bytes_per_day.is_some() && !has_byte_quota {
            return Err(unsupported("bytes_per_day", provider));
        }
        Ok(self.common.check()?)
    }
}
