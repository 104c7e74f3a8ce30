/*
 * agg_memory.c
 *	  What a BatchAgg does where its groups exceed the memory for a hash table.
 *
 * Rows of groups that do not fit wait in files (agg_files.c), and so do distinct values that do not
 * (distinct_files.c).  Where there is more than one table of groups, or where these have distinct
 * values, the stock plan takes over: no group has been returned by then.
 */
#include "postgres.h"

#include "executor/executor.h"

#include "agg_state.h"

/* Do groups, and values that may still become more, exceed the memory? */
bool
agg_exceeds_memory(const BatchAggState *state, uint64 entries)
{
	Size		bytes = MemoryContextMemAllocated(state->memory, true);
	Aggregate  *aggregate;
	int			number = 0;

	while ((aggregate = agg_next_distinct(state, &number)) != NULL)
		if (!distinct_files_are_written(aggregate))
			bytes += group_table_bytes(aggregate->distinct);
	return entries > 1 && bytes > state->memory_limit_bytes;
}

/* Let other values than those in memory go to files; false where that was done, or does not help. */
bool
agg_begin_distinct_files(BatchAggState *state)
{
	Aggregate  *aggregate;
	bool		has_begun = false;
	int			number = 0;

	if (!state->has_distinct || state->set_count > 1 ||
		MemoryContextMemAllocated(state->memory, true) > state->memory_limit_bytes)
		return false;
	while ((aggregate = agg_next_distinct(state, &number)) != NULL)
		if (!distinct_files_are_written(aggregate))
		{
			distinct_files_begin(aggregate);
			has_begun = true;
		}
	return has_begun;
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
	node->obstacle = "the groups exceed the memory for a hash table";
	/* A worker reports only nodes that its leader knows.  EXPLAIN shows the node below once. */
	if (!IsParallelWorker() && node->child == NULL)
		node->css.custom_ps = list_make1(node->original);
	MemoryContextSwitchTo(caller);
}
