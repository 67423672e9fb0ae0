//! The guards that every message passes, in one list.
//!
//! A guard looks at what is known of a message and either has nothing against it or objects;
//! the first that objects decides. It does no I/O: what it needs was looked up before.

use crate::address::{Environment, SiteId};
use crate::code::{Code, Refusal};
use crate::policy::{Action, Policy};
use crate::rate::Exceeded;

/// What a plane knows of a message that asks for admission.
pub struct Candidate<'a> {
    /// What is wrong with its form, if anything; found while it was decoded.
    pub flaw: Option<&'a Refusal>,
    /// Where it comes from.
    pub source: &'a SiteId,
    /// Where it goes to, or why that couldn't be found.
    pub target: Result<&'a SiteId, &'a Refusal>,
    /// The environment it comes from.
    pub environment: &'a Environment,
    /// The environment it would arrive in; `None` where the target has no part in any it could reach.
    pub target_environment: Option<&'a Environment>,
    /// What it wants done, by name; a batch wants several things.
    pub commands: &'a [&'a str],
    /// The rate that it would exceed, if any; what is refused for it costs nothing.
    pub exceeded: Option<Exceeded>,
}

/// One guard: its name, as it is counted, and its judgement.
pub struct Guard {
    /// The name in metrics and logs.
    pub name: &'static str,
    judge: fn(&Candidate<'_>, &Policy) -> Option<Refusal>,
}

/// The guards in their order. This is the only place where the order stands.
pub const GUARDS: [Guard; 5] = [
    Guard {
        name: "shape",
        judge: shape,
    },
    Guard {
        name: "addressed",
        judge: addressed,
    },
    Guard {
        name: "environment",
        judge: environment,
    },
    Guard {
        name: "policy",
        judge: policy,
    },
    Guard {
        name: "rate",
        judge: rate,
    },
];

/// An objection: which guard, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objection {
    /// The guard's name.
    pub guard: &'static str,
    /// Its reason.
    pub refusal: Refusal,
}

/// Asks the guards in order and gives the first objection.
///
/// # Errors
/// The [`Objection`].
pub fn admit(candidate: &Candidate<'_>, policy: &Policy) -> Result<(), Objection> {
    for guard in &GUARDS {
        if let Some(refusal) = (guard.judge)(candidate, policy) {
            return Err(Objection {
                guard: guard.name,
                refusal,
            });
        }
    }
    Ok(())
}

fn shape(candidate: &Candidate<'_>, _: &Policy) -> Option<Refusal> {
    candidate.flaw.cloned()
}

fn addressed(candidate: &Candidate<'_>, _: &Policy) -> Option<Refusal> {
    candidate.target.err().cloned()
}

fn environment(candidate: &Candidate<'_>, _: &Policy) -> Option<Refusal> {
    let here = candidate.environment;
    match candidate.target_environment {
        Some(there) if there == here => None,
        Some(there) => Some(Refusal::new(
            Code::Environment,
            format!("a message from {here} can't cross to {there}"),
        )),
        None => Some(Refusal::new(
            Code::Environment,
            format!("the target isn't in {here}"),
        )),
    }
}

fn policy(candidate: &Candidate<'_>, policy: &Policy) -> Option<Refusal> {
    let target = candidate.target.ok()?;
    let denied = candidate.commands.iter().find_map(|command| {
        let decision = policy.decide(candidate.source, target, command);
        (decision.action == Action::Deny).then_some(decision)
    })?;
    Some(Refusal::new(
        Code::Denied,
        format!("denied by rule {}: {}", denied.rule, denied.reason),
    ))
}

fn rate(candidate: &Candidate<'_>, _: &Policy) -> Option<Refusal> {
    Some(match candidate.exceeded? {
        Exceeded::For(wait) => {
            // Rounded up: who waits as long as told has waited long enough.
            let ms = wait.as_nanos().div_ceil(1_000_000);
            let ms = u64::try_from(ms).unwrap_or(u64::MAX);
            let reason = format!("too many messages in too short a time; wait {ms} ms");
            Refusal::new(Code::RateLimited, reason).retry_after(ms)
        }
        Exceeded::Ever(burst) => Refusal::new(
            Code::RateLimited,
            format!(
                "a batch may have at most {burst} commands, which is all that the rate allows at once"
            ),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_guard_that_objects_decides() {
        let (a, b) = (SiteId::parse("a").unwrap(), SiteId::parse("b").unwrap());
        let (here, there) = (
            Environment::parse("testing").unwrap(),
            Environment::parse("staging").unwrap(),
        );
        let policy = Policy::new(Action::Deny);
        let flaw = Refusal::new(Code::Malformed, "flaw");
        let lost = Refusal::new(Code::TargetNotFound, "lost");
        let mut candidate = Candidate {
            flaw: Some(&flaw),
            source: &a,
            target: Err(&lost),
            environment: &here,
            target_environment: Some(&there),
            commands: &["x"],
            exceeded: Some(Exceeded::For(std::time::Duration::from_micros(1500))),
        };
        let guard = |candidate: &Candidate<'_>| admit(candidate, &policy).unwrap_err().guard;
        assert_eq!(guard(&candidate), "shape");
        candidate.flaw = None;
        assert_eq!(guard(&candidate), "addressed");
        candidate.target = Ok(&b);
        assert_eq!(guard(&candidate), "environment");
        candidate.target_environment = Some(&here);
        assert_eq!(guard(&candidate), "policy");
        let allowing = Policy::new(Action::Allow);
        let late = admit(&candidate, &allowing).unwrap_err();
        assert_eq!((late.guard, late.refusal.retry_after_ms), ("rate", Some(2)));
        candidate.exceeded = None;
        assert!(admit(&candidate, &allowing).is_ok());
    }
}
