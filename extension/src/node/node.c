/*
 * node.c
 *	  What all custom scan nodes share: begin, next batch, rescan and end.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "foreign/fdwapi.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "heap_source.h"
#include "node.h"

/* A copy of an aggregation, of a Sort, or of a hash join, over these plans. */
static Plan *
link_plan(const Plan *plan, Plan *outer, Plan *inner)
{
	Plan	   *copy;

	if (IsA(plan, Agg))
	{
		copy = (Plan *) makeNode(Agg);
		memcpy(copy, plan, sizeof(Agg));
		if (plan->lefttree != NULL)
		{
			copy->lefttree = (Plan *) makeNode(Sort);
			memcpy(copy->lefttree, plan->lefttree, sizeof(Sort));
			copy->lefttree->lefttree = outer;
			return copy;
		}
	}
	else if (IsA(plan, Sort))
	{
		copy = (Plan *) makeNode(Sort);
		memcpy(copy, plan, sizeof(Sort));
	}
	else
	{
		copy = (Plan *) makeNode(HashJoin);
		memcpy(copy, plan, sizeof(HashJoin));
		copy->righttree = (Plan *) makeNode(Hash);
		memcpy(copy->righttree, plan->righttree, sizeof(Hash));
		copy->righttree->lefttree = inner;
	}
	copy->lefttree = outer;
	return copy;
}

/*
 * The original of a node.  Over batched nodes it is kept without them, as a plan
 * is copied whole: a chain of joins that are kept twice each would double at each.
 */
static Plan *
original_plan(const CustomScan *plan)
{
	const Plan *kept;

	/* Of rows that are gathered, the node that makes them. */
	if (plan->custom_plans == NIL)
		return plan->scan.plan.lefttree;
	kept = linitial(plan->custom_plans);
	if (plan->scan.plan.lefttree == NULL)
		return (Plan *) kept;
	return link_plan(kept, plan->scan.plan.lefttree, plan->scan.plan.righttree);
}

/* Start the original plan in a node's place where there is an obstacle to batches.  Returns whether there is. */
static bool
begin_original(BatchNode *node, const char *obstacle, EState *estate, int eflags)
{
	CustomScan *plan = (CustomScan *) node->css.ss.ps.plan;
	PlanState  *original;
	bool		is_fixed;

	node->obstacle = obstacle;
	if (obstacle == NULL)
		return false;
	original = ExecInitNode(original_plan(plan), estate, eflags);
	node->original = original;
	node->css.custom_ps = list_make1(original);
	/* The node above reads the original's slots. */
	node->css.ss.ps.resultops = ExecGetResultSlotOps(original, &is_fixed);
	node->css.ss.ps.resultopsfixed = is_fixed;
	node->css.ss.ps.resultopsset = true;
	return true;
}

/*
 * Where batching is off, or can't be done in this transaction, start the
 * original plan in its place.  Returns whether it did.
 */
bool
node_begin_original(BatchNode *node, EState *estate, int eflags)
{
	return begin_original(node, batching_runtime_obstacle(estate), estate, eflags);
}

/* The same where there is an obstacle of the node's own. */
bool
node_begin_original_if(BatchNode *node, const char *obstacle, EState *estate, int eflags)
{
	const char *general = batching_runtime_obstacle(estate);

	return begin_original(node, general != NULL ? general : obstacle, estate, eflags);
}

/* Make room for the tables that a node reads. */
void
node_begin_inputs(BatchNode *node, int input_count)
{
	Assert(input_count > 0 && node->inputs == NULL);
	node->counters = &node->own_counters;
	node->inputs = palloc0(sizeof(BatchInput) * input_count);
	node->input_count = input_count;
	node->input = &node->inputs[0];
}

/*
 * Set up the source of batches of a table that the stock server reads with this scan;
 * columns are added afterwards.  Of a foreign table's scan, only the rows are of interest.
 */
void
node_begin_input(BatchNode *node, BatchInput *input, Relation relation,
				 TupleTableSlot *slot, const Plan *scan, int eflags)
{
	input->relation = relation;
	input->source = source_to_read(relation)->create(relation, slot);
	if (IsA(scan, ForeignScan))
		input->source->foreign_scan =
			castNode(ForeignScanState, ExecInitNode((Plan *) scan, node->css.ss.ps.state, eflags));
	if (input->source->ops == &heap_source_ops &&
		SCAN_IS_READ_ONLY(node->css.ss.ps.state, ((const Scan *) scan)->scanrelid))
		heap_source_set_read_only(input->source);
	node_begin_context(node, &input->context, input->source->batch,
					   ((const Scan *) scan)->scanrelid);
}

/* Prepare for expressions over a batch, in the node's own expression context. */
void
node_begin_context(BatchNode *node, VectorContext *context, TupleBatch *batch,
				   int scanrelid)
{
	context->batch = batch;
	context->econtext = node->css.ss.ps.ps_ExprContext;
	context->planstate = &node->css.ss.ps;
	context->scanrelid = scanrelid;
	context->parameter_memory = AllocSetContextCreate(CurrentMemoryContext,
													  "BatchParameters",
													  ALLOCSET_SMALL_SIZES);
}

/* Start the batched node below a batched node. */
BatchNode *
node_begin_child(BatchNode *node, Plan *plan, EState *estate, int eflags)
{
	PlanState  *child = ExecInitNode(plan, estate, eflags);

	outerPlanState(&node->css) = child;
	if (((BatchNode *) child)->original != NULL)
		elog(ERROR, "batched nodes of a plan disagree on batched execution");
	return (BatchNode *) child;
}

/* Have the node below fill its output with the next batch, as ExecProcNode would. */
bool
node_pull(BatchNode *child)
{
	PlanState  *planstate = &child->css.ss.ps;
	bool		found;

	CHECK_FOR_INTERRUPTS();
	if (planstate->chgParam != NULL)
		ExecReScan(planstate);
	if (planstate->instrument != NULL)
		InstrStartNode(planstate->instrument);
	Assert(child->original == NULL && child->produce != NULL);
	found = child->produce(child);
	Assert(!found || selection_is_valid(&child->output->selection, child->output->row_count));
	if (planstate->instrument != NULL)
		InstrStopNode(planstate->instrument,
					  found ? child->output->selection.count : 0);
	return found;
}

/* Has the node below a row?  It evaluates no more of them than it has to. */
bool
node_peek(BatchNode *child)
{
	PlanState  *planstate = &child->css.ss.ps;
	bool		found;

	if (planstate->chgParam != NULL)
		ExecReScan(planstate);
	if (planstate->instrument != NULL)
		InstrStartNode(planstate->instrument);
	found = child->peek(child);
	if (planstate->instrument != NULL)
		InstrStopNode(planstate->instrument, 0);
	return found;
}

/* Lay out the columns that were asked for: before the first batch, when all are known. */
static void
plan_columns(const BatchNode *node, BatchInput *input)
{
	MemoryContext caller = MemoryContextSwitchTo(node->css.ss.ps.state->es_query_cxt);

	if (input->source->ops->plan_columns != NULL)
		input->source->ops->plan_columns(input->source);
	input->columns_are_planned = true;
	MemoryContextSwitchTo(caller);
}

static ParallelTableScanDesc
shared_scan(const BatchNode *node, const BatchInput *input)
{
	char	   *shared = (char *) node->shared;
	const Size *offsets = (const Size *) (shared + node->shared->scan_offsets);
	Assert(input >= node->inputs && input < node->inputs + node->input_count);

	return (ParallelTableScanDesc) (shared + offsets[input - node->inputs]);
}

/* Begin a table scan, of all of the table or of this process's share. */
static void
start_scan(BatchNode *node, BatchInput *input)
{
	if (!input->columns_are_planned)
		plan_columns(node, input);
	input->source->ops->start(input->source, node->css.ss.ps.state->es_snapshot,
							  node->shared != NULL ? shared_scan(node, input) : NULL);
	input->source->is_started = true;
}

/* The next table to read.  Processes that share tables begin with different ones. */
static BatchInput *
next_input(const BatchNode *node)
{
	int			first = node->shared != NULL ? ParallelWorkerNumber + 1 : 0;

	Assert(first >= 0 && node->inputs_done >= 0 && node->inputs_done < node->input_count);
	return &node->inputs[(first + node->inputs_done) % node->input_count];
}

/* The next batch of one table; false at its end. */
static bool
next_of_input(BatchNode *node, BatchInput *input, int rows_max)
{
	BatchSource *source = input->source;

	node->input = input;
	source->counters = node->counters;
	if (!source->is_started)
		start_scan(node, input);
	if (!source->ops->next(source, rows_max))
	{
		source->batch->ops->release(source->batch);
		return false;
	}
	Assert(source->batch->row_count > 0 && source->batch->row_count <= Min(rows_max, BATCH_ROWS_MAX));
	counters_note_batch(node->counters, source->batch->row_count);
	return true;
}

static void
stop_input(BatchInput *input)
{
	input->source->batch->ops->release(input->source->batch);
	input->source->ops->stop(input->source);
	input->source->is_started = false;
}

/* Fetch the next batch, of rows_max rows at most; false at the end of all tables. */
bool
node_next_batch(BatchNode *node, int rows_max)
{
	Assert(rows_max > 0 && rows_max <= BATCH_ROWS_MAX);
	if (node->is_shut_down)
		return false;
	if (node->child != NULL)
		return node_pull(node->child);
	for (; node->inputs_done < node->input_count; node->inputs_done++)
		if (next_of_input(node, next_input(node), rows_max))
			return true;
	return false;
}

/* Let go of all pages and scans. */
void
node_stop_scans(BatchNode *node)
{
	if (node->child != NULL)
		return;
	for (int i = 0; i < node->input_count; i++)
		stop_input(&node->inputs[i]);
}

/* Have a foreign table's wrapper begin anew. */
static void
rescan_foreign(const BatchNode *node, ForeignScanState *scan)
{
	if (node->css.ss.ps.chgParam != NULL)
		UpdateChangedParamSet(&scan->ss.ps, node->css.ss.ps.chgParam);
	ExecReScan(&scan->ss.ps);
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
	node->inputs_done = 0;
	if (node->child != NULL)
	{
		vector_reset_parameters(&node->inputs[0].context);
		if (node->child->css.ss.ps.chgParam == NULL)
			ExecReScan(&node->child->css.ss.ps);
		return;
	}
	for (int i = 0; i < node->input_count; i++)
	{
		BatchInput *input = &node->inputs[i];

		input->source->batch->ops->release(input->source->batch);
		if (input->source->foreign_scan != NULL)
			rescan_foreign(node, input->source->foreign_scan);
		input->source->ops->rescan(input->source);
		input->source->is_started = false;
		vector_reset_parameters(&input->context);
	}
}

/* End the scans of foreign tables, which their sources have let go of. */
static void
end_foreign_scans(BatchNode *node)
{
	for (int i = 0; i < node->input_count; i++)
	{
		BatchSource *source = node->inputs[i].source;

		if (source != NULL && source->foreign_scan != NULL)
			ExecEndNode(&source->foreign_scan->ss.ps);
	}
}

void
node_end(BatchNode *node)
{
	if (node->original != NULL)
		ExecEndNode(node->original);
	else
	{
		node_stop_scans(node);
		end_foreign_scans(node);
	}
	if (node->child != NULL)
		ExecEndNode(&node->child->css.ss.ps);
}

/*
 * Have a foreign table's wrapper describe its scan.  A node of several tables shows no
 * such lines: they do not name their table.
 */
static void
explain_foreign(const BatchNode *node, ExplainState *es)
{
	ForeignScanState *scan = node->input_count == 1 ? node->input->source->foreign_scan : NULL;

	if (scan != NULL && scan->fdwroutine->ExplainForeignScan != NULL)
		scan->fdwroutine->ExplainForeignScan(scan, es);
}

/* Show what the node reads, and the figures of this process and of its workers. */
void
node_explain(BatchNode *node, ExplainState *es)
{
	BatchCounters sum = node->own_counters;

	if (node->original != NULL)
	{
		if (batchexec_explain)
			ExplainPropertyText("Not Batched", node->obstacle, es);
		return;
	}
	counters_add(&sum, &node->worker_counters);
	if (node->child != NULL)
	{
		counters_explain_compaction(&sum, es);
		return;
	}
	explain_foreign(node, es);
	/* The counters of workers that do not share the scan are not known here. */
	if (sum.batches == 0 && node->css.ss.ps.worker_instrument != NULL &&
		es->format == EXPLAIN_FORMAT_TEXT)
		return;
	counters_explain(&sum, es);
}
