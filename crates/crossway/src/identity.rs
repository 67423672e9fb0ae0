//! Who this daemon is among several on one store.
//!
//! The identity lies in the folder for state and outlives a restart, so that a daemon that was
//! killed takes its streams back at once. The file is locked while the process lives: two
//! processes never have the same identity.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// The file's name within the folder for state.
const FILE: &str = "identity";

/// The folder for state can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentityError {
    /// It is another daemon's.
    #[error("{}: another daemon uses this folder; give each its own with data_dir", .0.display())]
    InUse(PathBuf),
    /// It can't be read or written.
    #[error("{}: {reason}", path.display())]
    Disk {
        /// What couldn't be used.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
}

/// An identity, held as long as the value lives.
#[derive(Debug)]
pub(crate) struct Identity {
    name: String,
    /// Its lock ends with it.
    _file: File,
}

impl Identity {
    /// Takes the identity that lies in `folder`, or makes one there.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub(crate) fn claim(folder: &Path) -> Result<Identity, IdentityError> {
        let disk = |path: &Path| {
            let path = path.to_owned();
            move |reason| IdentityError::Disk { path, reason }
        };
        fs::create_dir_all(folder).map_err(disk(folder))?;
        let path = folder.join(FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(disk(&path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(IdentityError::InUse(folder.to_owned()));
            }
            Err(errno) => return Err(disk(&path)(errno.into())),
        }
        let mut name = String::new();
        file.read_to_string(&mut name).map_err(disk(&path))?;
        let known = name.trim();
        if !known.is_empty() && known.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(Identity {
                name: known.to_owned(),
                _file: file,
            });
        }
        let name = crossway_relay::random_name();
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{name}"))
            .and_then(|()| file.sync_all())
            .map_err(disk(&path))?;
        Ok(Identity { name, _file: file })
    }

    /// The identity, as other daemons see it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_outlives_its_process_and_is_never_held_twice() {
        let folder = tempfile::tempdir().unwrap();
        let first = Identity::claim(folder.path()).unwrap();
        assert!(matches!(
            Identity::claim(folder.path()),
            Err(IdentityError::InUse(_))
        ));
        let name = first.name().to_owned();
        drop(first);
        assert_eq!(Identity::claim(folder.path()).unwrap().name(), name);
        fs::write(folder.path().join(FILE), "nonsense\n").unwrap();
        assert_ne!(Identity::claim(folder.path()).unwrap().name(), name);
    }
}
