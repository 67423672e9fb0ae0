//! Which keys one site uses, and what may stand in them.

use std::sync::Arc;

use crossway_core::address::{Environment, Keyspace, SiteId, Spelling};

use crate::error::ClientError;

/// The keys of one site.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    /// The site.
    pub(crate) site: SiteId,
    /// The site's stream, where it writes and reads.
    pub(crate) stream: Arc<str>,
    /// The stream where a new site makes itself known.
    pub(crate) register: Arc<str>,
    /// The word by which the daemon signs.
    pub(crate) daemon: SiteId,
}

impl Names {
    pub(crate) fn new(
        site: &str,
        environment: &str,
        namespace: &str,
        keyspace: &str,
        hash_tags: bool,
    ) -> Result<Names, ClientError> {
        let named = |what, name: &str| {
            let name = name.to_owned();
            move |reason| ClientError::Name { what, name, reason }
        };
        let site_id = SiteId::parse(site).map_err(named("the site", site))?;
        let environment =
            Environment::parse(environment).map_err(named("the environment", environment))?;
        let spelling = if hash_tags {
            Spelling::Tagged
        } else {
            Spelling::Bare
        };
        let keys = Keyspace::new(
            namespace,
            keyspace,
            spelling,
            std::slice::from_ref(&environment),
        )
        .map_err(named(
            "the namespace or keyspace word of",
            &format!("{namespace}:{keyspace}"),
        ))?;
        Ok(Names {
            stream: keys.unified(&site_id, &environment).key,
            register: keys.register(),
            daemon: keys.namespace().clone(),
            site: site_id,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_its_stream_in_both_spellings() {
        let plain = Names::new("shop", "staging", "gnode", "gnode", false).unwrap();
        assert_eq!(&*plain.stream, "shop:gnode:unified:staging");
        assert_eq!(&*plain.register, "gnode:gnode:register");
        let tagged = Names::new("shop", "staging", "top", "word", true).unwrap();
        assert_eq!(&*tagged.stream, "{shop}:word:unified:staging");
        assert_eq!(&*tagged.register, "{top}:word:register");
        assert_eq!(tagged.daemon.as_str(), "top");
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
