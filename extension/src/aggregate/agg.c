/*
 * agg.c
 *	  BatchAgg: plain and hash aggregation right over the batches of a table, or
 *	  of several: partitions, children, the parts of a UNION ALL.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "executor/nodeHash.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"

#include "aggregate.h"
#include "group.h"
#include "node.h"
#include "relay.h"
#include "replay.h"

/* What an aggregation computes of one of its tables. */
typedef struct AggInput
{
	GroupKey   *keys;
	Aggregate **aggregates;
	RowEvaluation evaluation;
	bool		replays_errors;
} AggInput;

typedef struct BatchAggState
{
	BatchNode	node;			/* must be first */
	bool		is_grouped;
	bool		is_partial;
	AggInput   *inputs;			/* of each of the node's, which share the states */
	int			aggregate_count;
	int			key_count;
	MemoryContext memory;		/* of values that the states point to */
	char	   *plain_states;	/* not grouped: the states, one after another */
	Size		state_bytes;
	GroupTable *table;
	Size		memory_limit_bytes;
	uint32		group_next;		/* next group to emit */
	bool		is_filled;		/* groups or states are ready to be emitted */
	bool		input_is_done;
	RelaySource relay;			/* of a join's rows, where the groups don't fit */
} BatchAggState;

static int
private_integer(CustomScan *plan, int which)
{
	return intVal(list_nth(plan->custom_private, which));
}

/* Compile keys and aggregates over one of the tables. */
static void
compile_targets(BatchAggState *state, int number, List *targets)
{
	VectorContext *context = &state->node.inputs[number].context;
	AggInput   *input = &state->inputs[number];
	ListCell   *cell;
	Size		states_start = 0;
	int			value_count = 0;

	input->keys = palloc0(sizeof(GroupKey) * (state->key_count + 1));
	input->aggregates = palloc0(sizeof(Aggregate *) * (list_length(targets) + 1));
	state->state_bytes = 0;
	state->aggregate_count = 0;
	foreach(cell, targets)
	{
		Expr	   *source = lfirst(cell);
		int			i = foreach_current_index(cell);
		Aggregate  *aggregate;

		if (i < state->key_count)
		{
			group_key_compile(&input->keys[i], context, source, &value_count);
			states_start = group_header_bytes(input->keys, i + 1);
			continue;
		}
		aggregate = aggregate_compile(context, castNode(Aggref, source));
		aggregate->memory = state->memory;
		aggregate->state_offset = states_start + state->state_bytes;
		state->state_bytes += MAXALIGN(aggregate->ops->state_bytes);
		state->is_partial |= aggregate->is_partial;
		input->aggregates[state->aggregate_count++] = aggregate;
	}
}

/* Are rows of a table only counted, without a look at their tuples? */
static bool
only_counts(const BatchAggState *state, int number)
{
	const BatchInput *input = &state->node.inputs[number];

	/* A row that is evaluated as a tuple needs its address. */
	if (input->source.batch->last_attno > 0 || state->is_grouped ||
		input->qual->clause_count > input->qual->vector_count)
		return false;
	for (int i = 0; i < state->aggregate_count; i++)
	{
		const Aggregate *aggregate = state->inputs[number].aggregates[i];

		if (OidIsValid(aggregate->argument.type) || aggregate->filter != NULL)
			return false;
	}
	return true;
}

static void
begin_evaluation(BatchAggState *state, int number)
{
	AggInput   *input = &state->inputs[number];

	input->evaluation = (RowEvaluation) {
		.qual = state->node.inputs[number].qual,
		.keys = input->keys, .key_count = state->key_count,
		.aggregates = input->aggregates,
		.aggregate_count = state->aggregate_count,
	};
	input->replays_errors = replay_is_needed(&input->evaluation);
}

/* Open one of the tables, and compile what is computed of it. */
static void
begin_input(BatchAggState *state, EState *estate, int eflags, int number,
			int scanrelid, List *expressions)
{
	BatchInput *input = &state->node.inputs[number];
	Relation	relation = ExecOpenScanRelation(estate, scanrelid, eflags);
	TupleTableSlot *slot = ExecInitExtraTupleSlot(estate, RelationGetDescr(relation),
												  &TTSOpsBufferHeapTuple);

	node_begin_input(&state->node, input, relation, slot, scanrelid);
	input->qual = qual_compile(&input->context, linitial(expressions));
	compile_targets(state, number, lsecond(expressions));
	begin_evaluation(state, number);
	input->source.counts_only = only_counts(state, number);
}

/* Start the batched join below, and compile what is computed of its pairs. */
static void
begin_join_input(BatchAggState *state, EState *estate, int eflags, List *expressions)
{
	CustomScan *plan = (CustomScan *) state->node.css.ss.ps.plan;
	BatchInput *input = &state->node.inputs[0];
	BatchNode  *child = node_begin_child(&state->node, plan->scan.plan.lefttree,
										 estate, eflags);

	state->node.child = child;
	node_begin_context(&state->node, &input->context, child->output, INDEX_VAR);
	input->qual = qual_compile(&input->context, NIL);
	compile_targets(state, 0, lsecond(expressions));
	begin_evaluation(state, 0);
}

static void
begin_agg(CustomScanState *css, EState *estate, int eflags)
{
	BatchAggState *state = (BatchAggState *) css;
	CustomScan *plan = (CustomScan *) css->ss.ps.plan;
	List	   *scanrelids = list_nth(plan->custom_private, BATCH_AGG_SCANRELIDS);
	int			input_count = list_length(scanrelids);

	if (node_begin_original(&state->node, estate, eflags))
		return;
	state->memory = AllocSetContextCreate(CurrentMemoryContext, "BatchAgg",
										  ALLOCSET_DEFAULT_SIZES);
	state->is_grouped = private_integer(plan, BATCH_AGG_IS_GROUPED) != 0;
	state->key_count = private_integer(plan, BATCH_AGG_KEY_COUNT);
	/* Workers that share a scan share its groups: those may come in parts. */
	state->is_partial = private_integer(plan, BATCH_AGG_READS_A_SHARE) != 0;
	state->inputs = palloc0(sizeof(AggInput) * input_count);
	node_begin_inputs(&state->node, input_count);
	if (plan->scan.plan.lefttree != NULL)
		begin_join_input(state, estate, eflags, linitial(plan->custom_exprs));
	else
		for (int i = 0; i < input_count; i++)
			begin_input(state, estate, eflags, i, list_nth_int(scanrelids, i),
						list_nth(plan->custom_exprs, i));
	if (state->is_grouped)
		state->table = group_table_create(state->memory, state->inputs[0].keys,
										  state->key_count, state->state_bytes);
	else
		state->plain_states = palloc0(state->state_bytes + 1);
	state->memory_limit_bytes = get_hash_memory_limit();
}

/* What is computed of the table that the last batch is of. */
static AggInput *
current_input(const BatchAggState *state)
{
	return &state->inputs[state->node.input - state->node.inputs];
}

/* Take one batch into the states. */
static void
accumulate_batch(BatchAggState *state)
{
	BatchInput *input = state->node.input;
	const AggInput *agg_input = current_input(state);
	TupleBatch *batch = input->context.batch;
	char	  **groups = NULL;

	ResetExprContext(input->context.econtext);
	if (state->node.child == NULL)
	{
		qual_apply(input->qual, batch);
		InstrCountFiltered2(&state->node.css, batch->row_count - batch->selection.count);
	}
	if (batch->selection.count == 0)
		return;
	if (state->is_grouped)
	{
		state->table->keys = agg_input->keys;
		group_table_lookup(state->table, &input->context, &batch->selection);
		groups = state->table->row_groups;
	}
	for (int i = 0; i < state->aggregate_count; i++)
	{
		Aggregate  *aggregate = agg_input->aggregates[i];

		aggregate_accumulate(aggregate, &input->context,
							 groups != NULL ? NULL : state->plain_states + aggregate->state_offset,
							 groups);
	}
}

/* As accumulate_batch, where several expressions may fail. */
static void
accumulate_or_replay(BatchAggState *state)
{
	MemoryContext caller = CurrentMemoryContext;
	TupleBatch *batch = state->node.input->context.batch;
	Selection	selection = {.count = batch->row_count, .rows = NULL};
	uint16		rows[BATCH_ROWS_MAX];
	ErrorData  *error;

	/* Pairs that have passed a join's clauses: an error may leave fewer selected. */
	if (batch->selection.rows != NULL)
	{
		selection.count = batch->selection.count;
		selection.rows = memcpy(rows, batch->selection.rows,
								sizeof(uint16) * selection.count);
	}

	PG_TRY();
	{
		accumulate_batch(state);
	}
	PG_CATCH();
	{
		/* Leave alone what is not about data: cancelled, out of memory. */
		if (ERRCODE_TO_CATEGORY(geterrcode()) != ERRCODE_DATA_EXCEPTION &&
			ERRCODE_TO_CATEGORY(geterrcode()) != ERRCODE_FEATURE_NOT_SUPPORTED)
			PG_RE_THROW();
		MemoryContextSwitchTo(caller);
		error = CopyErrorData();
		FlushErrorState();
		replay_batch(&current_input(state)->evaluation, batch, &selection);
		ReThrowError(error);
	}
	PG_END_TRY();
}

static void
reset_states(BatchAggState *state)
{
	if (state->is_grouped)
		group_table_reset(state->table);
	else
	{
		MemoryContextReset(state->memory);
		memset(state->plain_states, 0, state->state_bytes);
	}
	state->group_next = 0;
	state->is_filled = false;
}

static TupleTableSlot *
next_joined_row(void *child)
{
	return ExecProcNode(child);
}

static void
rescan_join(void *child)
{
	ExecReScan(child);
}

/* The original plan over the rows of the join below, from the first on. */
static Plan *
original_over_join(BatchAggState *state)
{
	const CustomScan *plan = (const CustomScan *) state->node.css.ss.ps.plan;
	PlanState  *child = &state->node.child->css.ss.ps;

	ExecReScan(child);
	state->relay = (RelaySource) {
		.next = next_joined_row, .rescan = rescan_join, .owner = child,
		.descriptor = ExecGetResultType(child),
	};
	return node_link_plan(linitial(plan->custom_plans),
						  relay_plan(&state->relay, plan->scan.plan.lefttree), NULL);
}

/* The groups don't fit: run the original plan, which can spill, from the start. */
static void
fall_back_to_original(BatchAggState *state)
{
	BatchNode  *node = &state->node;
	EState	   *estate = node->css.ss.ps.state;
	CustomScan *plan = (CustomScan *) node->css.ss.ps.plan;
	MemoryContext caller = MemoryContextSwitchTo(estate->es_query_cxt);
	Plan	   *original = linitial(plan->custom_plans);

	reset_states(state);
	if (node->child != NULL)
		original = original_over_join(state);
	else
		node_end(node);
	node->original = ExecInitNode(original, estate,
								  estate->es_top_eflags & ~EXEC_FLAG_EXPLAIN_ONLY);
	node->obstacle = "the groups exceed the memory for a hash table";
	/* A worker reports only nodes that its leader knows.  EXPLAIN shows a join once. */
	if (!IsParallelWorker() && node->child == NULL)
		node->css.custom_ps = list_make1(node->original);
	MemoryContextSwitchTo(caller);
}

static bool
exceeds_memory(const BatchAggState *state)
{
	return state->is_grouped && state->table->group_count > 1 &&
		group_table_bytes(state->table) > state->memory_limit_bytes;
}

/*
 * Read the input to its end, or, for partial groups, until memory is full.
 * False where the original plan has to take over.
 */
static bool
fill_states(BatchAggState *state)
{
	BatchNode  *node = &state->node;
	uint32		groups_checked = 0;

	while (node_next_batch(node, BATCH_ROWS_MAX))
	{
		if (current_input(state)->replays_errors)
			accumulate_or_replay(state);
		else
			accumulate_batch(state);
		if (!state->is_grouped || state->table->group_count == groups_checked)
			continue;
		groups_checked = state->table->group_count;
		if (!exceeds_memory(state))
			continue;
		if (!state->is_partial)
			return false;
		node->counters->group_flushes++;
		state->is_filled = true;
		return true;
	}
	state->input_is_done = true;
	state->is_filled = true;
	return true;
}

/* Put keys and results of one group, or of the whole table, in the slot. */
static void
store_result(BatchAggState *state, char *group)
{
	TupleTableSlot *slot = state->node.css.ss.ss_ScanTupleSlot;
	Datum	   *values = slot->tts_values;
	bool	   *nulls = slot->tts_isnull;

	ExecClearTuple(slot);
	for (int i = 0; i < state->key_count; i++)
	{
		nulls[i] = (((GroupHeader *) group)->null_keys >> i) & 1;
		values[i] = group_key_datum(state->table, group, i);
	}
	for (int i = 0; i < state->aggregate_count; i++)
	{
		const Aggregate *aggregate = state->inputs[0].aggregates[i];
		int			column = state->key_count + i;

		values[column] = aggregate_finish(aggregate, group + aggregate->state_offset,
										  &nulls[column]);
	}
	ExecStoreVirtualTuple(slot);
}

/* The next group's results, or NULL when all have been emitted. */
static TupleTableSlot *
next_result(BatchAggState *state)
{
	CustomScanState *css = &state->node.css;
	ExprContext *econtext = css->ss.ps.ps_ExprContext;
	uint32		group_count = state->is_grouped ? state->table->group_count : 1;

	while (state->group_next < group_count)
	{
		uint32		number = state->group_next++;
		MemoryContext caller;

		CHECK_FOR_INTERRUPTS();
		ResetExprContext(econtext);
		caller = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
		store_result(state, state->is_grouped ?
					 group_table_get(state->table, number) : state->plain_states);
		MemoryContextSwitchTo(caller);
		econtext->ecxt_scantuple = css->ss.ss_ScanTupleSlot;
		if (!ExecQual(css->ss.ps.qual, econtext))
		{
			InstrCountFiltered1(css, 1);
			continue;
		}
		return css->ss.ps.ps_ProjInfo != NULL ?
			ExecProject(css->ss.ps.ps_ProjInfo) : css->ss.ss_ScanTupleSlot;
	}
	return NULL;
}

static TupleTableSlot *
exec_agg(CustomScanState *css)
{
	BatchAggState *state = (BatchAggState *) css;
	TupleTableSlot *slot;

	for (;;)
	{
		if (state->node.original != NULL)
			return ExecProcNode(state->node.original);
		if (!state->is_filled && state->input_is_done)
			return NULL;
		if (!state->is_filled && !fill_states(state))
		{
			fall_back_to_original(state);
			continue;
		}
		slot = next_result(state);
		if (slot != NULL)
			return slot;
		reset_states(state);
	}
}

static void
rescan_agg(CustomScanState *css)
{
	BatchAggState *state = (BatchAggState *) css;

	if (state->node.original == NULL)
	{
		reset_states(state);
		state->input_is_done = false;
	}
	node_rescan(&state->node);
}

static void
end_agg(CustomScanState *css)
{
	node_end((BatchNode *) css);
}

/* An expression over the scanned tables as EXPLAIN shows it. */
static char *
deparsed(CustomScanState *css, Node *expression, List *ancestors, ExplainState *es)
{
	List	   *deparse_context = set_deparse_context_plan(es->deparse_cxt,
														  css->ss.ps.plan,
														  ancestors);
	bool		prefixes = es->verbose || list_length(es->rtable) > 1;

	return deparse_expression(expression, deparse_context, prefixes, false);
}

/* The filters of the tables, where there are any. */
static void
explain_filters(CustomScanState *css, List *tables, List *ancestors, ExplainState *es)
{
	CustomScan *plan = (CustomScan *) css->ss.ps.plan;
	List	   *filters = NIL;

	for (int i = 0; i < list_length(tables); i++)
	{
		List	   *qual = linitial(list_nth(plan->custom_exprs, i));

		if (qual != NIL)
			filters = lappend(filters,
							  deparsed(css, (Node *) make_ands_explicit(qual),
									   ancestors, es));
	}
	if (filters == NIL)
		return;
	if (list_length(tables) == 1)
		ExplainPropertyText("Scan Filter", linitial(filters), es);
	else
		ExplainPropertyList("Scan Filters", filters, es);
	if (es->analyze && ((BatchNode *) css)->original == NULL &&
		css->ss.ps.instrument != NULL)
		ExplainPropertyFloat("Rows Removed by Scan Filter", NULL,
							 css->ss.ps.instrument->nfiltered2 /
							 Max(css->ss.ps.instrument->nloops, 1), 0, es);
}

/* A table as EXPLAIN names it below an Append: with its alias, if that differs. */
static char *
table_label(ExplainState *es, int scanrelid)
{
	const char *alias = list_nth(es->rtable_names, scanrelid - 1);
	const char *name = get_rel_name(rt_fetch(scanrelid, es->rtable)->relid);

	if (name == NULL || strcmp(name, alias) == 0)
		return pstrdup(alias);
	return psprintf("%s %s", name, alias);
}

static void
explain_agg(CustomScanState *css, List *ancestors, ExplainState *es)
{
	BatchAggState *state = (BatchAggState *) css;
	CustomScan *plan = (CustomScan *) css->ss.ps.plan;
	int			key_count = private_integer(plan, BATCH_AGG_KEY_COUNT);
	List	   *tables = NIL;
	List	   *keys = NIL;
	ListCell   *cell;

	if (plan->scan.plan.lefttree == NULL)
		foreach(cell, (List *) list_nth(plan->custom_private, BATCH_AGG_SCANRELIDS))
			tables = lappend(tables, table_label(es, lfirst_int(cell)));
	if (list_length(tables) == 1)
		ExplainPropertyText("Batched Table", linitial(tables), es);
	else if (tables != NIL)
		ExplainPropertyList("Batched Tables", tables, es);
	for (int i = 0; i < key_count; i++)
	{
		TargetEntry *entry = list_nth(plan->custom_scan_tlist, i);

		keys = lappend(keys, deparsed(css, (Node *) entry->expr, ancestors, es));
	}
	if (keys != NIL)
		ExplainPropertyList("Group Key", keys, es);
	explain_filters(css, tables, ancestors, es);
	node_explain_counters(&state->node, es);
}

static const CustomExecMethods agg_exec_methods = {
	.CustomName = BATCH_AGG_NAME,
	.BeginCustomScan = begin_agg,
	.ExecCustomScan = exec_agg,
	.EndCustomScan = end_agg,
	.ReScanCustomScan = rescan_agg,
	.EstimateDSMCustomScan = node_estimate_dsm,
	.InitializeDSMCustomScan = node_initialize_dsm,
	.ReInitializeDSMCustomScan = node_reinitialize_dsm,
	.InitializeWorkerCustomScan = node_initialize_worker,
	.ShutdownCustomScan = node_shutdown,
	.ExplainCustomScan = explain_agg,
};

static Node *
create_agg_state(CustomScan *plan)
{
	BatchAggState *state = palloc0(sizeof(BatchAggState));

	(void) plan;
	NodeSetTag(&state->node, T_CustomScanState);
	state->node.css.methods = &agg_exec_methods;
	return (Node *) state;
}

const CustomScanMethods batch_agg_methods = {
	.CustomName = BATCH_AGG_NAME,
	.CreateCustomScanState = create_agg_state,
};
