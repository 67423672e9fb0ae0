//! A folder of format definitions.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crossway_core::format::Definition;

/// Bytes of one file; a definition is refused with far less.
const MAX_FILE: u64 = 1 << 20;
/// The most files that are looked at.
const MAX_FILES: usize = 512;

/// A file, or the folder itself, that gave no definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct FormatFault {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it, and where.
    pub reason: String,
}

/// Reads all `*.json`, `*.yaml` and `*.yml` of a folder in the order of their names. A faulty one
/// leaves the others in force, and so does a second one of the same name. It blocks.
#[must_use]
pub fn load_formats(folder: &Path) -> (Vec<Definition>, Vec<FormatFault>) {
    let (mut definitions, mut faults): (Vec<Definition>, Vec<FormatFault>) = Default::default();
    let mut files = match list(folder) {
        Ok(files) => files,
        Err(error) => {
            let reason = format!("the folder can't be read: {error}");
            let path = folder.to_owned();
            return (definitions, vec![FormatFault { path, reason }]);
        }
    };
    files.sort();
    if files.len() > MAX_FILES {
        faults.push(FormatFault {
            path: folder.to_owned(),
            reason: format!("only the first {MAX_FILES} files are read"),
        });
        files.truncate(MAX_FILES);
    }
    for path in files {
        match read(&path) {
            Ok(new) if definitions.iter().any(|old| old.name() == new.name()) => {
                let reason = format!("format {} stands in an earlier file too", new.name());
                faults.push(FormatFault { path, reason });
            }
            Ok(definition) => definitions.push(definition),
            Err(reason) => faults.push(FormatFault { path, reason }),
        }
    }
    (definitions, faults)
}

fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if matches!(extension(&path), Some("json" | "yaml" | "yml")) {
            files.push(path);
        }
    }
    Ok(files)
}

fn extension(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}

fn read(path: &Path) -> Result<Definition, String> {
    let unread = |error: io::Error| format!("it can't be read: {error}");
    // Asked first: opening a pipe would wait for its other end.
    if !fs::metadata(path).map_err(unread)?.is_file() {
        return Err("it isn't a regular file".to_owned());
    }
    let mut text = String::new();
    let file = File::open(path).map_err(unread)?;
    file.take(MAX_FILE)
        .read_to_string(&mut text)
        .map_err(unread)?;
    let parsed = match extension(path) {
        Some("json") => Definition::parse_json(&text),
        _ => Definition::parse_yaml(&text),
    };
    parsed.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_faulty_file_is_named_and_leaves_the_others_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("a.json", r#"{"format_name":"a"}"#);
        write(
            "b.yaml",
            "format_name: b\nfield_mapping: {x: {to: y, transform: z}}\n",
        );
        write("c.yml", "format_name: c\n");
        write("d.yaml", "format_name: c\n");
        write("notes.txt", "format_name: e\n");
        let (definitions, faults) = load_formats(folder.path());
        let names: Vec<&str> = definitions.iter().map(Definition::name).collect();
        assert_eq!(names, ["a", "c"]);
        let faulty: Vec<_> = faults.iter().map(|fault| fault.path.file_name()).collect();
        assert_eq!(faulty, [Some("b.yaml".as_ref()), Some("d.yaml".as_ref())]);
        assert!(faults[0].reason.contains("/field_mapping/x/transform"));
    }

    #[test]
    fn a_folder_that_is_not_there_is_a_fault() {
        let (definitions, faults) = load_formats(Path::new("/nonexistent"));
        assert!(definitions.is_empty());
        assert_eq!(faults.len(), 1);
    }
}
