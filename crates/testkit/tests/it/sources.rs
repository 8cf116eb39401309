//! The source files of the workspace, for the tests that read them.

use std::fs;
use std::path::{Path, PathBuf};

pub struct SourceFile {
    pub crate_name: String,
    /// From the root of the workspace on.
    pub path: String,
    pub text: String,
}

pub fn workspace() -> PathBuf {
    Path::new("../..").canonicalize().unwrap()
}

pub fn source_files() -> Vec<SourceFile> {
    let root = workspace();
    let mut files = vec![];
    for folder in fs::read_dir(root.join("crates")).unwrap() {
        let folder = folder.unwrap().path();
        let crate_name = folder.file_name().unwrap().to_string_lossy().into_owned();
        collect_files(&root, &folder, &crate_name, &mut files);
    }
    assert!(files.len() > 500, "only {} source files were found", files.len());
    files
}

fn collect_files(root: &Path, folder: &Path, crate_name: &str, files: &mut Vec<SourceFile>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_files(root, &path, crate_name, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(SourceFile {
                crate_name: crate_name.to_owned(),
                path: path.strip_prefix(root).unwrap().display().to_string(),
                text: fs::read_to_string(&path).unwrap(),
            });
        }
    }
}
