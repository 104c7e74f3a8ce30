/*
 * agg_memory.c
 *	  What a BatchAgg does where its groups exceed the memory for a hash table.
 *
 * Rows of groups that do not fit wait in files (agg_files.c).  Where there is more than one
 * table of groups, or one of distinct values, the stock plan takes over: no group has been
 * returned by then.
 */
#include "postgres.h"

#include "executor/executor.h"

#include "agg_state.h"

bool
agg_exceeds_memory(const BatchAggState *state, uint64 entries)
{
	return entries > 1 &&
		MemoryContextMemAllocated(state->memory, true) > state->memory_limit_bytes;
}

static TupleTableSlot *
next_child_row(void *child)
{
	return ExecProcNode(child);
}

static void
rescan_child(void *child)
{
	ExecReScan(child);
}

/* The original plan over the rows of the node below, from the first on. */
static Plan *
original_over_child(BatchAggState *state)
{
	const CustomScan *plan = castNode(CustomScan, state->node.css.ss.ps.plan);
	PlanState  *child = &state->node.child->css.ss.ps;

	ExecReScan(child);
	state->relay = (RelaySource) {
		.next = next_child_row, .rescan = rescan_child, .owner = child,
		.descriptor = ExecGetResultType(child),
	};
	return node_link_plan(linitial(plan->custom_plans),
						  relay_plan(&state->relay, plan->scan.plan.lefttree), NULL);
}

/* The groups don't fit: run the original plan, which can spill, from the start. */
void
agg_fall_back_to_original(BatchAggState *state)
{
	BatchNode  *node = &state->node;
	EState	   *estate = node->css.ss.ps.state;
	CustomScan *plan = (CustomScan *) node->css.ss.ps.plan;
	MemoryContext caller = MemoryContextSwitchTo(estate->es_query_cxt);
	Plan	   *original = linitial(plan->custom_plans);

	agg_reset_states(state);
	if (node->child != NULL)
		original = original_over_child(state);
	else
		node_end(node);
	node->original = ExecInitNode(original, estate,
								  estate->es_top_eflags & ~EXEC_FLAG_EXPLAIN_ONLY);
	node->obstacle = state->has_distinct ?
		"the distinct values exceed the memory for a hash table" :
		"the groups exceed the memory for a hash table";
	/* A worker reports only nodes that its leader knows.  EXPLAIN shows the node below once. */
	if (!IsParallelWorker() && node->child == NULL)
		node->css.custom_ps = list_make1(node->original);
	MemoryContextSwitchTo(caller);
}
