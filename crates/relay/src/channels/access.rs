//! Letting the users of a channel's parties at it, and at nothing that is closed.

use crossway_core::address::{Keyspace, SiteId};
use crossway_core::code::{Code, Refusal};
use crossway_transport::streams::{StoreError, Streams};

use super::Channels;
use crate::acl::{site_rules, user_of};
use crate::directory::DirectoryError;

/// Looks, at most, until what was set is what should be: as many others would have to open or close
/// channels of the same site in just this moment.
const ATTEMPTS: usize = 16;

/// Gives the user of a site its rules. A single key can't be taken from a user, so all of them are
/// set anew; whoever opens or closes another channel meanwhile does the same, and the last one to
/// look sees everything.
pub(super) async fn settle(
    channels: &Channels,
    store: &dyn Streams,
    keyspace: &Keyspace,
    site: &SiteId,
) -> Result<(), DirectoryError> {
    let Some(user) = user_of(site) else {
        return Ok(());
    };
    let mut before = channels.of(store, keyspace, site).await?;
    for _ in 0..ATTEMPTS {
        let ids = before.iter().map(|channel| channel.id());
        let rules = site_rules(keyspace, site, ids);
        let set = store.set_access(user, &rules).await;
        let there = match set {
            Err(StoreError::Refused { reason, .. })
                if !crossway_transport::streams::is_transient(&reason) =>
            {
                let reason = format!(
                    "the store doesn't let this daemon change its users ({reason}); allow it ACL GETUSER and ACL SETUSER, or turn relay.manage_access off"
                );
                return Err(Refusal::new(Code::Unavailable, reason).into());
            }
            set => set?,
        };
        if !there {
            return Ok(());
        }
        let after = channels.of(store, keyspace, site).await?;
        if after == before {
            return Ok(());
        }
        before = after;
    }
    let reason =
        format!("the channels of {site} kept changing while its access was set; try again");
    Err(Refusal::new(Code::Unavailable, reason).into())
}
