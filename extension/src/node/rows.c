/*
 * rows.c
 *	  BatchRows: the rows of any plan, gathered into batches for the node above.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/memutils.h"

#include "datum_vector.h"
#include "node.h"
#include "rows.h"
#include "statistics.h"

typedef struct BatchRowsState
{
	BatchNode	node;			/* must be first */
	DatumBatch *rows;
	MemoryContext values;		/* of the rows of the batch */
	bool		is_finished;
} BatchRowsState;

/* A copy of a value that is passed by reference, inline and not compressed. */
static Datum
copy_value(void *memory, Datum value, int length)
{
	MemoryContext caller = MemoryContextSwitchTo(memory);
	Datum		copy;

	if (length == -1 && VARATT_IS_EXTENDED(DatumGetPointer(value)) && !VARATT_IS_SHORT(DatumGetPointer(value)))
		copy = PointerGetDatum(PG_DETOAST_DATUM_COPY(value));
	else
		copy = datumCopy(value, false, length);
	MemoryContextSwitchTo(caller);
	return copy;
}

/* Gather the next rows; false where there are none. */
static bool
produce_rows(BatchNode *node)
{
	BatchRowsState *state = (BatchRowsState *) node;
	PlanState  *below = outerPlanState(&node->css);
	DatumBatch *rows = state->rows;

	Assert(node->output->source == rows);
	Assert(CurrentMemoryContext != state->values);
	rows->row_count = 0;
	MemoryContextReset(state->values);
	while (!state->is_finished && rows->row_count < BATCH_ROWS_MAX)
	{
		TupleTableSlot *slot;

		CHECK_FOR_INTERRUPTS();
		slot = ExecProcNode(below);
		state->is_finished = TupIsNull(slot);
		if (!state->is_finished)
			datum_batch_add(rows, slot, copy_value, state->values);
	}
	if (rows->row_count == 0)
		return false;
	Assert(rows->row_count <= BATCH_ROWS_MAX);
	batch_start(node->output, rows->row_count);
	counters_note_batch(node->counters, rows->row_count);
	return true;
}

/* The attributes that the node above reads, from 0. */
static Bitmapset *
attributes_of_list(const List *list)
{
	Bitmapset  *attributes = bms_make_singleton(list_length(list) == 0 ? 0 : linitial_int(list));
	const ListCell *cell;

	foreach(cell, list)
		attributes = bms_add_member(attributes, lfirst_int(cell));
	return attributes;
}

static void
begin_rows(CustomScanState *css, EState *estate, int eflags)
{
	BatchRowsState *state = (BatchRowsState *) css;
	BatchNode  *node = &state->node;
	const CustomScan *plan = (const CustomScan *) css->ss.ps.plan;
	TupleDesc	descriptor = css->ss.ss_ScanTupleSlot->tts_tupleDescriptor;

	if (node_begin_original(node, estate, eflags))
		return;
	outerPlanState(css) = ExecInitNode(plan->scan.plan.lefttree, estate, eflags);
	node->counters = &node->own_counters;
	node->rows_asked = BATCH_ROWS_MAX;
	node->output = batch_create(&datum_batch_ops, descriptor,
								ExecInitExtraTupleSlot(estate, descriptor, &TTSOpsVirtual));
	node->produce = produce_rows;
	node->subtree_may_raise = true;
	state->rows = datum_batch_create(descriptor, attributes_of_list(linitial(plan->custom_private)));
	node->output->source = state->rows;
	state->values = AllocSetContextCreate(CurrentMemoryContext, "BatchRows", ALLOCSET_DEFAULT_SIZES);
}

/* Its rows are handed on as such only where batching is off. */
static TupleTableSlot *
exec_rows(CustomScanState *css)
{
	BatchNode  *node = (BatchNode *) css;

	if (node->original == NULL)
		elog(ERROR, "the node above a BatchRows takes no batches");
	return ExecProcNode(node->original);
}

static void
rescan_rows(CustomScanState *css)
{
	BatchRowsState *state = (BatchRowsState *) css;

	if (state->node.original != NULL)
	{
		node_rescan(&state->node);
		return;
	}
	state->is_finished = false;
	if (outerPlanState(css)->chgParam == NULL)
		ExecReScan(outerPlanState(css));
}

static void
end_rows(CustomScanState *css)
{
	BatchNode  *node = (BatchNode *) css;

	statistics_count_node(NODE_ROWS, node);
	ExecEndNode(node->original != NULL ? node->original : outerPlanState(css));
}

static void
explain_rows(CustomScanState *css, List *ancestors, ExplainState *es)
{
	(void) ancestors;
	node_explain((BatchNode *) css, es);
}

static const CustomExecMethods rows_exec_methods = {
	.CustomName = BATCH_ROWS_NAME,
	.BeginCustomScan = begin_rows,
	.ExecCustomScan = exec_rows,
	.EndCustomScan = end_rows,
	.ReScanCustomScan = rescan_rows,
	.ExplainCustomScan = explain_rows,
};

static Node *
create_rows_state(CustomScan *plan)
{
	BatchRowsState *state = palloc0(sizeof(BatchRowsState));

	(void) plan;
	NodeSetTag(&state->node, T_CustomScanState);
	state->node.css.methods = &rows_exec_methods;
	return (Node *) state;
}

const CustomScanMethods batch_rows_methods = {
	.CustomName = BATCH_ROWS_NAME,
	.CreateCustomScanState = create_rows_state,
};
