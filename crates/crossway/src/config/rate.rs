//! `[relay.rate]`: how much each source may send.

use std::collections::BTreeMap;

use crossway_core::address::SiteId;
use crossway_core::rate::Rate as Tokens;
use crossway_relay::RateLimits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SiteName;

/// How much each source, and each pair of source and target, may send; no limit unless set.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Rates {
    /// For each source site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) per_site: Option<Rate>,
    /// For each pair of source and target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) per_pair: Option<Rate>,
    /// For single sites instead of `per_site`, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) sites: BTreeMap<SiteKey, Rate>,
    /// For single pairs instead of `per_pair`, as `source:target`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) pairs: BTreeMap<PairKey, Rate>,
}

/// So many messages a second in the long run, and so many at once.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "Numbers", into = "Numbers")]
#[schemars(with = "Numbers")]
pub(crate) struct Rate {
    numbers: Numbers,
    tokens: Tokens,
}

/// A rate as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Numbers {
    /// Messages a second, 0.001 to 1000000.
    #[schemars(extend("minimum" = 0.001, "maximum" = 1_000_000))]
    per_second: f64,
    /// Messages at once; what a second brings unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 1))]
    burst: Option<u32>,
}

impl TryFrom<Numbers> for Rate {
    type Error = crossway_core::rate::RateError;

    fn try_from(numbers: Numbers) -> Result<Rate, Self::Error> {
        // A cast saturates, and what is out of range is refused anyhow.
        let a_second = numbers.per_second.ceil().max(1.0) as u32;
        let tokens = Tokens::new(numbers.per_second, numbers.burst.unwrap_or(a_second))?;
        Ok(Rate { numbers, tokens })
    }
}

impl From<Rate> for Numbers {
    fn from(rate: Rate) -> Numbers {
        rate.numbers
    }
}

/// A site's name, as a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub(crate) struct SiteKey(SiteId);

impl TryFrom<String> for SiteKey {
    type Error = crossway_core::address::NameError;

    fn try_from(text: String) -> Result<SiteKey, Self::Error> {
        SiteName::try_from(text).map(|name| SiteKey(name.site().clone()))
    }
}

impl From<SiteKey> for String {
    fn from(key: SiteKey) -> String {
        key.0.to_string()
    }
}

/// A source and a target, as a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub(crate) struct PairKey(SiteId, SiteId);

impl TryFrom<String> for PairKey {
    type Error = String;

    fn try_from(text: String) -> Result<PairKey, String> {
        let sides = text.split_once(':').map(|(source, target)| {
            let source = SiteId::parse(source).ok()?;
            Some(PairKey(source, SiteId::parse(target).ok()?))
        });
        sides
            .flatten()
            .ok_or_else(|| format!("{text:?} isn't SOURCE:TARGET, two names of sites"))
    }
}

impl From<PairKey> for String {
    fn from(PairKey(source, target): PairKey) -> String {
        format!("{source}:{target}")
    }
}

impl From<&Rates> for RateLimits {
    fn from(rates: &Rates) -> RateLimits {
        let named = rates.sites.iter();
        let pairs = rates.pairs.iter();
        RateLimits {
            per_site: rates.per_site.map(|rate| rate.tokens),
            per_pair: rates.per_pair.map(|rate| rate.tokens),
            sites: named
                .map(|(SiteKey(site), rate)| (site.clone(), rate.tokens))
                .collect(),
            pairs: pairs
                .map(|(PairKey(source, target), rate)| {
                    ((source.clone(), target.clone()), rate.tokens)
                })
                .collect(),
        }
    }
}
