//! The names of keys, and which names may stand in them.

use crate::error::ClientError;

const LONGEST_NAME: usize = 128;

/// Which keys one site uses.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    /// The site.
    pub(crate) site: String,
    /// The site's stream, where it writes and reads.
    pub(crate) stream: String,
    /// The stream where a new site makes itself known.
    pub(crate) register: String,
    /// The word by which the daemon signs.
    pub(crate) daemon: String,
}

impl Names {
    pub(crate) fn new(
        site: &str,
        environment: &str,
        namespace: &str,
        keyspace: &str,
        hash_tags: bool,
    ) -> Result<Names, ClientError> {
        let named = [
            ("the site", site),
            ("the environment", environment),
            ("the namespace", namespace),
            ("the keyspace word", keyspace),
        ];
        for (what, name) in named {
            if !is_name(name) {
                return Err(ClientError::Name {
                    what,
                    name: name.to_owned(),
                });
            }
        }
        let tag = |name: &str| {
            if hash_tags {
                format!("{{{name}}}")
            } else {
                name.to_owned()
            }
        };
        Ok(Names {
            site: site.to_owned(),
            stream: format!("{}:{keyspace}:unified:{environment}", tag(site)),
            register: format!("{}:{keyspace}:register", tag(namespace)),
            daemon: namespace.to_owned(),
        })
    }
}

fn is_name(text: &str) -> bool {
    (1..=LONGEST_NAME).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_its_stream_in_both_spellings() {
        let plain = Names::new("shop", "staging", "gnode", "gnode", false).unwrap();
        assert_eq!(plain.stream, "shop:gnode:unified:staging");
        assert_eq!(plain.register, "gnode:gnode:register");
        let tagged = Names::new("shop", "staging", "top", "word", true).unwrap();
        assert_eq!(tagged.stream, "{shop}:word:unified:staging");
        assert_eq!(tagged.register, "{top}:word:register");
        assert_eq!(tagged.daemon, "top");
    }

    #[test]
    fn a_name_that_could_reach_another_key_is_refused() {
        for name in ["", "a:b", "a b", "{a}", "ä", "*", &"x".repeat(129)] {
            assert!(
                Names::new(name, "production", "gnode", "gnode", false).is_err(),
                "{name:?}"
            );
            assert!(
                Names::new("shop", name, "gnode", "gnode", false).is_err(),
                "{name:?}"
            );
        }
    }
}
