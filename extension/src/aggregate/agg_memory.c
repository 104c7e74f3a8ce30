/*
 * agg_memory.c
 *	  What a BatchAgg does where its groups exceed the memory for a hash table.
 *
 * It reads its tables again, several times: each pass makes the groups of a part of the
 * hashes, and returns them.  Reading in batches costs less than writing rows to files and
 * reading these.  As with such files, the arguments of an aggregate are evaluated in the pass
 * of their group, so a LIMIT may be reached before one that fails.
 *
 * The groups of the first pass are not returned before all of them are known to fit, so until
 * then the stock plan can take over: it does where the passes would be many, where groups have
 * an order, and where there is more than one table of them.
 */
#include "postgres.h"

#include "executor/executor.h"

#include "agg_state.h"
#include "cost.h"

/* Bits of a hash that can be spent on passes: the others find a group's bucket. */
#define PASS_BITS_MAX	16

/* Memory that the groups of a part are given, next to the mean of the parts. */
#define MEMORY_MARGIN	1.1

bool
agg_exceeds_memory(const BatchAggState *state, uint64 entries)
{
	return entries > 1 &&
		MemoryContextMemAllocated(state->memory, true) > state->memory_limit_bytes;
}

/* Can the groups be made in passes?  What a foreign table holds may change from one to the next. */
static bool
has_passes(const BatchAggState *state)
{
	for (int i = 0; i < state->node.input_count && state->node.child == NULL; i++)
		if (state->node.inputs[i].source->foreign_scan != NULL)
			return false;
	return state->set_count == 1 && state->key_count > 0 && state->tables[0]->left_out == 0 &&
		state->order == NULL && state->node.child == NULL && !state->is_partial;
}

/*
 * In how many parts do the groups fit, if their memory grows as it did so far?  They grow with
 * the rows, up to the number that the planner has estimated.
 */
static double
parts_expected(const BatchAggState *state, uint64 entries)
{
	const CustomScan *plan = castNode(CustomScan, state->node.css.ss.ps.plan);
	const Agg  *original = linitial_node(Agg, plan->custom_plans);
	double		parts = original->plan.lefttree->plan_rows / Max(state->rows_taken, 1);

	if (!state->keeps_values)
		parts = Min(parts, (double) original->numGroups / entries);
	return MEMORY_MARGIN * Max(parts, 1) * MemoryContextMemAllocated(state->memory, true) /
		state->memory_limit_bytes;
}

/* Bits that leave each pass groups that fit. */
static int
bits_needed(const BatchAggState *state, uint64 entries)
{
	/* A smaller pass has no estimate: it takes half of its groups. */
	const double parts = state->pass_bits == 0 ? parts_expected(state, entries) : 0;
	int			bits = state->pass_bits + 1;

	while (bits < PASS_BITS_MAX && (1 << bits) < parts)
		bits++;
	return bits;
}

/* Before the first row is read, of a scan or of a rescan. */
void
agg_begin_first_pass(BatchAggState *state)
{
	const Instrumentation *instrument = state->node.css.ss.ps.instrument;

	state->rows_removed = instrument != NULL ? instrument->nfiltered2 : 0;
	state->rows_taken = 0;
	state->pass = 0;
	state->input_is_done = false;
}

/* Start reading at the first row again. */
static void
restart_input(BatchAggState *state)
{
	state->rows_taken = 0;
	state->input_is_done = false;
	node_rescan(&state->node);
}

/*
 * So many groups of this pass don't fit: begin one of fewer.  False where the stock plan has to
 * take over, which it can do before the first group is returned.
 */
bool
agg_begin_smaller_pass(BatchAggState *state, uint64 entries)
{
	Instrumentation *instrument = state->node.css.ss.ps.instrument;
	int			bits;

	if (!has_passes(state))
		return false;
	bits = bits_needed(state, entries);
	if (state->pass == 0 && bits > AGG_PASS_BITS_MAX)
		return false;
	/* Of keys whose hashes are that much alike, the rest has to fit. */
	if (bits > PASS_BITS_MAX)
		return true;
	/* Its rows are removed anew. */
	if (state->pass == 0 && instrument != NULL)
		instrument->nfiltered2 = state->rows_removed;
	state->pass <<= bits - state->pass_bits;
	state->pass_bits = bits;
	agg_reset_states(state);
	restart_input(state);
	return true;
}

/* Leave the rows of this pass in the selection, by the upper bits of their hashes. */
void
agg_select_pass(BatchAggState *state, Selection *selection, uint16 *rows)
{
	const uint32 *hashes = state->tables[0]->row_hashes;
	const int	shift = 32 - state->pass_bits;
	const uint32 pass = state->pass;
	int			count = 0;

	state->rows_taken += selection->count;
	if (state->pass_bits == 0)
		return;
	FOR_SELECTED(row, selection,
				 rows[count] = row;
				 count += (hashes[row] >> shift) == pass);
	selection->count = count;
	selection->rows = rows;
}

/* Begin the next pass; false after the last one. */
bool
agg_begin_next_pass(BatchAggState *state)
{
	if (state->pass + 1 == UINT32_C(1) << state->pass_bits)
		return false;
	state->pass++;
	restart_input(state);
	return true;
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
