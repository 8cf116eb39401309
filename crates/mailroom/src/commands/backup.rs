//! `mailroom backup` and `mailroom restore`

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use domain::SystemClock;
use engine::Progress;
use engine::archive::backup::{RestoreTarget, restore};
use engine::operations::{Invocation, installation};
use serde::Serialize;
use serde_json::json;
use terminal::{Bar, Failure, Output, ProgressUnit, count, size};

use crate::app;
use crate::config::Config;

pub async fn backup(config: &Config, folder: &Path, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    let origin = app::origin();
    let call = Invocation::begin(&engine, &origin).await?;
    let dump_url = config.dump_url().map(|url| url.expose().as_str());
    let progress = Arc::new(Progress::default());
    let bar = Bar::follow(&progress, ProgressUnit::Bytes, "objects");
    let done = installation::backup(&call, folder, dump_url, &progress).await.map_err(app::refused)?;
    drop(bar);
    if out.json {
        print(&done, folder, out)?;
    } else {
        out.line(&format!(
            "Backed up the database ({}) and {} objects ({}) to {}; {} objects ({}) were new, {} were no longer needed.",
            size(done.database_bytes),
            count(done.objects),
            size(done.object_bytes),
            folder.display(),
            count(done.copied),
            size(done.copied_bytes),
            count(done.removed),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn restore_from(config: &Config, folder: &Path, out: Output) -> Result<ExitCode, Failure> {
    let target = RestoreTarget {
        location: app::database_location(config),
        blobs: app::open_blobs(config)?,
        clock: Arc::new(SystemClock),
        data_dir: config.data_dir.clone(),
        dump_url: config.dump_url().map(|url| url.expose().clone()),
    };
    let progress = Arc::new(Progress::default());
    let bar = Bar::follow(&progress, ProgressUnit::Bytes, "objects");
    let done = restore(folder, &target, &progress).await?;
    drop(bar);
    if out.json {
        print(&done, folder, out)?;
    } else {
        out.line(&format!(
            "Restored the database ({}) and {} objects ({}) from {}. Check them with `mailroom verify --deep`.",
            size(done.database_bytes),
            count(done.objects),
            size(done.object_bytes),
            folder.display(),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(done: &impl Serialize, folder: &Path, out: Output) -> Result<(), Failure> {
    let mut object = json!(done);
    object["folder"] = json!(folder);
    out.object(&object)
}
