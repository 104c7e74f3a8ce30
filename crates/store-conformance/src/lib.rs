//! The test suite that every store must pass.
//!
//! A store's tests implement [`Database`] and call [`store_conformance!`], which makes one test of each check:
//!
//! ```text
//! gristmill_store_conformance::store_conformance!(TemporarySqlite::new(), sequences: 200);
//! ```

pub mod change;
pub mod claim;
pub mod commit;
pub mod fixture;
pub mod graph;
pub mod machine;
pub mod programs;
pub mod query;
pub mod submit;

use std::sync::Arc;

use async_trait::async_trait;
use gristmill_model::ManualClock;
use gristmill_store::Store;

/// An empty database for one check. Several handles can be opened in it.
#[async_trait]
pub trait Database: Send + Sync {
    /// Opens a handle, like another process would.
    async fn open(&self) -> Arc<dyn Store>;

    /// The clock of all handles.
    fn clock(&self) -> &ManualClock;

    /// Starts to count the statements of handles that are opened later.
    fn count_statements(&self);

    /// The number of statements that were sent to the database since then.
    fn statements(&self) -> u64;
}

/// Makes a `#[tokio::test]` of every check of the suite. The first argument makes a new [`Database`] each time. The
/// second one is the number of random sequences of operations.
#[macro_export]
macro_rules! store_conformance {
    ($database:expr, sequences: $sequences:expr) => {
        $crate::store_conformance! { @modules $database, $sequences;
            submit::submits [
                ids_count_upwards,
                a_submit_holds_as_a_whole_or_not_at_all,
                wrong_batches_are_refused,
                single_submits_are_packed,
                a_single_submit_is_a_batch_of_one,
                rejected_jobs_are_dead_from_the_start,
                options_are_kept,
                a_run_advances_with_its_batches,
            ]
            claim::claims [
                a_batch_is_submitted_claimed_and_completed,
                claims_come_in_order,
                the_order_holds_across_kinds_and_queues,
                queues_and_kinds_are_respected,
                groups_are_kept_apart,
                slices_are_split,
                a_lease_has_limits,
                delayed_jobs_wait,
                delayed_jobs_do_not_block,
                due_jobs_stay_due_when_the_clock_is_set_back,
                a_claim_can_ask_for_urgent_jobs_only,
                handles_claim_apart,
                only_registered_workers_claim,
                a_submit_wakes_a_waiting_caller,
                a_submit_wakes_all_waiting_callers,
            ]
            claim::waiting [
                a_submit_claims_for_a_waiting_worker,
                no_job_is_handed_over_twice,
                controls_hold_for_waiting_workers,
                the_order_holds_for_waiting_workers,
                a_worker_that_goes_away_gives_back,
                unregistered_workers_get_no_jobs,
                a_claim_finds_what_its_reports_release,
            ]
            claim::next [
                the_next_jobs_are_those_of_the_next_claim,
                the_next_jobs_respect_controls,
                the_next_jobs_are_found_behind_many_lanes,
            ]
            claim::held_back [
                what_holds_due_jobs_back_is_told,
            ]
            submit::forgotten_lanes [
                lanes_without_jobs_are_forgotten,
                submits_make_forgotten_lanes_anew,
                keys_hold_where_lanes_are_forgotten,
                counts_of_forgotten_groups_are_kept,
            ]
            claim::lanes [
                jobs_of_many_lanes_are_claimed,
                other_lanes_do_not_slow_a_worker_down,
            ]
            commit::reports [
                outcomes_are_committed_once,
                a_refused_report_does_not_affect_others,
                failed_jobs_are_tried_again,
                errors_override_the_retry_policy,
                one_report_carries_all_attempts_in_a_slot,
                one_report_has_every_kind_of_outcome,
                ends_reach_watchers_of_other_handles,
                another_attempt_is_refused,
                the_last_error_is_shown,
                wrong_reports_are_refused,
                jitter_stays_in_bounds,
                reports_under_lost_leases_are_refused,
                dead_workers_are_rescued_at_once,
                rescues_are_bounded,
                long_jobs_are_left_alone,
                a_leaving_worker_gives_its_jobs_back,
                workers_are_listed,
                a_worker_is_asked_to_drain,
                hops_are_added_up,
            ]
            commit::compaction [
                compaction_changes_no_answer,
                open_batches_are_not_compacted,
            ]
            change::changes [
                open_jobs_are_cancelled,
                a_filter_selects_the_cancelled_jobs,
                packed_jobs_are_changed,
                ended_jobs_are_retried,
                failures_are_kept_through_retries,
                jobs_expire,
                rescued_jobs_do_not_expire,
                jobs_complete_in_time_or_never,
            ]
            change::priorities [
                waiting_jobs_are_prioritised,
                scheduled_jobs_are_prioritised,
                running_jobs_keep_their_new_priority,
                blocked_jobs_are_prioritised,
                dead_jobs_are_discarded,
            ]
            change::pauses [
                paused_jobs_wait,
                tags_are_paused_until,
                running_jobs_are_paused_when_they_come_back,
                blocked_jobs_are_paused,
                pauses_follow_the_states_of_a_filter,
                a_job_shows_the_pauses_of_its_lane,
            ]
            graph::prerequisites [
                the_outcomes_of_prerequisites_are_read,
                outcomes_are_read_within_a_limit,
                logs_take_nothing_of_the_limit_of_outcomes,
                a_small_prerequisite_in_a_large_batch_is_read,
            ]
            graph::dependencies [
                a_chain_runs_in_order,
                a_blocked_job_shows_its_prerequisites,
                a_fan_in_fires_once,
                a_stale_report_fires_nothing,
                single_jobs_can_be_waited_for,
                a_failed_prerequisite_has_the_chosen_effect,
                a_cancelled_job_shows_its_cause,
                a_failure_ends_the_whole_chain,
                a_batch_can_wait_for_many_others,
                ended_prerequisites_count_at_once,
                missing_prerequisites_are_refused,
                a_batch_is_pruned_before_its_prerequisite_ends,
                blocked_jobs_are_cancelled_and_expire,
                a_retried_job_is_waited_for,
                jobs_that_come_back_keep_others_waiting,
                ends_that_meet_fire_once,
                deleted_batches_are_not_waited_for,
            ]
            graph::families [
                parents_wait_and_finalize,
                children_of_many_parents_share_batches,
                families_nest,
                finalizing_jobs_are_rescued,
                failed_finalizers_are_tried_again,
                a_finalizer_may_spawn_again,
                children_are_kept_for_their_parents,
                children_inherit_queue_group_and_tags,
                children_that_cannot_be_stored_fail_their_parents,
                children_come_in_stages,
                children_that_end_together_free_their_parents_once,
            ]
            graph::family_endings [
                a_failed_child_ends_its_parent,
                failures_are_collected,
                a_failure_ends_all_generations,
                children_die_with_their_worker,
                late_reports_spawn_nothing,
                cancelled_parents_take_their_children,
                dead_parents_begin_anew,
                a_retried_child_is_waited_for,
                a_deleted_run_takes_its_children,
            ]
            graph::flows [
                steps_keep_their_memos_and_children,
                open_children_stay_with_their_flow,
                what_ends_meanwhile_is_news,
                all_means_all_steps,
                ended_flows_leave_nothing_open,
                a_retried_flow_goes_on,
                steps_are_not_retried_by_hand,
                flows_nest_to_a_limit,
                given_up_children_are_cancelled,
                flows_begin_anew,
                flows_begin_with_memos,
                steps_of_their_flows_kind_are_told_apart,
                flows_under_way_go_first,
                flows_that_begin_anew_go_to_the_end,
            ]
            graph::flow_cleanup [
                cancelled_flows_are_cleaned_up_after,
                a_flow_that_runs_is_cleaned_up_after_later,
                a_flow_whose_step_runs_is_cleaned_up_after_later,
                cleanups_end_in_time,
                cleanups_that_wait_keep_their_time,
                cleanups_hold_up_nobody,
            ]
            graph::flow_events [
                events_are_delivered_or_kept,
                unread_events_go_back,
                events_outlast_a_new_beginning,
                events_go_back_once,
                moments_come,
                children_that_are_together_wake_their_flow_once,
            ]
            graph::siblings [
                parents_wait_for_siblings_too,
                siblings_of_many_jobs_share_batches,
                siblings_spawn_siblings,
                siblings_may_have_ended_already,
                jobs_without_parents_spawn_no_siblings,
                siblings_that_cannot_be_stored_fail_their_spawner,
                a_failed_sibling_ends_its_parent,
                dead_parents_get_no_siblings,
                siblings_of_parents_that_went_on_are_left_out,
                paused_parents_wait_for_siblings,
                children_are_found_by_their_parent,
                siblings_and_failures_that_meet_leave_nothing_behind,
            ]
            graph::hooks [
                a_batch_that_completes_submits_its_hook,
                a_batch_that_fails_submits_the_other_hook,
                a_hook_fires_only_for_its_outcome,
                a_url_gets_the_summary,
                a_hook_is_submitted_once,
                hooks_wait_for_retries_and_children,
                batches_that_never_run_submit_their_hooks,
                single_jobs_have_their_own_hooks,
                hooks_of_schedules_name_them,
                a_run_that_finishes_submits_its_hook_once,
                wrong_hooks_are_refused,
            ]
            query::queries [
                jobs_are_listed_in_pages,
                jobs_are_counted,
                jobs_are_listed_by_time,
                dead_jobs_are_listed_in_pages,
                batches_are_summarized,
                a_job_is_shown,
                runs_are_kept,
                a_run_is_deleted_with_its_batches,
                jobs_of_a_run_are_found,
                ended_batches_are_pruned,
                ids_are_never_reused,
                a_closed_store_refuses_every_operation,
            ]
            query::events [
                events_come_in_order_from_any_place,
                every_end_is_an_event,
                events_are_kept_for_those_who_listen,
                progress_is_an_event,
            ]
            commit::progress [
                progress_is_shown_while_a_job_runs,
                other_jobs_of_the_kind_predict_the_duration,
                running_jobs_stay_claimed_since_the_same_moment,
            ]
            commit::live_output [
                output_is_kept_while_somebody_follows,
                live_output_is_bounded,
            ]
            query::metrics [
                an_empty_store_has_metrics,
                open_jobs_are_measured,
                ended_jobs_are_measured,
            ]
            query::history [
                ends_are_counted_by_kind,
                ends_are_counted_by_hour_and_day,
                ends_are_counted_in_reports_of_all_sizes,
                totals_survive_deletions,
            ]
            submit::keys [
                duplicates_are_skipped,
                the_last_of_a_batch_stays,
                keys_have_a_scope,
                a_duplicate_raises_the_priority,
                a_duplicate_raises_a_lowered_priority,
                jobs_are_replaced,
                jobs_run_once_more,
                jobs_that_run_once_more_are_claimed_at_once,
                duplicates_are_refused,
                keys_last_for_their_period,
                keys_go_with_their_jobs,
                retried_jobs_need_their_key,
                concurrent_duplicates_meet,
                jobs_with_keys_wait_for_others,
                a_job_that_replaces_a_blocked_job_waits_too,
                a_job_that_replaces_a_chain_ends_with_it,
                jobs_that_wait_in_vain_release_their_keys,
            ]
            submit::debounce [
                the_last_payload_stays,
                payloads_are_merged,
                payloads_wait_behind_a_started_job,
                payloads_outlive_a_dead_job,
                payloads_wait_behind_other_jobs,
                debounced_jobs_are_changed,
                payloads_wait_behind_a_full_job,
            ]
            submit::cache [
                jobs_with_cached_payloads_do_not_run,
                a_handle_that_only_reports_keeps_values,
                values_stay_in_their_queue_and_group,
                cached_values_have_a_period,
                cached_values_count_as_completions,
            ]
            query::tags [
                jobs_are_found_by_tags,
                jobs_are_changed_by_tags,
                jobs_are_found_by_keys,
                jobs_are_found_by_keys_that_json_escapes,
                groups_are_listed,
                tags_are_checked_and_deleted,
                single_jobs_keep_their_tags,
                leased_jobs_are_known,
                labels_count_as_bytes_of_a_lease,
            ]
            claim::limits [
                small_batches_of_a_limited_lane_keep_their_order,
                paused_lanes_wait,
                limits_hold_across_handles,
                a_full_group_blocks_nobody,
                freed_slots_wake_waiting_workers,
                rates_are_kept,
                each_group_has_its_rate,
                claims_are_shared_by_weight,
                queues_share_by_weight,
                old_jobs_age,
                wrong_controls_are_refused,
                a_report_refused_in_part_frees_slots,
                many_groups_are_served,
                limits_hold_under_random_operations,
                limits_cost_few_statements,
            ]
            submit::schedules [
                due_schedules_fire_once,
                jobs_of_schedules_have_their_options,
                a_schedule_can_be_put_again,
                scheduled_jobs_are_tagged,
                missed_moments_are_caught_up_with,
                overlapping_jobs_are_handled,
                a_dead_job_does_not_end_its_schedule,
                schedules_are_changed,
                wrong_schedules_are_refused,
                schedules_are_listed_in_pages,
                jobs_of_schedules_have_keys,
                keys_of_schedules_are_checked,
                jobs_of_schedules_have_cached_values,
            ]
        }
    };
    (@modules $database:expr, $sequences:expr; $($topic:ident::$module:ident [$($check:ident,)*])*) => {
        $(mod $module {
            #[allow(unused_imports, reason = "the database may be named by a path")]
            use super::*;
            $(
                #[tokio::test]
                async fn $check() {
                    let database = $database;
                    $crate::$topic::$module::$check(&database).await;
                    let store = $crate::Database::open(&database).await;
                    $crate::fixture::no_damage(&*store).await;
                }
            )*
        })*

        #[test]
        fn agrees_with_the_reference() {
            $crate::machine::agrees_with_the_reference($sequences, || $database);
        }

        #[test]
        fn flows_agree_with_the_interpreter() {
            $crate::programs::flows_agree_with_the_interpreter($sequences, || $database);
        }
    };
}
