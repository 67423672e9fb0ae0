//! The folder of format definitions that a configuration names: read and checked with it, so that
//! a faulty one is refused as a faulty configuration is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossway_core::format::{Definition, Formats};

use super::Config;
use super::checks::Contradiction;
use crate::regular;

/// No definition is longer.
const MAX_BYTES: u64 = 1 << 20;

/// More files than this aren't a folder of formats.
const MAX_FILES: usize = 1000;

/// All formats: those that are built in, and those of the folder.
#[derive(Debug, Clone)]
pub(crate) struct FormatFolder {
    /// What was read, in the order of the names.
    files: Vec<(PathBuf, String)>,
    formats: Arc<Formats>,
}

impl FormatFolder {
    /// The formats, compiled.
    pub(crate) fn formats(&self) -> &Arc<Formats> {
        &self.formats
    }

    /// The files that they were read from.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(path, _)| path.as_path())
    }
}

/// Two are the same when the same was read.
impl PartialEq for FormatFolder {
    fn eq(&self, other: &FormatFolder) -> bool {
        self.files == other.files
    }
}

pub(super) fn read(config: &Config) -> Result<FormatFolder, Vec<Contradiction>> {
    let mut formats = Formats::builtin();
    let mut files = Vec::new();
    let mut faults = Vec::new();
    let wrong = |path: &Path, reason: &dyn std::fmt::Display, hint| Contradiction {
        key: &["relay", "formats"],
        what: format!(
            "{}: {}",
            path.display(),
            reason.to_string().replace('\n', " ")
        ),
        hint,
    };
    if let Some(folder) = &config.relay.formats {
        let paths = definitions(folder)
            .map_err(|error| vec![wrong(folder, &error, "check the path and its permissions")])?;
        for path in paths {
            let text = match text(&path) {
                Ok(text) => text,
                Err(error) => {
                    faults.push(wrong(&path, &error, "check the file and its permissions"));
                    continue;
                }
            };
            if let Err(error) = add(&mut formats, &path, &text) {
                let hint = "see docs/formats.md for how a format is described";
                faults.push(wrong(&path, &error, hint));
            }
            files.push((path, text));
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(FormatFolder {
        files,
        formats: Arc::new(formats),
    })
}

fn add(formats: &mut Formats, path: &Path, text: &str) -> Result<(), String> {
    let definition = if path
        .extension()
        .is_some_and(|extension| extension == "json")
    {
        Definition::parse_json(text)
    } else {
        Definition::parse_yaml(text)
    };
    let definition = definition.map_err(|error| error.to_string())?;
    if formats.get(definition.name()).is_some() {
        return Err(format!("format {} is there already", definition.name()));
    }
    formats
        .register(definition)
        .map_err(|error| error.to_string())
}

/// The files of a folder that are named as definitions, in the order of their names.
fn definitions(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let named = path.extension().is_some_and(|extension| {
            extension == "json" || extension == "yaml" || extension == "yml"
        });
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if named && !hidden {
            paths.push(path);
        }
        if paths.len() > MAX_FILES {
            return Err(std::io::Error::other(format!(
                "it holds more than {MAX_FILES} definitions"
            )));
        }
    }
    paths.sort();
    Ok(paths)
}

fn text(path: &Path) -> std::io::Result<String> {
    String::from_utf8(regular::read(path, MAX_BYTES)?)
        .map_err(|error| std::io::Error::other(error.utf8_error()))
}
