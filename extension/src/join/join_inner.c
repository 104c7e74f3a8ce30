/*
 * join_inner.c
 *	  The inner side of a BatchJoin, read into its hash table.
 *
 * Where it comes in batches, of columns as they are, these are taken a column at a
 * time, and no row is made of them.  Other nodes hand on their rows.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"

#include "join_state.h"
#include "plan.h"

/* What a node's result is as a column of its batches; false where it is none. */
static bool
column_of_result(const Node *result, ValueKind *kind)
{
	const Var  *var = (const Var *) result;

	if (!IsA(result, Var) || var->varattno <= 0 || !value_kind_of_type(var->vartype, kind))
		return false;
	/* A stored numeric is a pointer, as a text is. */
	if (*kind == VALUE_NUMERIC)
		*kind = VALUE_TEXT;
	return true;
}

/* Have the inner node's batches provide its results, if all of these are columns. */
static void
ask_for_columns(BatchJoinState *state, BatchNode *inner)
{
	const List *results = inner->css.ss.ps.plan->targetlist;
	ValueKind	kind = VALUE_TEXT;	/* Set by column_of_result() */
	ListCell   *cell;

	foreach(cell, results)
		if (!column_of_result((Node *) lfirst_node(TargetEntry, cell)->expr, &kind))
			return;
	state->inner = inner;
	state->inner_columns = palloc(sizeof(BatchColumn *) * (list_length(results) + 1));
	foreach(cell, results)
	{
		const Var  *var = (const Var *) lfirst_node(TargetEntry, cell)->expr;

		(void) column_of_result((const Node *) var, &kind);
		state->inner_columns[foreach_current_index(cell)] =
			batch_add_column(inner->output, var->varattno, var->vartype, kind);
	}
}

void
join_inner_begin(BatchJoinState *state, Plan *plan, EState *estate, int eflags)
{
	PlanState  *inner = ExecInitNode(plan, estate, eflags);

	innerPlanState(&state->node.css) = inner;
	if (plan_is_batched(plan) && ((BatchNode *) inner)->original == NULL)
		ask_for_columns(state, (BatchNode *) inner);
	state->inner_rows = datum_batch_create(ExecGetResultType(inner), NULL);
}

/* Put the rows that have been collected into the hash table, or into files. */
void
join_inner_flush(BatchJoinState *state)
{
	Assert(state->inner_rows->row_count > 0 && state->inner_rows->row_count <= BATCH_ROWS_MAX);
	batch_start(state->inner_batch, state->inner_rows->row_count);
	if (state->rounds != NULL && state->rounds->current == NULL)
	{
		join_rounds_write_inner(state);
		/* Their values. */
		join_table_reset(state->table);
	}
	else
	{
		/* The values of a row that is kept for its key alone are of use only where it may go to a file. */
		const bool	keeps_values = !state->table->keeps_one || state->rounds == NULL;

		ResetExprContext(state->inner_context.econtext);
		join_table_add(state->table, &state->inner_context, keeps_values ? state->inner_rows : NULL);
		state->figures.table_bytes = Max(state->figures.table_bytes, join_table_bytes(state->table));
		join_table_forget_collected(state->table);
	}
	state->inner_rows->row_count = 0;
	Assert(state->rounds != NULL || state->table->groups->keys == state->table->inner_keys);
}

/* Where the table exceeds its memory, go on with files. */
static void
respect_memory(BatchJoinState *state)
{
	if (state->rounds != NULL || join_table_bytes(state->table) <= state->memory_limit_bytes)
		return;
	if (state->inner_rows->row_count > 0)
		join_inner_flush(state);
	/* The table may have kept none of the collected rows. */
	if (join_table_bytes(state->table) > state->memory_limit_bytes)
		join_rounds_begin(state);
}

/* Append the selected values of a column to an attribute of the rows. */
static void
append_column(BatchJoinState *state, int number)
{
	TupleBatch *batch = state->inner->output;

	datum_batch_append_column(state->inner_rows, number,
							  batch_column(batch, state->inner_columns[number], &batch->selection),
							  &batch->selection, join_table_copy, state->table);
}

static void
read_batches(BatchJoinState *state)
{
	DatumBatch *rows = state->inner_rows;

	while (node_pull(state->inner))
	{
		const int	count = state->inner->output->selection.count;

		if (rows->row_count + count > BATCH_ROWS_MAX)
			join_inner_flush(state);
		for (int i = 0; i < rows->descriptor->natts; i++)
			append_column(state, i);
		rows->row_count += count;
		respect_memory(state);
	}
}

static void
read_rows(BatchJoinState *state)
{
	PlanState  *inner = innerPlanState(&state->node.css);

	for (;;)
	{
		TupleTableSlot *slot = ExecProcNode(inner);

		if (TupIsNull(slot))
			return;
		datum_batch_add(state->inner_rows, slot, join_table_copy, state->table);
		if (state->inner_rows->row_count < BATCH_ROWS_MAX)
			continue;
		CHECK_FOR_INTERRUPTS();
		join_inner_flush(state);
		respect_memory(state);
	}
}

/* Read the inner side to its end: into the hash table, or into files. */
void
join_inner_read(BatchJoinState *state)
{
	if (state->inner != NULL)
		read_batches(state);
	else
		read_rows(state);
	if (state->inner_rows->row_count > 0)
		join_inner_flush(state);
	respect_memory(state);
	Assert(state->inner_rows->row_count == 0);
	if (state->rounds != NULL)
		join_rounds_start(state);
}
