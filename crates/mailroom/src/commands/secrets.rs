//! `mailroom secrets`

use std::process::ExitCode;

use engine::operations::{Invocation, installation};
use terminal::{Failure, Output, count, note};

use crate::app;
use crate::cli;
use crate::config::Config;

pub async fn rotate(config: &Config, args: &cli::RotateArgs, out: Output) -> Result<ExitCode, Failure> {
    app::forbid_core_dumps()?;
    let engine = app::open(config).await?;
    let origin = app::origin();
    let call = Invocation::begin(&engine, &origin).await?;
    let rotated = installation::rotate_secrets(&call, args.new_key_file.as_deref()).await.map_err(app::refused)?;
    if out.json {
        out.object(&rotated)?;
    } else {
        out.line(&format!(
            "The current master key is {}. New keys: {} tenants. Re-encrypted: {} secrets.",
            rotated.fingerprint,
            count(rotated.tenants),
            count(rotated.secrets)
        ))?;
        for retired in &rotated.retired {
            out.line(&format!("{retired} is only needed to restore backups made before."))?;
        }
    }
    for what in &rotated.damaged {
        note(&format!("{what} cannot be decrypted and stays as it is; store the secrets of that tenant again."));
    }
    Ok(if rotated.damaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
