//! Who may send what to whom.
//!
//! A rule speaks for a pair of sites, either of which may be `*`, and for the commands it lists.
//! They are asked from the narrowest to the widest: `source:target`, `*:target`, `source:*`,
//! `*:*`; a rule that doesn't list the command is passed over; the first that does decides; if
//! none does, the default. A rule that can't be read denies whatever it may have spoken for.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::address::SiteId;

/// Allow or deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The message goes on.
    #[default]
    Allow,
    /// The message is refused.
    Deny,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Allow => "allow",
            Action::Deny => "deny",
        })
    }
}

/// Why a rule can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The pair isn't `source:target`.
    #[error("rule {rule:?}: a rule is named SOURCE:TARGET, each a site id or *")]
    Pair {
        /// The name it was given.
        rule: String,
    },
    /// The body isn't a rule.
    #[error("rule {rule:?}: {reason}")]
    Body {
        /// The rule's name.
        rule: String,
        /// What is wrong, and where.
        reason: String,
    },
}

/// A site or any site.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Side {
    Any,
    Site(SiteId),
}

impl Side {
    fn parse(text: &str) -> Option<Side> {
        if text == "*" {
            Some(Side::Any)
        } else {
            SiteId::parse_spelled(text).ok().map(Side::Site)
        }
    }

    fn spellings(&self) -> Vec<String> {
        match self {
            Side::Any => vec!["*".to_owned()],
            Side::Site(site) => vec![site.to_string(), format!("{{{site}}}")],
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Side::Any => "*",
            Side::Site(site) => site.as_str(),
        }
    }
}

/// The name of a rule: the pair of sites it speaks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pair {
    source: Side,
    target: Side,
}

impl Pair {
    /// A pair from its two sides, each a site id in either spelling or `*`.
    ///
    /// # Errors
    /// [`RuleError::Pair`].
    pub fn new(source: &str, target: &str) -> Result<Pair, RuleError> {
        match (Side::parse(source), Side::parse(target)) {
            (Some(source), Some(target)) => Ok(Pair { source, target }),
            _ => Err(RuleError::Pair {
                rule: format!("{source}:{target}"),
            }),
        }
    }

    /// Every name under which a rule for this pair may be stored; the daemon's own comes first.
    #[must_use]
    pub fn spellings(&self) -> Vec<String> {
        let mut names = Vec::with_capacity(4);
        for source in self.source.spellings() {
            for target in self.target.spellings() {
                names.push(format!("{source}:{target}"));
            }
        }
        names
    }

    /// The widest reading of a name that can't be read: what isn't understood may be anybody.
    fn widest(text: &str) -> Pair {
        let (source, target) = text.split_once(':').unwrap_or_default();
        Pair {
            source: Side::parse(source).unwrap_or(Side::Any),
            target: Side::parse(target).unwrap_or(Side::Any),
        }
    }
}

impl FromStr for Pair {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Pair, RuleError> {
        match text.split_once(':') {
            Some((source, target)) => Pair::new(source, target),
            None => Err(RuleError::Pair {
                rule: text.to_owned(),
            }),
        }
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.source.as_str(), self.target.as_str())
    }
}

/// What a rule says, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// What it decides.
    pub action: Action,
    /// Why, for whoever is refused.
    #[serde(default)]
    pub reason: String,
    /// The commands it speaks for: names, `name*` for a prefix, `*` for all.
    #[serde(default = "all_commands")]
    pub commands: Vec<String>,
}

fn all_commands() -> Vec<String> {
    vec!["*".to_owned()]
}

impl Rule {
    /// Reads a rule's body; `pair` is its name, for the error.
    ///
    /// # Errors
    /// [`RuleError::Body`].
    pub fn parse(pair: &str, json: &str) -> Result<Rule, RuleError> {
        let fault = |reason: String| RuleError::Body {
            rule: pair.to_owned(),
            reason,
        };
        let rule: Rule = serde_json::from_str(json).map_err(|error| fault(error.to_string()))?;
        match rule
            .commands
            .iter()
            .find(|name| name.trim_end_matches('*').contains('*') || name.ends_with("**"))
        {
            Some(name) => Err(fault(format!(
                "command {name:?}: a * stands alone or at the end"
            ))),
            None => Ok(rule),
        }
    }

    fn lists(&self, command: &str) -> bool {
        self.commands
            .iter()
            .any(|listed| match listed.strip_suffix('*') {
                Some(prefix) => command.starts_with(prefix),
                None => listed == command,
            })
    }
}

/// What the policy decided, and which rule it was.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Decision<'a> {
    /// Allow or deny.
    pub action: Action,
    /// `source:target` of the rule, or `default`.
    pub rule: &'a str,
    /// The rule's reason.
    pub reason: &'a str,
}

/// Rules of one pair, the denying ones first: where two spellings of one name disagree, deny wins.
type Rules = Vec<(String, Rule)>;

/// All rules, compiled for looking up.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    default: Action,
    exact: HashMap<SiteId, HashMap<SiteId, Rules>>,
    to: HashMap<SiteId, Rules>,
    from: HashMap<SiteId, Rules>,
    any: Rules,
}

impl Policy {
    /// A policy without rules.
    #[must_use]
    pub fn new(default: Action) -> Policy {
        Policy {
            default,
            ..Policy::default()
        }
    }

    /// Compiles stored rules, name to body. A rule that can't be read is kept as one that denies,
    /// and is told.
    #[must_use]
    pub fn compile<'a>(
        default: Action,
        rules: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> (Policy, Vec<RuleError>) {
        let mut policy = Policy::new(default);
        let mut faults = Vec::new();
        for (name, body) in rules {
            match name
                .parse::<Pair>()
                .and_then(|pair| Ok((pair, Rule::parse(name, body)?)))
            {
                Ok((pair, rule)) => policy.insert(pair, name, rule),
                Err(fault) => {
                    let reason = format!("the rule can't be read: {fault}");
                    let rule = Rule {
                        action: Action::Deny,
                        reason,
                        commands: all_commands(),
                    };
                    policy.insert(Pair::widest(name), name, rule);
                    faults.push(fault);
                }
            }
        }
        (policy, faults)
    }

    fn insert(&mut self, pair: Pair, name: &str, rule: Rule) {
        let rules = match (pair.source, pair.target) {
            (Side::Site(source), Side::Site(target)) => self
                .exact
                .entry(source)
                .or_default()
                .entry(target)
                .or_default(),
            (Side::Any, Side::Site(target)) => self.to.entry(target).or_default(),
            (Side::Site(source), Side::Any) => self.from.entry(source).or_default(),
            (Side::Any, Side::Any) => &mut self.any,
        };
        match rule.action {
            Action::Deny => rules.insert(0, (name.to_owned(), rule)),
            Action::Allow => rules.push((name.to_owned(), rule)),
        }
    }

    /// Decides whether `source` may give `command` to `target`, and says by which rule.
    #[must_use]
    pub fn decide(&self, source: &SiteId, target: &SiteId, command: &str) -> Decision<'_> {
        let exact = self
            .exact
            .get(source)
            .and_then(|targets| targets.get(target));
        self.first([exact, self.to.get(target)], source, command)
    }

    /// Decides whether `source` may give `command` to nobody in particular. Rules that name a
    /// target don't speak for it: `source:*` is asked, then `*:*`, then the default.
    #[must_use]
    pub fn decide_for_all(&self, source: &SiteId, command: &str) -> Decision<'_> {
        self.first([None, None], source, command)
    }

    fn first<'a>(
        &'a self,
        named: [Option<&'a Rules>; 2],
        source: &SiteId,
        command: &str,
    ) -> Decision<'a> {
        let [exact, to] = named;
        [exact, to, self.from.get(source), Some(&self.any)]
            .into_iter()
            .flatten()
            .flatten()
            .find(|(_, rule)| rule.lists(command))
            .map_or(
                Decision {
                    action: self.default,
                    rule: "default",
                    reason: "no rule speaks for it",
                },
                |(name, rule)| Decision {
                    action: rule.action,
                    rule: name,
                    reason: &rule.reason,
                },
            )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn site(name: &str) -> SiteId {
        SiteId::parse(name).unwrap()
    }

    fn decide(
        rules: &[(&str, &str)],
        source: &str,
        target: &str,
        command: &str,
    ) -> (Action, String) {
        let (policy, _) = Policy::compile(Action::Allow, rules.iter().copied());
        let decision = policy.decide(&site(source), &site(target), command);
        (decision.action, decision.rule.to_owned())
    }

    const ALLOW: &str = r#"{"action":"allow","reason":"","commands":["*"]}"#;
    const DENY: &str = r#"{"action":"deny","reason":"","commands":["*"]}"#;

    #[test]
    fn the_narrowest_rule_decides() {
        let all = [("*:*", DENY), ("a:*", ALLOW), ("*:b", DENY), ("a:b", ALLOW)];
        assert_eq!(decide(&all, "a", "b", "x"), (Action::Allow, "a:b".into()));
        assert_eq!(
            decide(&all[..3], "a", "b", "x"),
            (Action::Deny, "*:b".into())
        );
        assert_eq!(
            decide(&all[..2], "a", "b", "x"),
            (Action::Allow, "a:*".into())
        );
        assert_eq!(
            decide(&all[..1], "a", "b", "x"),
            (Action::Deny, "*:*".into())
        );
        assert_eq!(
            decide(&[], "a", "b", "x"),
            (Action::Allow, "default".into())
        );
    }

    #[test]
    fn what_is_for_everybody_is_decided_by_rules_without_a_target() {
        let all = [("a:b", DENY), ("*:b", DENY), ("a:*", ALLOW), ("*:*", DENY)];
        let (policy, _) = Policy::compile(Action::Allow, all);
        let action = |source: &str| policy.decide_for_all(&site(source), "broadcast").action;
        assert_eq!((action("a"), action("b")), (Action::Allow, Action::Deny));
        let (policy, _) = Policy::compile(Action::Allow, [("a:b", DENY), ("*:b", DENY)]);
        assert_eq!(
            policy.decide_for_all(&site("a"), "broadcast").rule,
            "default"
        );
    }

    #[test]
    fn a_rule_that_does_not_list_the_command_is_passed_over() {
        let rules = [
            ("a:b", r#"{"action":"allow","commands":["read","get_*"]}"#),
            ("*:*", DENY),
        ];
        assert_eq!(decide(&rules, "a", "b", "read").0, Action::Allow);
        assert_eq!(decide(&rules, "a", "b", "get_status").0, Action::Allow);
        assert_eq!(
            decide(&rules, "a", "b", "reader"),
            (Action::Deny, "*:*".into())
        );
    }

    #[test]
    fn a_rule_that_cannot_be_read_denies_and_is_told() {
        for body in [
            "",
            "{",
            "[]",
            r#"{"action":"maybe"}"#,
            r#"{"action":"allow","commands":["a*b"]}"#,
            r#"{"commands":["*"]}"#,
        ] {
            let (policy, faults) = Policy::compile(Action::Allow, [("a:b", body)]);
            assert_eq!(
                policy.decide(&site("a"), &site("b"), "x").action,
                Action::Deny,
                "{body}"
            );
            assert_eq!(faults.len(), 1, "{body}");
        }
    }

    #[test]
    fn a_rule_whose_name_cannot_be_read_denies_whoever_it_may_have_meant() {
        assert_eq!(decide(&[("we*:b", ALLOW)], "a", "b", "x").0, Action::Deny);
        assert_eq!(decide(&[("we*:b", ALLOW)], "a", "c", "x").0, Action::Allow);
        assert_eq!(
            decide(&[("nonsense", ALLOW)], "a", "c", "x").0,
            Action::Deny
        );
        assert_eq!(decide(&[("a:b:c", ALLOW)], "a", "x", "x").0, Action::Deny);
    }

    #[test]
    fn both_spellings_of_a_site_name_the_same_rule() {
        assert_eq!(decide(&[("{a}:{b}", DENY)], "a", "b", "x").0, Action::Deny);
        assert_eq!(
            decide(&[("a:b", ALLOW), ("{a}:b", DENY)], "a", "b", "x").0,
            Action::Deny
        );
    }

    proptest! {
        #[test]
        fn deny_all_lets_only_listed_pairs_through(source in "[a-c]", target in "[a-c]", pairs in prop::collection::vec(("[a-c]", "[a-c]"), 0..5)) {
            let names: Vec<String> = pairs.iter().map(|(a, b)| format!("{a}:{b}")).collect();
            let rules = names.iter().map(|name| (name.as_str(), ALLOW)).chain([("*:*", DENY)]);
            let (policy, _) = Policy::compile(Action::Allow, rules);
            let listed = pairs.iter().any(|(a, b)| *a == source && *b == target);
            let action = policy.decide(&site(&source), &site(&target), "x").action;
            prop_assert_eq!(action == Action::Allow, listed);
        }

        #[test]
        fn no_rule_makes_the_compiler_panic(name in ".{0,40}", body in ".{0,80}") {
            let _ = Policy::compile(Action::Allow, [(name.as_str(), body.as_str())]);
        }
    }
}
