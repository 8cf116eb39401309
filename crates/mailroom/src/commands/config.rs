//! `mailroom config show`

use std::process::ExitCode;

use terminal::{Failure, Output};

use crate::config::Config;

pub fn show(config: &Config, out: Output) -> Result<ExitCode, Failure> {
    if out.json {
        config.show().iter().try_for_each(|setting| out.object(setting))?;
    } else {
        let rows: Vec<[String; 3]> = config
            .show()
            .iter()
            .map(|setting| [setting.key.to_owned(), setting.value.clone(), setting.source.clone()])
            .collect();
        out.table(["setting", "value", "from"], &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}
