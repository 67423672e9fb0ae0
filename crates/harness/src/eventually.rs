//! Waiting for something to become true.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Asks `probe` until it gives a value, with short pauses that grow to 50 ms.
///
/// # Panics
/// When `deadline` has passed without a value, naming `what`.
pub async fn eventually<T>(
    deadline: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> T {
    let end = Instant::now() + deadline;
    let mut pause = Duration::from_millis(2);
    loop {
        match tokio::time::timeout_at(end, probe()).await {
            Ok(Some(value)) => return value,
            Ok(None) if Instant::now() + pause < end => sleep(pause).await,
            Ok(None) | Err(_) => panic!("still not so after {deadline:?}: {what}"),
        }
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_value_is_given() {
        let mut asked = 0;
        let value = eventually(Duration::from_secs(5), "three questions", async || {
            asked += 1;
            (asked == 3).then_some(asked)
        })
        .await;
        assert_eq!(value, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "the moon to fall")]
    async fn what_never_came_is_named() {
        eventually(Duration::from_millis(20), "the moon to fall", async || {
            None::<()>
        })
        .await;
    }

    #[tokio::test]
    #[should_panic(expected = "an answer")]
    async fn a_probe_that_hangs_is_ended() {
        eventually(Duration::from_millis(20), "an answer", async || {
            std::future::pending::<Option<()>>().await
        })
        .await;
    }
}
