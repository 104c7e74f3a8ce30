/*
 * join.c
 *	  BatchJoin: a hash join whose outer side comes in batches.
 *
 * The inner side is read into a hash table (join_inner.c).  The outer node's batches
 * are probed a column at a time, and the pairs that match make batches in turn,
 * for a batched node above, or rows.  Where the inner rows exceed the memory for
 * a hash table, both sides are joined in rounds (join_rounds.c).
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"

#include "join_state.h"
#include "permission.h"
#include "statistics.h"

/* Memory that the hash table is given at once, unless it asks for more. */
#define JOIN_BLOCK_BYTES_MAX	(64 * 1024)

static int
private_integer(const CustomScan *plan, int which)
{
	return linitial_int(list_nth(plan->custom_private, which));
}

static GroupKey *
compile_keys(VectorContext *context, List *keys)
{
	GroupKey   *compiled = palloc0(sizeof(GroupKey) * list_length(keys));
	ListCell   *cell;
	int			value_count = 0;

	foreach(cell, keys)
		group_key_compile(&compiled[foreach_current_index(cell)], context,
						  lfirst(cell), &value_count);
	return compiled;
}

/* A batch whose rows are made by these operations. */
static TupleBatch *
make_batch(EState *estate, const TupleBatchOps *ops, TupleDesc descriptor, void *source)
{
	TupleTableSlot *slot = ExecInitExtraTupleSlot(estate, descriptor, &TTSOpsVirtual);
	TupleBatch *batch = batch_create(ops, descriptor, slot);

	batch->source = source;
	return batch;
}

/* As node_begin_context, in an expression context of their own. */
static void
begin_keys(BatchJoinState *state, VectorContext *context, TupleBatch *batch, int scanrelid)
{
	PlanState  *planstate = &state->node.css.ss.ps;
	ExprContext *of_node = planstate->ps_ExprContext;

	node_begin_context(&state->node, context, batch, scanrelid);
	ExecAssignExprContext(planstate->state, planstate);
	context->econtext = planstate->ps_ExprContext;
	planstate->ps_ExprContext = of_node;
}

static void
begin_columns(BatchJoinState *state, const CustomScan *plan)
{
	JoinBatch  *pairs = &state->pairs;
	const List *flags = list_nth(plan->custom_private, BATCH_JOIN_INNER_FLAGS);
	const List *attributes = list_nth(plan->custom_private, BATCH_JOIN_ATTRIBUTES);

	pairs->column_count = list_length(flags);
	pairs->columns = palloc0(sizeof(JoinColumn) * (pairs->column_count + 1));
	for (int i = 0; i < pairs->column_count; i++)
	{
		pairs->columns[i].is_inner = list_nth_int(flags, i) != 0;
		pairs->columns[i].attno = (AttrNumber) list_nth_int(attributes, i);
	}
	vector_allocate(&pairs->datums);
}

/* The stock server checks this where it prepares the clauses. */
static void
check_permissions(List *condition)
{
	ListCell   *cell;

	foreach(cell, condition)
		permission_check_function(lfirst_node(OpExpr, cell)->opfuncid, OBJECT_FUNCTION);
}

static bool
holds_parameter(Node *node, void *context)
{
	if (node == NULL)
		return false;
	return IsA(node, Param) || expression_tree_walker(node, holds_parameter, context);
}

static bool
keys_may_raise(const GroupKey *keys, int count)
{
	for (int i = 0; i < count; i++)
		if (vector_may_raise(keys[i].expression))
			return true;
	return false;
}

/* Is an outer row without a match returned? */
static bool
keeps_unmatched(const BatchJoinState *state)
{
	return state->type == JOIN_LEFT || state->type == JOIN_ANTI || state->type == JOIN_FULL;
}

/* Is an inner one? */
static bool
returns_inner(const BatchJoinState *state)
{
	return state->type == JOIN_RIGHT || state->type == JOIN_FULL;
}

static bool produce_pairs(BatchNode *node);

static void
begin_join(CustomScanState *css, EState *estate, int eflags)
{
	BatchJoinState *state = (BatchJoinState *) css;
	const CustomScan *plan = (const CustomScan *) css->ss.ps.plan;
	TupleDesc	inner_descriptor;
	BatchNode  *outer;
	List	   *keys;

	if (node_begin_original(&state->node, estate, eflags))
		return;
	outer = node_begin_child(&state->node, plan->scan.plan.lefttree, estate, eflags);
	join_inner_begin(state, plan->scan.plan.righttree, estate, eflags);
	inner_descriptor = state->inner_rows->descriptor;
	state->outer = outer;
	state->type = private_integer(plan, BATCH_JOIN_TYPE);
	begin_columns(state, plan);
	state->pairs.outer = outer->output;
	state->pairs.output = make_batch(estate, &join_batch_ops,
									 css->ss.ss_ScanTupleSlot->tts_tupleDescriptor,
									 &state->pairs);
	state->node.output = state->pairs.output;
	state->node.produce = produce_pairs;
	state->inner_batch = make_batch(estate, &datum_batch_ops, inner_descriptor,
									state->inner_rows);

	check_permissions(list_nth(plan->custom_exprs, BATCH_JOIN_CONDITION));
	keys = list_nth(plan->custom_exprs, BATCH_JOIN_OUTER_KEYS);
	begin_keys(state, &state->outer_context, outer->output,
			   private_integer(plan, BATCH_JOIN_OUTER_RELID));
	begin_keys(state, &state->inner_context, state->inner_batch, INDEX_VAR);
	node_begin_context(&state->node, &state->pair_context, state->pairs.output, INDEX_VAR);
	state->clauses = qual_compile(&state->pair_context,
								  list_nth(plan->custom_exprs, BATCH_JOIN_CLAUSES));
	/* Blocks that are small: what is unused of the last one counts, too. */
	state->memory = AllocSetContextCreate(CurrentMemoryContext, "BatchJoin", ALLOCSET_DEFAULT_MINSIZE,
										  ALLOCSET_DEFAULT_INITSIZE, JOIN_BLOCK_BYTES_MAX);
	state->table =
		join_table_create(state->memory,
						  compile_keys(&state->inner_context,
									   list_nth(plan->custom_exprs, BATCH_JOIN_INNER_KEYS)),
						  compile_keys(&state->outer_context, keys),
						  list_length(keys), inner_descriptor);
	state->inner_keys_vary =
		holds_parameter(list_nth(plan->custom_exprs, BATCH_JOIN_INNER_KEYS), NULL);
	state->outer_keys_may_raise = keys_may_raise(state->table->outer_keys, list_length(keys));
	state->table->keeps_all = returns_inner(state);
	state->table->keeps_outer = keeps_unmatched(state);
	if (JOIN_KEEPS_ONE(state->type))
		join_table_keep_one(state->table);
	state->memory_limit_bytes = get_hash_memory_limit();
	state->scan = outer->css.methods->CustomName == batch_join_methods.CustomName ? ((BatchJoinState *) outer)->scan : outer;
	state->node.may_raise = state->outer_keys_may_raise || qual_count_raising(state->clauses) > 0;
	state->node.subtree_may_raise = state->node.may_raise || outer->subtree_may_raise;
}

/* Before the first batch: all that is asked of the pairs is known now. */
static void
plan_columns(BatchJoinState *state, bool returns_rows)
{
	MemoryContext caller;

	if (state->columns_are_planned)
		return;
	caller = MemoryContextSwitchTo(state->node.css.ss.ps.state->es_query_cxt);
	if (returns_rows)
		join_batch_plan_rows(&state->pairs);
	join_batch_plan(&state->pairs);
	join_rounds_plan_outer(state);
	compaction_begin(&state->compaction, &state->kept);
	state->columns_are_planned = true;
	MemoryContextSwitchTo(caller);
}

/*
 * Have the rows of the outer node's batch wait for more, where they are few.  Not where the
 * scan may be stopped, or may raise an error that an earlier row has to come before.
 */
static bool
outer_may_wait(BatchJoinState *state)
{
	return !state->outer->subtree_may_raise && state->scan->rows_asked >= BATCH_ROWS_MAX &&
		compaction_take(&state->compaction, state->node.css.ss.ps.state, &state->node.own_counters);
}

/* The next outer batch of the node, or one of the rows of several that are sparse. */
static bool
pull_from_node(BatchJoinState *state)
{
	Compaction *compaction = &state->compaction;

	compaction_hide(compaction);
	if (state->outer_is_held)
	{
		state->outer_is_held = false;
		batch_forget_columns(state->outer->output);
		return true;
	}
	while (!state->outer_has_ended)
	{
		state->outer_has_ended = !node_pull(state->outer);
		if (state->outer_has_ended || outer_may_wait(state))
			continue;
		if (!compaction_has_rows(compaction))
			return true;
		state->outer_is_held = true;
		break;
	}
	if (!compaction_has_rows(compaction))
		return false;
	compaction_show(compaction, &state->node.own_counters);
	return true;
}

/* The next outer batch of the node, or of a round's file. */
static bool
pull_outer(BatchJoinState *state)
{
	return state->rounds != NULL && state->rounds->current != state->rounds->first ?
		join_rounds_next_outer(state) : pull_from_node(state);
}

/*
 * Fill the hash table.  As in the stock server, the outer side is tried first
 * where that is cheap: the inner one need not be read if it is empty.
 */
static void
fill_table(BatchJoinState *state)
{
	const Plan *outer = state->node.css.ss.ps.plan->lefttree;
	const Plan *inner = state->node.css.ss.ps.plan->righttree;

	if (!returns_inner(state) &&
		(keeps_unmatched(state) || outer->startup_cost < inner->total_cost))
	{
		if (state->outer->peek != NULL)
			state->is_finished = !node_peek(state->outer);
		else
		{
			state->has_outer = state->outer_is_fresh = pull_outer(state);
			state->is_finished = !state->has_outer;
		}
		if (state->is_finished)
			return;
	}
	state->is_filled = true;
	join_inner_read(state);
	if (state->rounds == NULL && state->table->row_count == 0 && !keeps_unmatched(state))
		state->is_finished = true;
}

/* Keep the outer rows that have a match, or those that have none. */
static void
select_outer(BatchJoinState *state, bool matched)
{
	TupleBatch *outer = state->outer->output;
	Selection  *selection = &outer->selection;
	uint16	   *rows = outer->selected_rows;
	int			count = 0;

	FOR_SELECTED(row, selection,
				 rows[count] = row;
				 count += ((state->matches[row] != NULL) == matched));
	Assert(count >= 0 && count <= selection->count);
	if (count < selection->count)
	{
		selection->count = count;
		selection->rows = rows;
	}
}

/* Look up what the rows of the outer batch match.  Their keys are evaluated for an error's sake, too. */
static void
probe(BatchJoinState *state)
{
	uint16		numbers[BATCH_ROWS_MAX];
	Selection	present;

	Assert(selection_is_valid(&state->outer->output->selection, state->outer->output->row_count));
	FOR_SELECTED(row, &state->outer->output->selection, state->matches[row] = NULL);
	if (state->table->row_count == 0 && state->rounds == NULL && !state->outer_keys_may_raise)
		return;
	ResetExprContext(state->outer_context.econtext);
	present = join_table_hash_outer(state->table, &state->outer_context, numbers);
	if (state->rounds != NULL)
		join_rounds_write_outer(state, &present, numbers);
	join_table_probe(state->table, &present, numbers, state->matches);
}

/* Have the rows of an outer batch wait, where one of their keys might raise an error. */
static void
have_outer_wait(BatchJoinState *state)
{
	if (!node_is_exact(&state->node, state->scan) || !state->outer_keys_may_raise)
		return;
	ResetExprContext(state->outer_context.econtext);
	if (join_table_outer_keys_fail(state->table, &state->outer_context))
		exact_rows_take(&state->outer_waiting, state->outer->output, 0);
}

/* Take the next outer batch, or row of one, and look up what it matches; false at the end. */
static bool
next_outer(BatchJoinState *state)
{
	TupleBatch *outer = state->outer->output;

	do
	{
		if (!exact_rows_wait(&state->outer_waiting))
		{
			if (!state->outer_is_fresh && !pull_outer(state))
				return false;
			state->outer_is_fresh = false;
			have_outer_wait(state);
		}
		if (exact_rows_wait(&state->outer_waiting))
			batch_select_row(outer, exact_rows_next(&state->outer_waiting));
		probe(state);
		if (state->type != JOIN_LEFT && state->type != JOIN_FULL)
			select_outer(state, state->type != JOIN_ANTI);
	} while (outer->selection.count == 0);
	Assert(outer->selection.count > 0 && outer->selection.count <= BATCH_ROWS_MAX);
	state->outer_at = 0;
	state->match = NULL;
	state->is_within_row = false;
	return true;
}

/* Each outer row once. */
static int
pair_outer_alone(BatchJoinState *state)
{
	const Selection *selection = &state->outer->output->selection;
	JoinBatch  *pairs = &state->pairs;
	int			count = 0;

	FOR_SELECTED(row, selection,
				 pairs->outer_rows[count] = row;
				 pairs->inner_rows[count++] = NULL);
	return count;
}

/* Outer rows with each of their matches, as many as are wanted. */
static int
pair_with_matches(BatchJoinState *state)
{
	const Selection *selection = &state->outer->output->selection;
	JoinBatch  *pairs = &state->pairs;
	int			count = 0;

	while (count < BATCH_ROWS_MAX && state->outer_at < selection->count)
	{
		const int	row = selection->rows != NULL ? selection->rows[state->outer_at] :
			state->outer_at;

		if (!state->is_within_row)
			state->match = state->matches[row];
		Assert(row < state->outer->output->row_count);
		Assert(state->match != NULL || state->type == JOIN_LEFT || state->type == JOIN_FULL);
		pairs->outer_rows[count] = row;
		pairs->inner_rows[count++] = state->match;
		if (state->match != NULL)
			state->match = state->match->next;
		state->is_within_row = (state->match != NULL);
		if (!state->is_within_row)
			state->outer_at++;
	}
	return count;
}

/* Make the next pairs of the outer batch; 0: there are no more. */
static int
next_pairs(BatchJoinState *state)
{
	const Selection *selection = &state->outer->output->selection;
	int			count;

	Assert(state->outer_at >= 0);
	Assert(state->has_outer && !state->outer_is_fresh);
	if (state->outer_at >= selection->count)
		return 0;
	if (!JOIN_KEEPS_ONE(state->type))
		return pair_with_matches(state);
	count = pair_outer_alone(state);
	state->outer_at = selection->count;
	return count;
}

/* Inner rows that no outer row matches, as many as are wanted. */
static int
pair_inner_alone(BatchJoinState *state)
{
	JoinBatch  *pairs = &state->pairs;
	int			count = 0;

	Assert(returns_inner(state) && state->pairs.outer_is_null);
	while (count < BATCH_ROWS_MAX)
	{
		pairs->inner_rows[count] = join_table_walk(state->table, &state->walk);
		if (pairs->inner_rows[count] == NULL)
			break;
		count++;
	}
	return count;
}

/* All outer rows of a round are joined, and so may be others in files. */
static void
end_round(BatchJoinState *state)
{
	state->returns_unmatched = state->pairs.outer_is_null = false;
	state->is_finished = state->rounds == NULL || !join_rounds_next(state);
}

/* At the end of the outer side; the table's rows may be returned yet. */
static void
end_outer(BatchJoinState *state)
{
	if (!returns_inner(state))
	{
		end_round(state);
		return;
	}
	Assert(!state->returns_unmatched);
	state->returns_unmatched = state->pairs.outer_is_null = true;
	state->walk = (JoinTableWalk) {.only_unmatched = true};
}

/* The number of the next pairs; 0: another outer batch was taken, or none is left. */
static int
advance(BatchJoinState *state)
{
	int			count = 0;

	if (state->returns_unmatched)
	{
		count = pair_inner_alone(state);
		if (count == 0)
			end_round(state);
		return count;
	}
	if (state->has_outer && !state->outer_is_fresh)
		count = next_pairs(state);
	if (count > 0)
		return count;
	state->has_outer = next_outer(state);
	if (!state->has_outer)
		end_outer(state);
	return 0;
}

/* The next batch of pairs that pass the clauses. */
static bool
produce_pairs(BatchNode *node)
{
	BatchJoinState *state = (BatchJoinState *) node;
	TupleBatch *output = node->output;

	plan_columns(state, false);
	if (!state->is_filled && !state->is_finished)
		fill_table(state);
	while (exact_rows_wait(&state->waiting) || !state->is_finished)
	{
		if (exact_rows_wait(&state->waiting))
			exact_rows_select_next(&state->waiting, state->clauses, output, &node->css.ss.ps);
		else
		{
			const int	count = advance(state);

			if (count == 0)
				continue;
			CHECK_FOR_INTERRUPTS();
			Assert(count > 0 && count <= BATCH_ROWS_MAX);
			batch_start(output, count);
			exact_rows_apply(&state->waiting, state->clauses, output,
							 node_is_exact(node, state->scan), &node->css.ss.ps);
		}
		if (output->selection.count > 0)
			return true;
	}
	return false;
}

static TupleTableSlot *
project(CustomScanState *css, TupleTableSlot *slot)
{
	if (css->ss.ps.ps_ProjInfo == NULL)
		return slot;
	css->ss.ps.ps_ExprContext->ecxt_scantuple = slot;
	return ExecProject(css->ss.ps.ps_ProjInfo);
}

static TupleTableSlot *
exec_join(CustomScanState *css)
{
	BatchJoinState *state = (BatchJoinState *) css;
	const Selection *selection;

	if (state->node.original != NULL)
		return ExecProcNode(state->node.original);
	for (;;)
	{
		TupleTableSlot *slot = css->ss.ss_ScanTupleSlot;
		int			at;

		ResetExprContext(css->ss.ps.ps_ExprContext);
		selection = &state->node.output->selection;
		if (state->has_rows && state->row_next < selection->count)
		{
			at = state->row_next++;
			Assert(at >= 0 && at < selection->count);
			join_batch_store_row(&state->pairs,
								 selection->rows != NULL ? selection->rows[at] : at,
								 slot);
			return project(css, slot);
		}
		state->row_next = 0;
		plan_columns(state, true);
		state->has_rows = produce_pairs(&state->node);
		if (!state->has_rows)
			return NULL;
	}
}

/* Back to the first outer row, with the table as it is or to be filled anew. */
static void
restart(BatchJoinState *state, bool inner_has_changed)
{
	PlanState  *inner = innerPlanState(&state->node.css);

	if (inner_has_changed || !state->is_filled)
	{
		join_table_reset(state->table);
		state->inner_rows->row_count = 0;
		state->is_filled = false;
		if (inner->chgParam == NULL)
			ExecReScan(inner);
	}
	join_table_forget_matches(state->table);
	exact_rows_forget(&state->waiting);
	exact_rows_forget(&state->outer_waiting);
	state->returns_unmatched = state->pairs.outer_is_null = false;
	state->has_outer = state->outer_is_fresh = false;
	state->outer_is_held = state->outer_has_ended = false;
	state->is_finished = state->is_filled && state->table->row_count == 0 &&
		!keeps_unmatched(state);
}

static void
rescan_join(CustomScanState *css)
{
	BatchJoinState *state = (BatchJoinState *) css;
	bool		inner_has_changed;

	if (state->node.original != NULL)
	{
		node_rescan(&state->node);
		return;
	}
	ExecClearTuple(css->ss.ss_ScanTupleSlot);
	state->node.output->ops->release(state->node.output);
	compaction_forget(&state->compaction);
	vector_reset_parameters(&state->outer_context);
	vector_reset_parameters(&state->inner_context);
	vector_reset_parameters(&state->pair_context);
	inner_has_changed = innerPlanState(css)->chgParam != NULL ||
		(state->inner_keys_vary && css->ss.ps.chgParam != NULL);
	state->has_rows = false;
	state->row_next = 0;
	join_note_figures(state);
	/* Its files are used up. */
	inner_has_changed |= state->rounds != NULL;
	join_rounds_end(state);
	restart(state, inner_has_changed);
	if (outerPlanState(css)->chgParam == NULL)
		ExecReScan(outerPlanState(css));
}

static void
end_join(CustomScanState *css)
{
	BatchJoinState *state = (BatchJoinState *) css;

	statistics_count_node(NODE_JOIN, &state->node);
	if (state->node.original != NULL)
	{
		node_end(&state->node);
		return;
	}
	compaction_forget(&state->compaction);
	join_rounds_end(state);
	ExecEndNode(outerPlanState(css));
	ExecEndNode(innerPlanState(css));
}

static const CustomExecMethods join_exec_methods = {
	.CustomName = BATCH_JOIN_NAME,
	.BeginCustomScan = begin_join,
	.ExecCustomScan = exec_join,
	.EndCustomScan = end_join,
	.ReScanCustomScan = rescan_join,
	.ExplainCustomScan = join_explain,
};

static Node *
create_join_state(CustomScan *plan)
{
	BatchJoinState *state = palloc0(sizeof(BatchJoinState));

	(void) plan;
	NodeSetTag(&state->node, T_CustomScanState);
	state->node.css.methods = &join_exec_methods;
	return (Node *) state;
}

const CustomScanMethods batch_join_methods = {
	.CustomName = BATCH_JOIN_NAME,
	.CreateCustomScanState = create_join_state,
};
