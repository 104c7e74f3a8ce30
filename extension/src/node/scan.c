/*
 * scan.c
 *	  BatchScan: a scan of a table, whole or as a bitmap or an index names its pages, or of a
 *	  foreign table, whose quals run on batches.
 *
 * Rows that pass are handed up one at a time in a slot of the table's kind, so that
 * the node above deforms as little of them as it did before.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "utils/rel.h"

#include "exact_rows.h"
#include "heap_source.h"
#include "node.h"
#include "statistics.h"
#include "top_rows.h"

typedef struct BatchScanState
{
	BatchNode	node;			/* must be first */
	int			clause_next;	/* first clause left for the row path */
	int			selected_next;	/* next selected row of the batch */
	bool		has_batch;
	ExactRows	waiting;		/* of a batch for a batched node above */
	DemandState demand;
	TopRows		top;
} BatchScanState;

static int
rows_to_read(BatchScanState *state)
{
	BatchNode  *node = &state->node;

	node->rows_asked = demand_rows(&state->demand);
	return demand_rows_to_read(&state->demand, node->rows_asked);
}

/*
 * Is there a row that passes all clauses?  No row behind the first such one is
 * evaluated by row, as the node above may never ask for it.
 */
static bool
peek_batch(BatchNode *node)
{
	BatchScanState *state = (BatchScanState *) node;
	BatchQual  *qual = node->input->qual;
	TupleBatch *batch = node->output;
	PlanState  *planstate = &node->css.ss.ps;

	while (!exact_rows_peek(&state->waiting, qual, batch, planstate))
	{
		if (!node_next_batch(node, rows_to_read(state)))
			return false;
		exact_rows_apply(&state->waiting, qual, batch, true, planstate);
		if (batch->selection.count > 0)
			exact_rows_take(&state->waiting, batch, qual->clause_count);
	}
	return true;
}

/* Select the waiting rows that pass the clauses: all of them, or one where the next may raise an error. */
static void
select_waiting(BatchScanState *state)
{
	BatchNode  *node = &state->node;
	BatchQual  *qual = node->input->qual;
	ExactRows  *waiting = &state->waiting;

	if (node_is_exact(node, node) && waiting->clause_next < qual->clause_count)
		exact_rows_select_next(waiting, qual, node->output, &node->css.ss.ps);
	else
		exact_rows_select_all(waiting, qual, node->output, &node->css.ss.ps);
}

/* The next batch with a row that passes all clauses, for a batched node above. */
static bool
produce_batch(BatchNode *node)
{
	BatchScanState *state = (BatchScanState *) node;
	TupleBatch *batch = node->output;

	do
	{
		if (exact_rows_wait(&state->waiting))
			select_waiting(state);
		else if (node_next_batch(node, rows_to_read(state)))
			exact_rows_apply(&state->waiting, node->input->qual, batch, node_is_exact(node, node),
							 &node->css.ss.ps);
		else
			return false;
	} while (batch->selection.count == 0);
	return true;
}

static void
begin_scan(CustomScanState *css, EState *estate, int eflags)
{
	BatchScanState *state = (BatchScanState *) css;
	CustomScan *plan = (CustomScan *) css->ss.ps.plan;
	RowDemand	demand = demand_from_list(linitial(plan->custom_private));
	TopRowsPlan top = top_rows_from_list(lsecond(plan->custom_private));
	Relation	relation = css->ss.ss_currentRelation;
	const Plan *original = linitial(plan->custom_plans);
	BatchInput *input;

	if (node_begin_original(&state->node, estate, eflags))
	{
		/* WHERE CURRENT OF looks for the current row in our slot. */
		css->ss.ss_ScanTupleSlot = ((ScanState *) state->node.original)->ss_ScanTupleSlot;
		return;
	}
	/* Core has set up a virtual slot; batches hand out what the table is made of. */
	INIT_SCAN_SLOT(estate, &css->ss, RelationGetDescr(relation),
				   source_to_read(relation)->slot_ops);
	ExecAssignScanProjectionInfoWithVarno(&css->ss, plan->scan.scanrelid);
	node_begin_inputs(&state->node, 1);
	input = state->node.input;
	node_begin_input(&state->node, input, relation, css->ss.ss_ScanTupleSlot,
					 original, eflags);
	if (IsA(original, BitmapHeapScan))
	{
		outerPlanState(css) = ExecInitNode(original->lefttree, estate, eflags);
		heap_source_read_named(input->source, bitmap_pages_create(outerPlanState(css), relation));
	}
	else if (IsA(original, IndexScan))
	{
		outerPlanState(css) = ExecInitNode(lsecond(plan->custom_plans), estate, eflags);
		heap_source_read_named(input->source, index_pages_create(outerPlanState(css), relation));
	}
	input->qual = qual_compile(&input->context, plan->scan.plan.qual);
	state->node.may_raise = qual_count_raising(input->qual) > 0;
	state->node.subtree_may_raise = state->node.may_raise || input->source->foreign_scan != NULL;
	state->node.output = input->source->batch;
	state->node.produce = produce_batch;
	state->node.peek = peek_batch;
	demand_begin(&state->demand, &demand, estate);
	top_rows_begin(&state->top, &top, &input->context, estate);
}

/* Fetch a batch and run its vector clauses; false at the end of the table. */
static bool
fetch_batch(BatchScanState *state)
{
	BatchNode  *node = &state->node;
	BatchQual  *qual = node->input->qual;
	TupleBatch *batch = node->input->source->batch;
	int			rows;

	state->has_batch = node_next_batch(node, rows_to_read(state));
	if (!state->has_batch)
		return false;
	state->clause_next = qual_apply_vectors(qual, batch);
	Assert(state->clause_next >= 0 && state->clause_next <= qual->clause_count);
	Assert(selection_is_valid(&batch->selection, batch->row_count));
	if (state->clause_next < qual->vector_count &&
		batch->selection.count > 0)
		node->counters->batches_by_row++;
	state->selected_next = 0;
	rows = batch->row_count - batch->selection.count;
	InstrCountFiltered1(&node->css, rows);
	if (state->clause_next >= qual->clause_count)
		node->counters->rows_beyond_top += top_rows_apply(&state->top, &node->input->context);
	return true;
}

/* The next row that passes all clauses, or NULL at the end of the table. */
static TupleTableSlot *
next_row(BatchScanState *state)
{
	BatchNode  *node = &state->node;
	BatchQual  *qual = node->input->qual;
	TupleBatch *batch = node->input->source->batch;
	ExprContext *econtext = node->css.ss.ps.ps_ExprContext;
	const Selection *selection = &batch->selection;

	for (;;)
	{
		while (state->has_batch && state->selected_next < selection->count)
		{
			int			at = state->selected_next++;
			int			row = selection->rows != NULL ? selection->rows[at] : at;

			ResetExprContext(econtext);
			Assert(row >= 0 && row < batch->row_count);
			if (state->clause_next >= qual->clause_count)
				return batch->ops->materialise_row(batch, row);
			if (qual_row_passes(qual, batch, state->clause_next, row))
				return econtext->ecxt_scantuple;
			InstrCountFiltered1(&node->css, 1);
		}
		if (!fetch_batch(state))
			return NULL;
	}
}

static TupleTableSlot *
exec_scan(CustomScanState *css)
{
	BatchScanState *state = (BatchScanState *) css;
	TupleBatch *batch;
	ProjectionInfo *projection = css->ss.ps.ps_ProjInfo;
	TupleTableSlot *slot;

	if (state->node.original != NULL)
		return ExecProcNode(state->node.original);
	slot = next_row(state);
	if (slot == NULL)
	{
		batch = state->node.input->source->batch;
		batch->ops->release(batch);
		return projection != NULL ?
			ExecClearTuple(projection->pi_state.resultslot) :
			css->ss.ss_ScanTupleSlot;
	}
	if (projection == NULL)
		return slot;
	css->ss.ps.ps_ExprContext->ecxt_scantuple = slot;
	return ExecProject(projection);
}

static void
rescan_scan(CustomScanState *css)
{
	BatchScanState *state = (BatchScanState *) css;

	state->has_batch = false;
	demand_restart(&state->demand);
	exact_rows_forget(&state->waiting);
	top_rows_forget(&state->top);
	node_rescan(&state->node);
	/* The plan of a bitmap, or the scan of an index. */
	if (outerPlanState(css) != NULL && outerPlanState(css)->chgParam == NULL)
		ExecReScan(outerPlanState(css));
}

static void
end_scan(CustomScanState *css)
{
	statistics_count_node(NODE_SCAN, (BatchNode *) css);
	node_end((BatchNode *) css);
	if (outerPlanState(css) != NULL)
		ExecEndNode(outerPlanState(css));
}

static void
explain_scan(CustomScanState *css, List *ancestors, ExplainState *es)
{
	(void) ancestors;
	node_explain((BatchNode *) css, es);
}

static const CustomExecMethods scan_exec_methods = {
	.CustomName = BATCH_SCAN_NAME,
	.BeginCustomScan = begin_scan,
	.ExecCustomScan = exec_scan,
	.EndCustomScan = end_scan,
	.ReScanCustomScan = rescan_scan,
	.EstimateDSMCustomScan = node_estimate_dsm,
	.InitializeDSMCustomScan = node_initialize_dsm,
	.ReInitializeDSMCustomScan = node_reinitialize_dsm,
	.InitializeWorkerCustomScan = node_initialize_worker,
	.ShutdownCustomScan = node_shutdown,
	.ExplainCustomScan = explain_scan,
};

static Node *
create_scan_state(CustomScan *plan)
{
	BatchScanState *state = palloc0(sizeof(BatchScanState));

	(void) plan;
	NodeSetTag(&state->node, T_CustomScanState);
	state->node.css.methods = &scan_exec_methods;
	return (Node *) state;
}

const CustomScanMethods batch_scan_methods = {
	.CustomName = BATCH_SCAN_NAME,
	.CreateCustomScanState = create_scan_state,
};
