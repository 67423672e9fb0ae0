//! Sets.

use bytes::Bytes;

use super::{Effect, Engine, Plan, Refusal};

impl Engine {
    /// Plans to add a member to a set; answers whether it is new.
    pub(crate) fn plan_set_add(
        &self,
        key: Bytes,
        member: Bytes,
        now: u64,
    ) -> Result<Plan<bool>, Refusal> {
        if self
            .set(&key, now)?
            .is_some_and(|members| members.contains(&member))
        {
            return Ok(Plan::nothing(false));
        }
        let mut effects = self.begin(&key, now);
        effects.push(Effect::SetAdd {
            key,
            members: vec![member],
        });
        Ok(Plan {
            effects,
            answer: true,
        })
    }

    /// Plans to remove a member of a set; answers whether it was there.
    pub(crate) fn plan_set_remove(
        &self,
        key: Bytes,
        member: Bytes,
        now: u64,
    ) -> Result<Plan<bool>, Refusal> {
        if !self
            .set(&key, now)?
            .is_some_and(|members| members.contains(&member))
        {
            return Ok(Plan::nothing(false));
        }
        Ok(Plan {
            effects: vec![Effect::SetRemove {
                key,
                members: vec![member],
            }],
            answer: true,
        })
    }
}
