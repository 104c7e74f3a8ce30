/*
 * node.c
 *	  What both custom scan nodes share: begin, next batch, rescan and end.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "node.h"

/*
 * Where batching is off, or can't be done in this transaction, start the
 * original plan in its place.  Returns whether it did.
 */
bool
node_begin_original(BatchNode *node, EState *estate, int eflags)
{
	CustomScan *plan = (CustomScan *) node->css.ss.ps.plan;
	PlanState  *original;
	bool		is_fixed;

	node->obstacle = batching_runtime_obstacle(estate);
	if (node->obstacle == NULL)
		return false;
	original = ExecInitNode(linitial(plan->custom_plans), estate, eflags);
	node->original = original;
	node->css.custom_ps = list_make1(original);
	/* The node above reads the original's slots. */
	node->css.ss.ps.resultops = ExecGetResultSlotOps(original, &is_fixed);
	node->css.ss.ps.resultopsfixed = is_fixed;
	node->css.ss.ps.resultopsset = true;
	return true;
}

/* Set up the source of batches of a table; columns are added afterwards. */
void
node_begin_source(BatchNode *node, Relation relation, TupleTableSlot *slot,
				  int scanrelid)
{
	HeapSource *source = &node->source;
	VectorContext *context = &node->context;

	node->relation = relation;
	node->counters = &node->own_counters;
	source->relation = relation;
	source->batch = batch_create(&heap_batch_ops, RelationGetDescr(relation),
								 RelationGetRelid(relation), slot);
	source->counters = node->counters;
	context->batch = source->batch;
	context->econtext = node->css.ss.ps.ps_ExprContext;
	context->planstate = &node->css.ss.ps;
	context->scanrelid = scanrelid;
	context->parameter_memory = AllocSetContextCreate(CurrentMemoryContext,
													  "BatchParameters",
													  ALLOCSET_SMALL_SIZES);
}

/* To be called when all expressions are compiled. */
void
node_plan_columns(BatchNode *node)
{
	deform_plan(node->source.batch);
	node->source.batch->prefetch_bytes = deform_prefetch_bytes(node->source.batch);
}

static ParallelTableScanDesc
shared_scan(BatchNode *node)
{
	return (ParallelTableScanDesc) ((char *) node->shared +
									node->shared->scan_offset);
}

/* Begin the table scan, of all of the table or of this process's share. */
static void
start_scan(BatchNode *node)
{
	Snapshot	snapshot = node->css.ss.ps.state->es_snapshot;

	if (node->scan == NULL)
		node->scan = node->shared != NULL ?
			table_beginscan_parallel(node->relation, shared_scan(node)) :
			table_beginscan(node->relation, snapshot, 0, NULL);
	heap_source_start(&node->source, node->scan, node->scan->rs_snapshot);
}

/* Fetch the next batch, of rows_max rows at most; false at the end of the table. */
bool
node_next_batch(BatchNode *node, int rows_max)
{
	if (node->is_shut_down)
		return false;
	node->source.counters = node->counters;
	if (!node->source.is_started)
		start_scan(node);
	return heap_source_next(&node->source, rows_max);
}

/* Back to the first page; parameters are read again. */
void
node_rescan(BatchNode *node)
{
	if (node->original != NULL)
	{
		if (node->css.ss.ps.chgParam != NULL)
			UpdateChangedParamSet(node->original, node->css.ss.ps.chgParam);
		if (node->original->chgParam == NULL)
			ExecReScan(node->original);
		return;
	}
	node->is_shut_down = false;
	node->source.batch->ops->release(node->source.batch);
	heap_source_stop(&node->source);
	vector_reset_parameters(&node->context);
	if (node->scan != NULL)
		table_rescan(node->scan, NULL);
}

void
node_end(BatchNode *node)
{
	if (node->original != NULL)
	{
		ExecEndNode(node->original);
		return;
	}
	node->source.batch->ops->release(node->source.batch);
	heap_source_stop(&node->source);
	if (node->scan != NULL)
		table_endscan(node->scan);
	node->scan = NULL;
}

/* The figures of this process and of its workers. */
void
node_explain_counters(BatchNode *node, ExplainState *es)
{
	BatchCounters sum = node->own_counters;

	if (node->original != NULL)
	{
		if (batchexec_explain)
			ExplainPropertyText("Not Batched", node->obstacle, es);
		return;
	}
	counters_add(&sum, &node->worker_counters);
	counters_explain(&sum, es);
}
