//! Who speaks in the demonstration: `shop` asks, `billing` answers, and `mallory` has its own ideas.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossway_client::{Client, Command, Failure, Serving};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::Broken;
use crate::cli::store::Store;
use crate::config::{Config, StoreUrl};

/// The environment in which all of them live.
const ENVIRONMENT: &str = "production";
/// How long anything that must come may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// An entry's id and its fields.
pub(super) type Entry = (String, HashMap<String, String>);

/// The stream of a site.
pub(super) fn stream(site: &str) -> String {
    format!("{site}:gnode:unified:{ENVIRONMENT}")
}

/// The services that run within the demonstration itself.
pub(super) struct Cast {
    /// Asks.
    pub(super) shop: Client,
    billing: Client,
    serving: Serving,
    /// Lets `billing` answer a `quote`, which it doesn't before it is told to.
    pub(super) quotes: Arc<Semaphore>,
}

impl Cast {
    /// Connects all of them, and has `billing` answer.
    pub(super) async fn start(url: &str) -> Result<Cast, Broken> {
        let failed = |error: crossway_client::ClientError| Broken::new(error.to_string());
        let shop = Client::connect(url, "shop", ENVIRONMENT)
            .await
            .map_err(failed)?;
        let billing = Client::connect(url, "billing", ENVIRONMENT)
            .await
            .map_err(failed)?;
        let quotes = Arc::new(Semaphore::new(0));
        let told = Arc::clone(&quotes);
        let serving = billing
            .serve(move |command| answer(command, Arc::clone(&told)))
            .await
            .map_err(failed)?;
        Ok(Cast {
            shop,
            billing,
            serving,
            quotes,
        })
    }

    /// Sends all of them home.
    pub(super) async fn stop(self) {
        self.serving.stop().await;
        self.billing.close().await;
        self.shop.close().await;
    }
}

async fn answer(command: Command, quotes: Arc<Semaphore>) -> Result<Value, Failure> {
    match command.name() {
        "charge" => {
            let params: Value = command.params()?;
            Ok(json!({"charged": params.get("cents")}))
        }
        "quote" => {
            // Never closed, so there is always a permit in the end.
            let _ = quotes.acquire().await.map(|permit| permit.forget());
            Ok(json!({"cents": 300}))
        }
        "count" => command.params(),
        other => Err(Failure::new(
            "UNKNOWN_COMMAND",
            format!("{other} isn't one of charge, quote, count"),
        )),
    }
}

/// The store seen from outside: what is written there by hand, and what lies there.
pub(super) struct Desk {
    store: Store,
}

impl Desk {
    /// Connects to the store at a URL.
    pub(super) async fn open(url: &str) -> Result<Desk, Broken> {
        let url = StoreUrl::parse(url).map_err(|error| Broken::new(error.to_string()))?;
        let store = Store::connect(Config::default(), &url, Duration::ZERO)
            .await
            .map_err(|error| Broken::new(error.to_string()))?;
        Ok(Desk { store })
    }

    /// Appends an entry to a site's stream.
    pub(super) async fn write(
        &mut self,
        site: &str,
        fields: &[(&str, &str)],
    ) -> Result<(), Broken> {
        let mut command = redis::cmd("XADD");
        command.arg(stream(site)).arg("*").arg(fields);
        let written = self.store.run(&command).await;
        written
            .map(drop)
            .map_err(|error| Broken::new(error.to_string()))
    }

    /// Appends several entries to a site's stream in one go.
    pub(super) async fn write_all(
        &mut self,
        site: &str,
        entries: &[[(&str, String); 5]],
    ) -> Result<(), Broken> {
        let mut pipe = redis::pipe();
        for entry in entries {
            pipe.cmd("XADD").arg(stream(site)).arg("*").arg(entry);
        }
        let written = self.store.run_all(&pipe).await;
        written.map_err(|error| Broken::new(error.to_string()))
    }

    /// Up to a thousand entries of a site's stream after an id.
    pub(super) async fn after(&mut self, site: &str, id: &str) -> Result<Vec<Entry>, Broken> {
        let mut command = redis::cmd("XRANGE");
        command
            .arg(stream(site))
            .arg(format!("({id}"))
            .arg("+")
            .arg("COUNT")
            .arg(1000);
        let found = self.store.run(&command).await;
        let found = found.map_err(|error| Broken::new(error.to_string()))?;
        redis::from_redis_value(found).map_err(|error| Broken::new(error.to_string()))
    }

    /// All entries of a site's stream.
    pub(super) async fn all(&mut self, site: &str) -> Result<Vec<Entry>, Broken> {
        let (mut all, mut last) = (Vec::new(), "0-0".to_owned());
        loop {
            let page = self.after(site, &last).await?;
            match page.last() {
                Some((id, _)) => last.clone_from(id),
                None => return Ok(all),
            }
            all.extend(page);
        }
    }

    /// Waits for an entry of a site's stream that has all these fields.
    pub(super) async fn wait_for(
        &mut self,
        site: &str,
        fields: &[(&str, &str)],
    ) -> Result<HashMap<String, String>, Broken> {
        let by = Instant::now() + PATIENCE;
        while Instant::now() < by {
            for (_, entry) in self.all(site).await? {
                if fields
                    .iter()
                    .all(|(name, value)| entry.get(*name).is_some_and(|is| is == value))
                {
                    return Ok(entry);
                }
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(Broken::new(format!(
            "nothing with {fields:?} came to {site} within {PATIENCE:?}"
        )))
    }
}
