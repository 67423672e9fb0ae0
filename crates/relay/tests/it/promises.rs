//! One promise, kept on every store.

/// Runs each promise on the embedded store and on a real server.
macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::world::World::embedded().await).await;
            })*
        }
        mod valkey {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::world::World::valkey().await).await;
            })*
        }
    };
}
