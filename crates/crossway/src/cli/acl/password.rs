//! Passwords for new users: made here, written to a file that only its owner reads, and never shown.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

use crate::cli::CliError;

/// A password of 256 bits.
pub(super) struct Password(String);

impl Password {
    pub(super) fn draw() -> Result<Password, CliError> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).map_err(|_| {
            CliError::Input("the system has no random bytes for a password".to_owned())
        })?;
        Ok(Password(URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// As the store keeps it: the store needn't be told more.
    pub(super) fn rule(&self) -> String {
        let digest = digest(&SHA256, self.0.as_bytes());
        digest
            .as_ref()
            .iter()
            .fold("#".to_owned(), |mut rule, byte| {
                let _ = write!(rule, "{byte:02x}");
                rule
            })
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password")
    }
}

/// Writes users and their passwords to a new file, a line each. They are on the disk when it returns.
pub(super) fn write(path: &Path, made: &[(String, Password)]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    for (user, password) in made {
        writeln!(file, "{user} {}", password.0)?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_told_to_the_store_by_its_digest_and_shown_to_nobody() {
        let password = Password("abc".to_owned());
        let digest = "#ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(password.rule(), digest);
        assert_eq!(format!("{password:?}"), "Password");
        let drawn = Password::draw().unwrap();
        assert_eq!(drawn.0.len(), 43);
        assert_ne!(drawn.rule(), Password::draw().unwrap().rule());
    }
}
