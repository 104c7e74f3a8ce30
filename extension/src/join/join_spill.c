/*
 * join_spill.c
 *	  A stock hash join takes over from a BatchJoin whose inner rows exceed the
 *	  memory for a hash table: it can write them to files.
 *
 * It reads the rows of the BatchJoin's table, then the rest of the inner side,
 * and the rows of the outer node's batches.  What it returns are pairs.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/datum.h"

#include "join_state.h"

/* A row that the table held, or of the rest of the inner side. */
static TupleTableSlot *
next_inner(void *owner)
{
	BatchJoinState *state = owner;
	TupleTableSlot *slot = state->inner_slot;
	const JoinRow *row = NULL;

	CHECK_FOR_INTERRUPTS();
	if (state->table->row_count > 0)
		row = join_table_walk(state->table, &state->walk);
	if (row == NULL)
	{
		if (state->table->row_count > 0)
			join_table_reset(state->table);
		return state->inner_is_done ? NULL : ExecProcNode(innerPlanState(&state->node.css));
	}
	ExecClearTuple(slot);
	for (int i = 0; i < state->table->descriptor->natts; i++)
	{
		slot->tts_values[i] = row->values[i];
		slot->tts_isnull[i] = (row->nulls >> i) & 1;
	}
	return ExecStoreVirtualTuple(slot);
}

/* A selected row of the outer batches, as these have it. */
static TupleTableSlot *
next_outer(void *owner)
{
	BatchJoinState *state = owner;
	TupleBatch *outer = state->outer->output;
	const Selection *selection = &outer->selection;
	int			at;

	while (!state->has_outer || state->spill_outer_at >= selection->count)
	{
		if (state->is_finished)
			return NULL;
		state->has_outer = node_pull(state->outer);
		state->is_finished = !state->has_outer;
		state->spill_outer_at = 0;
	}
	at = state->spill_outer_at++;
	return outer->ops->materialise_row(outer, selection->rows != NULL ?
									   selection->rows[at] : at);
}

/* The stock join wants the inner side anew. */
static void
rescan_inner(void *owner)
{
	BatchJoinState *state = owner;
	PlanState  *inner = innerPlanState(&state->node.css);

	join_table_reset(state->table);
	state->inner_is_done = false;
	if (inner->chgParam == NULL)
		ExecReScan(inner);
}

/* It always does so with the outer side, which join_spill_rescan sees to. */
static void
rescan_outer(void *owner)
{
	(void) owner;
}

void
join_spill_begin(BatchJoinState *state)
{
	EState	   *estate = state->node.css.ss.ps.state;
	const CustomScan *plan = (const CustomScan *) state->node.css.ss.ps.plan;
	const Plan *outer = plan->scan.plan.lefttree;
	const Plan *inner = plan->scan.plan.righttree;
	MemoryContext caller = MemoryContextSwitchTo(estate->es_query_cxt);
	Plan	   *spilling;

	state->walk = (JoinTableWalk) {.only_unmatched = false};
	state->spill_outer_at = 0;
	state->inner_source = (RelaySource) {
		.next = next_inner, .rescan = rescan_inner, .owner = state,
		.descriptor = state->table->descriptor,
	};
	state->outer_source = (RelaySource) {
		.next = next_outer, .rescan = rescan_outer, .owner = state,
		.descriptor = state->outer->output->descriptor,
	};
	state->inner_slot = ExecInitExtraTupleSlot(estate, state->table->descriptor,
											   &TTSOpsVirtual);
	state->spill_row_memory = AllocSetContextCreate(CurrentMemoryContext, "BatchJoin rows",
													ALLOCSET_DEFAULT_SIZES);
	state->spill_rows = datum_batch_create(state->node.output->descriptor);
	spilling = node_link_plan(list_nth(plan->custom_plans, BATCH_JOIN_SPILLING),
							  relay_plan(&state->outer_source, outer),
							  relay_plan(&state->inner_source, inner));
	state->spill = ExecInitNode(spilling, estate,
								estate->es_top_eflags & ~EXEC_FLAG_EXPLAIN_ONLY);
	MemoryContextSwitchTo(caller);
	state->node.output->ops = &datum_batch_ops;
	state->node.output->source = state->spill_rows;
}

static Datum
copy_value(void *owner, Datum value, int length)
{
	(void) owner;
	return datumCopy(value, false, length);
}

/* Pairs of the stock join as a batch; false at the end. */
bool
join_spill_next_batch(BatchJoinState *state)
{
	DatumBatch *rows = state->spill_rows;
	TupleBatch *output = state->node.output;
	MemoryContext caller;

	MemoryContextReset(state->spill_row_memory);
	rows->row_count = 0;
	while (rows->row_count < BATCH_ROWS_MAX)
	{
		TupleTableSlot *slot = ExecProcNode(state->spill);

		if (TupIsNull(slot))
			break;
		caller = MemoryContextSwitchTo(state->spill_row_memory);
		datum_batch_add(rows, slot, copy_value, NULL);
		MemoryContextSwitchTo(caller);
	}
	batch_start(output, rows->row_count);
	return rows->row_count > 0;
}

/* Back to the first outer row; the inner side is read anew only if it has changed. */
void
join_spill_rescan(BatchJoinState *state, bool inner_has_changed)
{
	PlanState  *node = &state->node.css.ss.ps;
	PlanState  *inner = innerPlanState(&state->node.css);
	PlanState  *hash = innerPlanState(state->spill);

	if (inner_has_changed)
		hash->chgParam = bms_copy(inner->chgParam != NULL ? inner->chgParam : node->chgParam);
	state->has_outer = state->is_finished = false;
	state->spill_outer_at = 0;
	ExecReScan(state->spill);
}

void
join_spill_end(BatchJoinState *state)
{
	if (state->spill != NULL)
		ExecEndNode(state->spill);
}
