//! The JSON Schema of a format. A schema stands alone: nothing that it refers to is fetched.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use boon::{Compiler, SchemaIndex, Schemas, UrlLoader, ValidationError};
use serde_json::Value;

/// Any name will do: it is only what the schema's own references are resolved against.
const PLACE: &str = "crossway:schema";

/// A compiled schema.
#[derive(Clone)]
pub(crate) struct Schema {
    all: Arc<Schemas>,
    root: SchemaIndex,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Schema")
    }
}

struct Nowhere;

impl UrlLoader for Nowhere {
    fn load(&self, _: &str) -> Result<Value, Box<dyn Error>> {
        Err("a schema stands alone; nothing is fetched".into())
    }
}

impl Schema {
    /// Compiles the JSON text of a schema; the error says what is wrong with it.
    pub(crate) fn compile(text: &str) -> Result<Schema, String> {
        let value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let (mut all, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.use_loader(Box::new(Nowhere));
        compiler
            .add_resource(PLACE, value)
            .map_err(|error| error.to_string())?;
        let root = compiler
            .compile(PLACE, &mut all)
            .map_err(|error| error.to_string())?;
        Ok(Schema {
            all: Arc::new(all),
            root,
        })
    }

    /// Checks the JSON text of a message; the error names the place and no value.
    pub(crate) fn check(&self, text: &str) -> Result<(), String> {
        let value = serde_json::from_str(text)
            .map_err(|_| "a number is beyond what a schema can check".to_owned())?;
        self.all
            .validate(&value, self.root)
            .map_err(|error| format!("its schema refuses what stands at {:?}", place(&error)))
    }
}

/// The innermost place that is refused, as a JSON pointer.
fn place(error: &ValidationError<'_, '_>) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.causes.first() {
        innermost = cause;
    }
    let pointer = innermost.instance_location.to_string();
    pointer.chars().take(128).collect()
}
