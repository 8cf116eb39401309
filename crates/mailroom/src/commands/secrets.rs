//! `mailroom secrets`

use std::process::ExitCode;

use crate::app;
use crate::cli;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{Output, count, tell};

pub async fn rotate(config: &Config, args: &cli::Rotate, out: Output) -> Result<ExitCode, Failure> {
    app::forbid_core_dumps()?;
    let engine = app::open(config).await?;
    let rotated = engine.vault.rotate(args.new_key_file.as_deref()).await?;
    if out.json {
        out.object(&rotated)?;
    } else {
        out.line(&format!(
            "The master key in force is {}. New keys: {} tenants. Encrypted anew: {} secrets.",
            rotated.fingerprint,
            count(rotated.tenants),
            count(rotated.secrets)
        ))?;
        for retired in &rotated.retired {
            out.line(&format!("{retired} is not needed any more, except to restore a backup that was made before."))?;
        }
    }
    for what in &rotated.damaged {
        tell(&format!("{what} cannot be decrypted and stays as it is; store the secrets of that tenant anew."));
    }
    Ok(if rotated.damaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
