//! Names and addresses of the relay plane: sites, environments, stream keys, targets.
//!
//! A site has one name and two spellings of its stream key: bare (`billing:gnode:unified:production`)
//! and with a cluster hash tag (`{billing}:gnode:unified:production`). Both parse to the same
//! [`SiteId`], so that a rule for one can't be dodged by writing the other.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The longest site, entity or environment name, in bytes.
pub const MAX_NAME: usize = 128;

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing there.
    #[error("a name can't be empty")]
    Empty,
    /// Too long.
    #[error("a name has at most {MAX_NAME} bytes, this one has {0}")]
    TooLong(usize),
    /// A byte that no name may contain.
    #[error("a name is made of letters, digits, '-', '_' and '.'; byte {at} is {byte:?}")]
    Byte {
        /// Its position from 0.
        at: usize,
        /// The byte, as a character where it is one.
        byte: char,
    },
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks a name: 1 to [`MAX_NAME`] bytes of letters, digits, `-`, `_`, `.`.
            ///
            /// # Errors
            /// [`NameError`], which names the byte.
            pub fn parse(text: &str) -> Result<$name, NameError> {
                check_name(text)?;
                Ok($name(text.into()))
            }

            /// The name.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    )*};
}

names! {
    /// The id of a service on the relay plane.
    SiteId;
    /// The id of a part of a site that can be addressed by itself.
    EntityId;
    /// A stage of deployment; messages never cross from one to another.
    Environment;
}

fn check_name(text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > MAX_NAME {
        return Err(NameError::TooLong(text.len()));
    }
    match text
        .char_indices()
        .find(|(_, c)| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')))
    {
        Some((at, byte)) => Err(NameError::Byte { at, byte }),
        None => Ok(()),
    }
}

impl SiteId {
    /// A site id in either spelling, `billing` or `{billing}`.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn parse_spelled(text: &str) -> Result<SiteId, NameError> {
        SiteId::parse(strip_tag(text).unwrap_or(text))
    }
}

fn strip_tag(text: &str) -> Option<&str> {
    text.strip_prefix('{')?.strip_suffix('}')
}

/// How the first token of a key is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Spelling {
    /// `billing:…`
    #[default]
    Bare,
    /// `{billing}:…`, a cluster hash tag.
    Tagged,
}

impl Spelling {
    /// The other one.
    #[must_use]
    pub fn other(self) -> Spelling {
        match self {
            Spelling::Bare => Spelling::Tagged,
            Spelling::Tagged => Spelling::Bare,
        }
    }
}

/// The unified stream of a site in an environment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SiteStream {
    /// Whose stream it is.
    pub site: SiteId,
    /// In which environment.
    pub environment: Environment,
    /// The key as it is written on the store.
    pub key: Arc<str>,
}

/// Why a stream key was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamKeyError {
    /// Not `SITE:<keyspace>:unified:ENVIRONMENT`.
    #[error("a stream key is SITE:{keyspace}:unified:ENVIRONMENT")]
    Shape {
        /// The word that this daemon's keys carry.
        keyspace: String,
    },
    /// The site in it can't be one.
    #[error("the site in the key: {0}")]
    Site(NameError),
    /// The environment in it isn't known here.
    #[error("the environment in the key isn't one of {known}")]
    Environment {
        /// The known ones, comma-separated.
        known: String,
    },
}

/// The environments every deployment has.
pub const ENVIRONMENTS: [&str; 4] = ["testing", "staging", "acceptance", "production"];

/// The names of all keys: which words they are made of and how they are spelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyspace {
    namespace: SiteId,
    word: Environment,
    spelling: Spelling,
    environments: Vec<Environment>,
}

impl Keyspace {
    /// Keys of `namespace` with `word` in them (both usually `gnode`), written in `spelling`,
    /// with the usual environments and `extra` ones.
    ///
    /// # Errors
    /// [`NameError`] where a word can't stand in a key.
    pub fn new(
        namespace: &str,
        word: &str,
        spelling: Spelling,
        extra: &[Environment],
    ) -> Result<Keyspace, NameError> {
        let mut environments = Vec::with_capacity(ENVIRONMENTS.len() + extra.len());
        for name in ENVIRONMENTS {
            environments.push(Environment::parse(name)?);
        }
        environments.extend(
            extra
                .iter()
                .filter(|name| !ENVIRONMENTS.contains(&name.as_str()))
                .cloned(),
        );
        Ok(Keyspace {
            namespace: SiteId::parse(namespace)?,
            word: Environment::parse(word)?,
            spelling,
            environments,
        })
    }

    /// The site id that the daemon speaks as; no service may take it.
    #[must_use]
    pub fn namespace(&self) -> &SiteId {
        &self.namespace
    }

    /// The environments that are known.
    #[must_use]
    pub fn environments(&self) -> &[Environment] {
        &self.environments
    }

    /// The known environment of this name.
    #[must_use]
    pub fn environment(&self, name: &str) -> Option<&Environment> {
        self.environments
            .iter()
            .find(|known| known.as_str() == name)
    }

    /// The unified stream of a site, spelled as this daemon writes.
    #[must_use]
    pub fn unified(&self, site: &SiteId, environment: &Environment) -> SiteStream {
        self.unified_spelled(site, environment, self.spelling)
    }

    /// The unified stream of a site in the spelling that this daemon doesn't write.
    #[must_use]
    pub fn unified_other(&self, site: &SiteId, environment: &Environment) -> SiteStream {
        self.unified_spelled(site, environment, self.spelling.other())
    }

    fn unified_spelled(
        &self,
        site: &SiteId,
        environment: &Environment,
        spelling: Spelling,
    ) -> SiteStream {
        let word = &self.word;
        let key = match spelling {
            Spelling::Bare => format!("{site}:{word}:unified:{environment}"),
            Spelling::Tagged => format!("{{{site}}}:{word}:unified:{environment}"),
        };
        SiteStream {
            site: site.clone(),
            environment: environment.clone(),
            key: key.into(),
        }
    }

    /// Reads a unified stream key in either spelling; the key keeps the one it came in.
    ///
    /// # Errors
    /// [`StreamKeyError`].
    pub fn parse_unified(&self, key: &str) -> Result<SiteStream, StreamKeyError> {
        let shape = || StreamKeyError::Shape {
            keyspace: self.word.to_string(),
        };
        let mut parts = key.split(':');
        let (site, word, kind, environment) =
            (parts.next(), parts.next(), parts.next(), parts.next());
        let (Some(site), Some(word), Some("unified"), Some(environment), None) =
            (site, word, kind, environment, parts.next())
        else {
            return Err(shape());
        };
        if word != self.word.as_str() {
            return Err(shape());
        }
        let site = SiteId::parse_spelled(site).map_err(StreamKeyError::Site)?;
        let environment =
            self.environment(environment)
                .ok_or_else(|| StreamKeyError::Environment {
                    known: self
                        .environments
                        .iter()
                        .map(Environment::as_str)
                        .collect::<Vec<_>>()
                        .join(", "),
                })?;
        Ok(SiteStream {
            site,
            environment: environment.clone(),
            key: key.into(),
        })
    }

    /// A glob pattern that every unified stream of either spelling matches.
    #[must_use]
    pub fn unified_pattern(&self) -> String {
        format!("*:{}:unified:*", self.word)
    }

    /// Where a site polls for the reply to its command `id`. It is spelled as `stream`, the
    /// site's own stream, is.
    #[must_use]
    pub fn reply(&self, stream: &SiteStream, id: &str) -> Arc<str> {
        let site = &stream.site;
        if stream.key.starts_with('{') {
            format!("{{{site}}}:res:{id}")
        } else {
            format!("{site}:res:{id}")
        }
        .into()
    }

    /// The stream of what a site tells everybody, in whatever environment. It is spelled as
    /// `stream`, the site's own stream, is.
    #[must_use]
    pub fn broadcast(&self, stream: &SiteStream) -> Arc<str> {
        let (site, word) = (&stream.site, &self.word);
        if stream.key.starts_with('{') {
            format!("{{{site}}}:{word}:broadcast")
        } else {
            format!("{site}:{word}:broadcast")
        }
        .into()
    }

    /// The stream where a site that isn't known yet registers.
    #[must_use]
    pub fn register(&self) -> Arc<str> {
        self.own("register")
    }

    /// The hash of sites.
    #[must_use]
    pub fn sites(&self) -> Arc<str> {
        self.own("sites")
    }

    /// The hash of entities.
    #[must_use]
    pub fn entities(&self) -> Arc<str> {
        self.own("entities")
    }

    /// The hash of policy rules.
    #[must_use]
    pub fn policy(&self) -> Arc<str> {
        self.own("relay:policy")
    }

    /// The hash of what is counted for each pair of sites.
    #[must_use]
    pub fn telemetry(&self) -> Arc<str> {
        self.own("telemetry:relay")
    }

    /// The hash of formats that were registered while a daemon ran.
    #[must_use]
    pub fn formats(&self) -> Arc<str> {
        self.own("relay:formats")
    }

    /// The stream of a direct channel.
    #[must_use]
    pub fn direct(&self, channel: &str) -> Arc<str> {
        self.own(&format!("direct:{channel}"))
    }

    /// The hash of what is known of a direct channel.
    #[must_use]
    pub fn direct_meta(&self, channel: &str) -> Arc<str> {
        self.own(&format!("direct:{channel}:meta"))
    }

    /// The set of all direct channels.
    #[must_use]
    pub fn direct_index(&self) -> Arc<str> {
        self.own("direct:index")
    }

    /// Glob patterns that every key of the daemon's and every key of a site that it reads or writes
    /// matches.
    #[must_use]
    pub fn daemon_patterns(&self) -> Vec<String> {
        let broadcast = format!("*:{}:broadcast", self.word);
        vec![
            self.own("*").to_string(),
            self.unified_pattern(),
            broadcast,
            "*:res:*".to_owned(),
        ]
    }

    /// The hash of the daemons that live and the slices they hold.
    #[must_use]
    pub fn members(&self) -> Arc<str> {
        self.own("relay:members")
    }

    /// The stream of what couldn't be delivered in an environment.
    #[must_use]
    pub fn dead(&self, environment: &Environment) -> Arc<str> {
        self.own(&format!("relay:dead:{environment}"))
    }

    /// The record of a relay that waits for its reply.
    #[must_use]
    pub fn awaited(&self, delivery: &str) -> Arc<str> {
        self.own(&format!("relay:await:{delivery}"))
    }

    fn own(&self, rest: &str) -> Arc<str> {
        let (namespace, word) = (&self.namespace, &self.word);
        match self.spelling {
            Spelling::Bare => format!("{namespace}:{word}:{rest}"),
            Spelling::Tagged => format!("{{{namespace}}}:{word}:{rest}"),
        }
        .into()
    }
}

/// The longest target that is looked at, in bytes: room for any key or URI that can exist.
pub const MAX_TARGET: usize = 1024;

/// What a relay target names, before anything is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A whole stream key.
    Stream(SiteStream),
    /// The name of a site or an entity.
    Name(SiteId),
    /// An address of another plane.
    Foreign(ForeignAddress),
}

/// An address that another plane understands, with its scheme known and the rest unread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForeignAddress {
    /// `matrix://…`: a component in a realm.
    Realm(Arc<str>),
    /// `node:did:key:…`: a peer node.
    Node(Arc<str>),
    /// `cap:NAME`: whichever peer has a capability.
    Capability(Arc<str>),
}

/// Why a target was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Too long to be anything.
    #[error("a target has at most {MAX_TARGET} bytes, this one has {0}")]
    TooLong(usize),
    /// It looks like a stream key and isn't one.
    #[error("{0}")]
    Stream(#[from] StreamKeyError),
    /// It looks like a name and isn't one.
    #[error("{0}")]
    Name(#[from] NameError),
}

impl Target {
    /// Reads a relay target.
    ///
    /// # Errors
    /// [`TargetError`], which says what it was taken for and what is wrong with that.
    pub fn parse(text: &str, keyspace: &Keyspace) -> Result<Target, TargetError> {
        if text.len() > MAX_TARGET {
            return Err(TargetError::TooLong(text.len()));
        }
        if text
            .get(..9)
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("matrix://"))
        {
            return Ok(Target::Foreign(ForeignAddress::Realm(text.into())));
        }
        if text.starts_with("node:did:key:") {
            return Ok(Target::Foreign(ForeignAddress::Node(text.into())));
        }
        if text.starts_with("cap:") {
            return Ok(Target::Foreign(ForeignAddress::Capability(text.into())));
        }
        if text.contains(&format!(":{}:", keyspace.word)) {
            return Ok(Target::Stream(keyspace.parse_unified(text)?));
        }
        Ok(Target::Name(SiteId::parse_spelled(text)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keyspace(spelling: Spelling) -> Keyspace {
        Keyspace::new(
            "gnode",
            "gnode",
            spelling,
            &[Environment::parse("canary").unwrap()],
        )
        .unwrap()
    }

    #[test]
    fn a_key_keeps_its_spelling_and_names_the_same_site() {
        let keys = keyspace(Spelling::Bare);
        let bare = keys
            .parse_unified("billing:gnode:unified:production")
            .unwrap();
        let tagged = keys
            .parse_unified("{billing}:gnode:unified:production")
            .unwrap();
        assert_eq!(bare.site, tagged.site);
        assert_eq!(&*tagged.key, "{billing}:gnode:unified:production");
        assert_eq!(keys.unified(&bare.site, &bare.environment), bare);
        assert_eq!(keys.unified_other(&bare.site, &bare.environment), tagged);
        assert_eq!(&*keys.reply(&bare, "1"), "billing:res:1");
        assert_eq!(&*keys.reply(&tagged, "1"), "{billing}:res:1");
    }

    #[test]
    fn names_that_could_be_mistaken_for_something_else_are_refused() {
        for bad in [
            "",
            "*",
            "a:b",
            "{a",
            "a}",
            "a b",
            "é",
            "a\0",
            &"x".repeat(129),
        ] {
            assert!(SiteId::parse_spelled(bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            SiteId::parse("a*"),
            Err(NameError::Byte { at: 1, byte: '*' })
        );
    }

    #[test]
    fn an_environment_must_be_known() {
        let keys = keyspace(Spelling::Bare);
        assert!(keys.parse_unified("a:gnode:unified:canary").is_ok());
        assert!(matches!(
            keys.parse_unified("a:gnode:unified:nowhere"),
            Err(StreamKeyError::Environment { .. })
        ));
    }

    #[test]
    fn targets_are_told_apart_by_their_shape() {
        let keys = keyspace(Spelling::Bare);
        let parse = |text| Target::parse(text, &keys);
        assert!(matches!(parse("billing"), Ok(Target::Name(_))));
        assert!(matches!(
            parse("{billing}:gnode:unified:staging"),
            Ok(Target::Stream(_))
        ));
        assert!(matches!(
            parse("MATRIX://acme.com/a.accepts.b"),
            Ok(Target::Foreign(ForeignAddress::Realm(_)))
        ));
        assert!(matches!(
            parse("node:did:key:z6Mk"),
            Ok(Target::Foreign(ForeignAddress::Node(_)))
        ));
        assert!(matches!(
            parse("cap:ledger"),
            Ok(Target::Foreign(ForeignAddress::Capability(_)))
        ));
        assert!(matches!(parse("a:b"), Err(TargetError::Name(_))));
        assert!(matches!(
            parse("a:gnode:broadcast"),
            Err(TargetError::Stream(_))
        ));
        assert!(matches!(
            parse(&"x".repeat(10_000)),
            Err(TargetError::TooLong(10_000))
        ));
    }

    #[test]
    fn the_daemons_own_keys_are_spelled_as_configured() {
        assert_eq!(
            &*keyspace(Spelling::Bare).policy(),
            "gnode:gnode:relay:policy"
        );
        assert_eq!(
            &*keyspace(Spelling::Tagged).policy(),
            "{gnode}:gnode:relay:policy"
        );
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read_back(site in "[A-Za-z0-9._-]{1,128}", tagged: bool) {
            let keys = keyspace(if tagged { Spelling::Tagged } else { Spelling::Bare });
            let site = SiteId::parse(&site).unwrap();
            for environment in keys.environments() {
                let stream = keys.unified(&site, environment);
                prop_assert_eq!(keys.parse_unified(&stream.key).unwrap(), stream);
            }
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in ".{0,200}") {
            let keys = keyspace(Spelling::Bare);
            let _ = Target::parse(&text, &keys);
            let _ = keys.parse_unified(&text);
        }
    }
}
