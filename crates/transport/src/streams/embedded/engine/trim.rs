//! Trimming what every group has acknowledged.

use bytes::Bytes;

use super::{Effect, Engine, Keep, Plan, Refusal, Trim};
use crate::streams::Trimmed;

impl Engine {
    /// Plans to take at most `most` of the oldest entries beyond the newest `keep`, none that a
    /// group hasn't acknowledged, and nothing at all where `group` isn't there.
    pub(crate) fn plan_trim_acknowledged(
        &self,
        key: Bytes,
        group: &[u8],
        keep: u64,
        most: u64,
        now: u64,
    ) -> Result<Plan<Trimmed>, Refusal> {
        let nothing = |beyond, slowest: &[u8]| {
            Plan::nothing(Trimmed {
                removed: 0,
                beyond,
                slowest: String::from_utf8_lossy(slowest).into_owned(),
            })
        };
        let Some(stream) = self.stream(&key, now)? else {
            return Ok(nothing(0, b""));
        };
        let beyond = (stream.len() as u64).saturating_sub(keep);
        if beyond == 0 {
            return Ok(nothing(0, b""));
        }
        // As far as each group has come: what is at that place stays.
        let reached = stream.groups.iter().map(|(name, group)| {
            let oldest = group.pending().keys().next().copied();
            (oldest.unwrap_or(group.last_delivered), name)
        });
        let Some((bound, slowest)) = reached.min() else {
            return Ok(nothing(beyond, group));
        };
        if !stream.groups.contains_key(group) {
            return Ok(nothing(beyond, group));
        }
        let limit = usize::try_from(most.min(beyond)).unwrap_or(usize::MAX);
        let trim = Trim {
            keep: Keep::From(bound),
            approximate: Some(limit),
        };
        let planned = if limit == 0 {
            None
        } else {
            stream.plan_trim(trim, None)
        };
        let Some((through, gone)) = planned else {
            return Ok(nothing(beyond, slowest));
        };
        let removed = gone as u64;
        let answer = Trimmed {
            removed,
            beyond: beyond.saturating_sub(removed),
            slowest: String::from_utf8_lossy(slowest).into_owned(),
        };
        let effects = vec![Effect::Trim {
            stream: key,
            through,
        }];
        Ok(Plan { effects, answer })
    }
}
