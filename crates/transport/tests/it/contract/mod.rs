//! The contract of the `Streams` port: one function for each promise, the same for every adapter.

mod idle;
mod keys;
mod many;
mod reading;
mod settling;

use super::store::Store;

/// Runs every promise against one adapter, each on a store of its own.
macro_rules! keeps {
    ($adapter:ident: $($file:ident { $($promise:ident,)* })*) => {
        mod $adapter {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $promise() {
                    super::$file::$promise(super::Store::$adapter().await).await;
                }
            )*)*
        }
    };
}

macro_rules! adapters {
    ($($adapter:ident,)*) => { $(
        keeps! { $adapter:
            settling {
                a_settlement_happens_as_a_whole,
                a_refused_append_leaves_nothing_behind,
                a_second_settlement_does_nothing,
                a_bare_settlement_is_told_from_one_that_came_before,
                nothing_is_written_without_the_fence,
                a_key_is_consumed_once,
                settlements_keep_their_order,
                a_long_value_is_handed_over_unchanged,
                what_was_read_is_handed_over_byte_for_byte,
            }
            reading {
                pending_entries_come_first_and_in_order,
                what_another_consumer_of_the_group_held_is_inherited_in_order,
                pending_entries_come_again_after_a_rewind,
                a_read_takes_no_more_than_its_count_from_a_stream,
                a_read_without_news_is_empty,
                a_waiting_read_hears_of_a_new_entry,
                a_stream_assigned_while_a_read_waits_is_read_after_an_interrupt,
                streams_that_stay_keep_their_place,
                a_change_is_told_no_later_than_what_follows,
                a_change_is_told_to_a_reader_without_streams,
                a_change_of_another_key_is_not_told,
                a_group_that_vanished_is_made_again,
                a_stream_deleted_while_a_read_waits_is_made_again,
                a_key_that_is_no_stream_does_not_stop_the_others,
                a_stream_that_became_something_else_is_left_out,
                an_entry_over_the_limits_is_told_and_stays,
                an_entry_of_too_many_fields_is_told_and_stays,
                a_deleted_pending_entry_is_gone,
                a_reader_without_streams_waits_for_an_assignment,
            }
            many {
                many_streams_are_each_read_once_and_in_order,
                a_busy_stream_does_not_silence_the_others,
            }
            idle {
                a_group_is_made_once_and_with_its_stream,
                a_group_that_is_made_late_begins_with_the_first_entry,
                a_stream_is_deleted_once_nobody_has_used_it_for_long_enough,
                a_stream_that_is_asked_in_vain_or_written_to_is_in_use,
                only_a_stream_is_deleted_for_want_of_use,
                a_set_holds_each_member_once,
            }
            keys {
                entries_are_kept_as_they_were_appended,
                a_range_begins_where_it_is_told,
                a_hash_holds_what_was_set,
                no_change_of_a_hash_is_lost,
                a_hash_that_needs_no_change_is_left_alone,
                keys_are_answered_in_order,
                streams_are_found_by_pattern,
                a_stream_is_trimmed_to_about_what_is_kept,
                what_a_group_has_not_acknowledged_is_never_trimmed,
                the_wrong_kind_of_key_is_refused_with_its_name,
                a_store_that_answers_is_up,
            }
        }
    )* };
}

adapters! { valkey, embedded, embedded_in_a_folder, }

/// Runs the promises one after the other on one cluster, emptied in between: its nodes take
/// seconds to come together.
macro_rules! keeps_on_a_cluster {
    ($($file:ident { $($promise:ident,)* })*) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_cluster_keeps_them_too() {
            let cluster = crossway_harness::RedisCluster::start(3).await;
            $($(
                println!("{}", stringify!($promise));
                cluster.flush().await;
                $file::$promise(Store::on_cluster(&cluster).await).await;
            )*)*
        }
    };
}

// Over several slots a settlement isn't atomic; none of these breaks one off in the middle.
keeps_on_a_cluster! {
    settling {
        a_settlement_happens_as_a_whole,
        a_refused_append_leaves_nothing_behind,
        a_second_settlement_does_nothing,
        a_bare_settlement_is_told_from_one_that_came_before,
        nothing_is_written_without_the_fence,
        a_key_is_consumed_once,
        settlements_keep_their_order,
        a_long_value_is_handed_over_unchanged,
        what_was_read_is_handed_over_byte_for_byte,
    }
    reading {
        pending_entries_come_first_and_in_order,
        what_another_consumer_of_the_group_held_is_inherited_in_order,
        pending_entries_come_again_after_a_rewind,
        a_read_takes_no_more_than_its_count_from_a_stream,
        a_read_without_news_is_empty,
        a_waiting_read_hears_of_a_new_entry,
        a_stream_assigned_while_a_read_waits_is_read_after_an_interrupt,
        streams_that_stay_keep_their_place,
        a_change_is_told_no_later_than_what_follows,
        a_change_is_told_to_a_reader_without_streams,
        a_change_of_another_key_is_not_told,
        a_group_that_vanished_is_made_again,
        a_stream_deleted_while_a_read_waits_is_made_again,
        a_key_that_is_no_stream_does_not_stop_the_others,
        a_stream_that_became_something_else_is_left_out,
        an_entry_over_the_limits_is_told_and_stays,
        an_entry_of_too_many_fields_is_told_and_stays,
        a_deleted_pending_entry_is_gone,
        a_reader_without_streams_waits_for_an_assignment,
    }
    many {
        many_streams_are_each_read_once_and_in_order,
        a_busy_stream_does_not_silence_the_others,
    }
    idle {
        a_group_is_made_once_and_with_its_stream,
        a_group_that_is_made_late_begins_with_the_first_entry,
        a_stream_is_deleted_once_nobody_has_used_it_for_long_enough,
        a_stream_that_is_asked_in_vain_or_written_to_is_in_use,
        only_a_stream_is_deleted_for_want_of_use,
        a_set_holds_each_member_once,
    }
    keys {
        entries_are_kept_as_they_were_appended,
        a_range_begins_where_it_is_told,
        a_hash_holds_what_was_set,
        no_change_of_a_hash_is_lost,
        a_hash_that_needs_no_change_is_left_alone,
        keys_are_answered_in_order,
        streams_are_found_by_pattern,
        a_stream_is_trimmed_to_about_what_is_kept,
        the_wrong_kind_of_key_is_refused_with_its_name,
        a_store_that_answers_is_up,
    }
}
