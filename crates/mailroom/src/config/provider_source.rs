//! The configuration as the providers' folders read it.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use providers::settings_source::{AppSettingError, SettingsSource};

use super::ConfigError;
use super::reader::SettingsReader;

impl SettingsSource for SettingsReader {
    fn is_given(&self, key: &'static str) -> bool {
        Self::is_given(self, key)
    }

    fn text(&self, key: &'static str, expected: &str) -> Result<Option<(String, String)>, AppSettingError> {
        let text = Self::text(self, key, expected).map_err(setting_error)?;
        Ok(text.map(|(text, origin)| (text, origin.to_string())))
    }

    fn count(&mut self, key: &'static str, allowed: RangeInclusive<usize>) -> Result<usize, AppSettingError> {
        Self::count(self, key, allowed).map_err(setting_error)
    }

    fn size(&mut self, key: &'static str, allowed: RangeInclusive<u64>) -> Result<u64, AppSettingError> {
        Self::size(self, key, allowed).map_err(setting_error)
    }

    fn secret(
        &mut self,
        key: &'static str,
        file_key: &'static str,
        expected: &str,
    ) -> Result<Option<(String, String)>, AppSettingError> {
        Self::secret(self, key, file_key, expected).map_err(setting_error)
    }

    fn expand(&self, path: &Path) -> Result<PathBuf, AppSettingError> {
        Self::expand(self, path).map_err(setting_error)
    }

    fn show(&mut self, key: &'static str, value: String, origin: &str) {
        Self::show(self, key, value, &origin);
    }
}

fn setting_error(e: ConfigError) -> AppSettingError {
    AppSettingError(e.to_string())
}

impl From<AppSettingError> for ConfigError {
    fn from(e: AppSettingError) -> Self {
        Self::new(e.to_string())
    }
}
