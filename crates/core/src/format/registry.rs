//! All formats that are known, in the order of their registration.

use std::sync::{Arc, LazyLock};

use super::codec::Codec;
use super::definition::Definition;
use super::detect::{self, Detection, Pattern};
use super::error::{ConvertError, FormatError};
use super::mapping::Mapping;
use super::schema::Schema;
use super::translate;

/// The most formats: each costs something for every message that is looked at.
const MAX_FORMATS: usize = 256;

/// What ships, in the order in which ties are decided.
const SHIPPED: [&str; 8] = [
    include_str!("../../../../formats/standard_json.yaml"),
    include_str!("../../../../formats/resp3.yaml"),
    include_str!("../../../../formats/resp3_wire.yaml"),
    include_str!("../../../../formats/compact_json.yaml"),
    include_str!("../../../../formats/cloudevents_json.yaml"),
    include_str!("../../../../formats/json_rpc2.yaml"),
    include_str!("../../../../formats/msgpack.yaml"),
    include_str!("../../../../formats/cbor.yaml"),
];

static BUILT_IN: LazyLock<Formats> = LazyLock::new(|| {
    let parse = |text: &&str| {
        #[expect(
            clippy::expect_used,
            reason = "these texts are part of the program, and a test reads them"
        )]
        let definition = Definition::parse_yaml(text).expect("what ships is well-formed");
        Arc::new(Format {
            definition,
            built_in: true,
        })
    };
    Formats {
        all: SHIPPED.iter().map(parse).collect(),
    }
});

/// A format that is known.
#[derive(Debug)]
pub struct Format {
    definition: Definition,
    built_in: bool,
}

impl Format {
    /// What metadata and commands call it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// The version that its definition gives.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.definition.version
    }

    /// What it is, in a sentence; may be empty.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.definition.description
    }

    /// Its media type.
    #[must_use]
    pub fn content_type(&self) -> &str {
        &self.definition.content_type
    }

    /// Whether its data is bytes that aren't text.
    #[must_use]
    pub fn is_binary(&self) -> bool {
        self.codec().is_binary()
    }

    /// Whether what is written in it is JSON.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.codec().is_json()
    }

    /// Whether it ships, and so can't be replaced.
    #[must_use]
    pub fn is_built_in(&self) -> bool {
        self.built_in
    }

    pub(crate) fn codec(&self) -> Codec {
        self.definition.codec
    }

    pub(crate) fn patterns(&self) -> &[Pattern] {
        &self.definition.patterns
    }

    pub(crate) fn schema(&self) -> Option<&Schema> {
        self.definition.schema.as_ref()
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.definition.mapping
    }
}

/// The registry. A clone shares the formats.
#[derive(Clone, Debug)]
pub struct Formats {
    all: Vec<Arc<Format>>,
}

impl Formats {
    /// What ships.
    #[must_use]
    pub fn builtin() -> Formats {
        BUILT_IN.clone()
    }

    /// Adds a format. One that was registered under the same name before is replaced and keeps
    /// its place.
    ///
    /// # Errors
    /// Where the name belongs to a format that ships, or there are too many.
    pub fn register(&mut self, definition: Definition) -> Result<(), FormatError> {
        let format = Arc::new(Format {
            definition,
            built_in: false,
        });
        let full = self.all.len() >= MAX_FORMATS;
        let there = self.all.iter_mut().find(|old| old.name() == format.name());
        match there {
            Some(old) if old.built_in => Err(FormatError::BuiltIn(old.name().to_owned())),
            Some(old) => {
                *old = format;
                Ok(())
            }
            None if full => Err(FormatError::Full(MAX_FORMATS)),
            None => {
                self.all.push(format);
                Ok(())
            }
        }
    }

    /// The format of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Format> {
        self.iter().find(|format| format.name() == name)
    }

    /// All formats, in the order of their registration.
    pub fn iter(&self) -> impl Iterator<Item = &Format> {
        self.all.iter().map(Arc::as_ref)
    }

    /// Finds out which format data is in.
    #[must_use]
    pub fn detect(&self, data: &[u8]) -> Detection<'_> {
        detect::detect(self.iter(), data)
    }

    /// Makes data of one format into the same in another one. The way back is the same with the
    /// names exchanged.
    ///
    /// # Errors
    /// [`ConvertError`], which never has a value of the data in it.
    pub fn convert(&self, from: &str, to: &str, data: &[u8]) -> Result<Vec<u8>, ConvertError> {
        let from = self.known(from)?;
        let to = self.known(to)?;
        translate::translate(from, to, data)
    }

    fn known(&self, name: &str) -> Result<&Format, ConvertError> {
        self.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.iter().map(Format::name).collect();
            ConvertError::UnknownFormat {
                name: name.chars().take(64).collect(),
                known: names.join(", "),
            }
        })
    }
}
