//! What came back.

use serde::de::DeserializeOwned;

/// A target's answer to a call.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    pub(crate) text: String,
    pub(crate) site: String,
    pub(crate) node: String,
}

impl Reply {
    /// The result as it was written: JSON text, usually.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The result as a value of the program.
    ///
    /// # Errors
    /// Where the text isn't JSON, or not of this shape.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.text)
    }

    /// The site that answered.
    #[must_use]
    pub fn site(&self) -> &str {
        &self.site
    }

    /// The process of that site that answered; empty where it gave no name.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply")
            .field("site", &self.site)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}
