//! The channels of a store: opening, closing, listing.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use crossway_core::address::{Keyspace, SiteId};
use crossway_core::code::{Code, Refusal};
use crossway_transport::streams::{HashChange, StoreError, Streams};

use super::Channel;
use super::access;
use crate::directory::DirectoryError;
use crate::options::RelayOptions;

/// What this daemon knows of the open channels. A channel never changes, so what was read once is
/// good for as long as the index names it.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    known: Mutex<HashMap<String, Arc<Channel>>>,
}

impl Channels {
    /// All open channels, in the order of their ids. What can't be read is left out, and told.
    pub(crate) async fn all(
        &self,
        store: &dyn Streams,
        keyspace: &Keyspace,
    ) -> Result<Vec<Arc<Channel>>, StoreError> {
        let index: HashSet<String> = store
            .set_members(&keyspace.direct_index())
            .await?
            .into_iter()
            .collect();
        let unknown: Vec<&String> = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|id, _| index.contains(id));
            index.iter().filter(|id| !known.contains_key(*id)).collect()
        };
        for id in unknown {
            match self.find(store, keyspace, id).await {
                Ok(Some(channel)) => {
                    let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                    known.insert(id.clone(), channel);
                }
                // Closed this very moment.
                Ok(None) => {}
                Err(DirectoryError::Refused(fault)) => {
                    tracing::warn!(%fault, "a channel is passed over")
                }
                Err(DirectoryError::Store(error)) => return Err(error),
            }
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Arc<Channel>> = known.values().cloned().collect();
        all.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(all)
    }

    /// The channel of an id, as the store has it now.
    pub(crate) async fn find(
        &self,
        store: &dyn Streams,
        keyspace: &Keyspace,
        id: &str,
    ) -> Result<Option<Arc<Channel>>, DirectoryError> {
        let stored = store.hash_all(&keyspace.direct_meta(id)).await?;
        if stored.is_empty() {
            return Ok(None);
        }
        let channel = Channel::read(id, &stored)
            .map_err(|fault| Refusal::new(Code::Unavailable, fault.to_string()))?;
        Ok(Some(Arc::new(channel)))
    }

    /// Opens a channel, or finishes what an earlier run of the same command began.
    pub(crate) async fn open(
        &self,
        store: &dyn Streams,
        options: &RelayOptions,
        channel: &Channel,
    ) -> Result<(), DirectoryError> {
        let keyspace = &options.keyspace;
        let others = self.all(store, keyspace).await?;
        let others = others.iter().filter(|other| other.id != channel.id);
        let opened = others
            .filter(|other| other.source == channel.source)
            .count();
        if opened >= options.max_channels {
            let reason = format!(
                "{} has opened {opened} direct channels; {} are allowed",
                channel.source, options.max_channels
            );
            return Err(Refusal::new(Code::ChannelsFull, reason).into());
        }
        let stream = keyspace.direct(&channel.id);
        for site in channel.parties() {
            store.make_group(&stream, site.as_str()).await?;
        }
        let fields = channel.stored();
        store
            .hash_update(&keyspace.direct_meta(&channel.id), &mut |_| {
                let set = |(name, value): &(&'static str, String)| {
                    HashChange::Set((*name).to_owned(), value.clone())
                };
                fields.iter().map(set).collect()
            })
            .await?;
        store.set_add(&keyspace.direct_index(), &channel.id).await?;
        let granted = self.change_access(store, options, channel).await;
        if let Err(DirectoryError::Refused(refusal)) = granted {
            // Nobody could use it.
            store.delete(&stream).await?;
            self.forget(store, options, channel).await?;
            return Err(refusal.into());
        }
        granted
    }

    /// Closes a channel, whoever uses it.
    pub(crate) async fn close(
        &self,
        store: &dyn Streams,
        options: &RelayOptions,
        channel: &Channel,
    ) -> Result<(), StoreError> {
        store.delete(&options.keyspace.direct(&channel.id)).await?;
        self.forget(store, options, channel).await
    }

    /// Removes what is left of a channel whose stream is gone.
    pub(crate) async fn forget(
        &self,
        store: &dyn Streams,
        options: &RelayOptions,
        channel: &Channel,
    ) -> Result<(), StoreError> {
        let keyspace = &options.keyspace;
        store
            .set_remove(&keyspace.direct_index(), &channel.id)
            .await?;
        match self.change_access(store, options, channel).await {
            Ok(()) => {}
            Err(DirectoryError::Refused(refusal)) => {
                tracing::error!(channel = channel.id, %refusal, "the parties of a closed channel keep their access to its key; take it from them by hand");
            }
            Err(DirectoryError::Store(error)) => return Err(error),
        }
        store.delete(&keyspace.direct_meta(&channel.id)).await?;
        Ok(())
    }

    /// Gives the users of a channel's two sites exactly what they should have, the open channels
    /// included.
    async fn change_access(
        &self,
        store: &dyn Streams,
        options: &RelayOptions,
        channel: &Channel,
    ) -> Result<(), DirectoryError> {
        if !options.manage_access {
            return Ok(());
        }
        for site in channel.parties() {
            access::settle(self, store, &options.keyspace, site).await?;
        }
        Ok(())
    }

    /// The open channels of a site.
    pub(crate) async fn of(
        &self,
        store: &dyn Streams,
        keyspace: &Keyspace,
        site: &SiteId,
    ) -> Result<Vec<Arc<Channel>>, StoreError> {
        let mut all = self.all(store, keyspace).await?;
        all.retain(|channel| channel.has(site));
        Ok(all)
    }
}
