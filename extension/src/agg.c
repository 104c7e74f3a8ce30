/*
 * agg.c
 *	  BatchAgg: plain and hash aggregation right over the batches of a table.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "executor/nodeHash.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parsetree.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"

#include "aggregate.h"
#include "group.h"
#include "node.h"
#include "replay.h"

typedef struct BatchAggState
{
	BatchNode	node;			/* must be first */
	bool		is_grouped;
	bool		is_partial;
	Aggregate **aggregates;
	int			aggregate_count;
	GroupKey   *keys;
	int			key_count;
	MemoryContext memory;		/* of values that the states point to */
	char	   *plain_states;	/* not grouped: the states, one after another */
	Size		state_bytes;
	GroupTable *table;
	Size		memory_limit_bytes;
	RowEvaluation evaluation;
	bool		replays_errors;
	uint32		group_next;		/* next group to emit */
	bool		is_filled;		/* groups or states are ready to be emitted */
	bool		input_is_done;
} BatchAggState;

static int
private_integer(CustomScan *plan, int which)
{
	return intVal(list_nth(plan->custom_private, which));
}

/* Compile keys and aggregates from the entries of custom_scan_tlist. */
static void
compile_targets(BatchAggState *state, CustomScan *plan)
{
	VectorContext *context = &state->node.context;
	ListCell   *cell;
	Size		states_start = 0;
	int			value_count = 0;

	/* Workers that share a scan share its groups: those may come in parts. */
	state->is_partial = plan->scan.plan.parallel_aware;
	state->key_count = private_integer(plan, BATCH_AGG_KEY_COUNT);
	state->keys = palloc0(sizeof(GroupKey) * (state->key_count + 1));
	state->aggregates = palloc0(sizeof(Aggregate *) *
								(list_length(plan->custom_scan_tlist) + 1));
	foreach(cell, plan->custom_scan_tlist)
	{
		Expr	   *source = lfirst_node(TargetEntry, cell)->expr;
		int			i = foreach_current_index(cell);
		Aggregate  *aggregate;

		if (i < state->key_count)
		{
			group_key_compile(&state->keys[i], context, source, &value_count);
			states_start = group_header_bytes(state->keys, i + 1);
			continue;
		}
		aggregate = aggregate_compile(context, castNode(Aggref, source));
		aggregate->memory = state->memory;
		aggregate->state_offset = states_start + state->state_bytes;
		state->state_bytes += MAXALIGN(aggregate->ops->state_bytes);
		state->is_partial |= aggregate->is_partial;
		state->aggregates[state->aggregate_count++] = aggregate;
	}
}

static void
begin_agg(CustomScanState *css, EState *estate, int eflags)
{
	BatchAggState *state = (BatchAggState *) css;
	CustomScan *plan = (CustomScan *) css->ss.ps.plan;
	int			scanrelid = private_integer(plan, BATCH_AGG_SCANRELID);
	Relation	relation;
	TupleTableSlot *slot;

	if (node_begin_original(&state->node, estate, eflags))
		return;
	relation = ExecOpenScanRelation(estate, scanrelid, eflags);
	slot = ExecInitExtraTupleSlot(estate, RelationGetDescr(relation),
								  &TTSOpsBufferHeapTuple);
	node_begin_source(&state->node, relation, slot, scanrelid);
	state->memory = AllocSetContextCreate(CurrentMemoryContext, "BatchAgg",
										  ALLOCSET_DEFAULT_SIZES);
	state->is_grouped = private_integer(plan, BATCH_AGG_IS_GROUPED) != 0;
	state->node.qual = qual_compile(&state->node.context, plan->custom_exprs);
	compile_targets(state, plan);
	if (state->is_grouped)
		state->table = group_table_create(state->memory, state->keys,
										  state->key_count, state->state_bytes);
	else
		state->plain_states = palloc0(state->state_bytes + 1);
	state->memory_limit_bytes = get_hash_memory_limit();
	state->evaluation = (RowEvaluation) {
		.qual = state->node.qual,
		.keys = state->keys, .key_count = state->key_count,
		.aggregates = state->aggregates,
		.aggregate_count = state->aggregate_count,
	};
	state->replays_errors = replay_is_needed(&state->evaluation);
	node_plan_columns(&state->node);
	state->node.source.counts_only = (state->node.source.batch->last_attno == 0);
	/* A row that is evaluated as a tuple needs its address. */
	if (state->node.qual->clause_count > state->node.qual->vector_count ||
		state->is_grouped)
		state->node.source.counts_only = false;
	for (int i = 0; i < state->aggregate_count; i++)
		if (OidIsValid(state->aggregates[i]->argument_type) ||
			state->aggregates[i]->filter != NULL)
			state->node.source.counts_only = false;
}

/* Take one batch into the states. */
static void
accumulate_batch(BatchAggState *state)
{
	BatchNode  *node = &state->node;
	TupleBatch *batch = node->source.batch;
	char	  **groups = NULL;

	ResetExprContext(node->context.econtext);
	qual_apply(node->qual, batch);
	InstrCountFiltered2(&node->css, batch->row_count - batch->selection.count);
	if (batch->selection.count == 0)
		return;
	if (state->is_grouped)
	{
		group_table_lookup(state->table, &node->context, &batch->selection);
		groups = state->table->row_groups;
	}
	for (int i = 0; i < state->aggregate_count; i++)
	{
		Aggregate  *aggregate = state->aggregates[i];

		aggregate_accumulate(aggregate, &node->context,
							 groups != NULL ? NULL : state->plain_states + aggregate->state_offset,
							 groups);
	}
}

/* As accumulate_batch, where several expressions may fail. */
static void
accumulate_or_replay(BatchAggState *state)
{
	MemoryContext caller = CurrentMemoryContext;
	ErrorData  *error;

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
		replay_batch(&state->evaluation, state->node.source.batch);
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

/* The groups don't fit: run the original plan, which can spill, from the start. */
static void
fall_back_to_original(BatchAggState *state)
{
	BatchNode  *node = &state->node;
	EState	   *estate = node->css.ss.ps.state;
	CustomScan *plan = (CustomScan *) node->css.ss.ps.plan;
	MemoryContext caller = MemoryContextSwitchTo(estate->es_query_cxt);

	reset_states(state);
	node_end(node);
	node->original = ExecInitNode(linitial(plan->custom_plans), estate,
								  estate->es_top_eflags & ~EXEC_FLAG_EXPLAIN_ONLY);
	node->obstacle = "the groups exceed the memory for a hash table";
	/* A worker reports only nodes that its leader knows. */
	if (!IsParallelWorker())
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
		if (state->replays_errors)
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
		const Aggregate *aggregate = state->aggregates[i];
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

/* An expression list over the scanned table as one EXPLAIN property. */
static void
explain_expressions(CustomScanState *css, const char *label, Node *expression,
					List *ancestors, ExplainState *es)
{
	List	   *deparse_context = set_deparse_context_plan(es->deparse_cxt,
														  css->ss.ps.plan,
														  ancestors);
	bool		prefixes = es->verbose || list_length(es->rtable) > 1;

	ExplainPropertyText(label, deparse_expression(expression, deparse_context,
												  prefixes, false), es);
}

static void
explain_agg(CustomScanState *css, List *ancestors, ExplainState *es)
{
	BatchAggState *state = (BatchAggState *) css;
	CustomScan *plan = (CustomScan *) css->ss.ps.plan;
	int			scanrelid = private_integer(plan, BATCH_AGG_SCANRELID);
	int			key_count = private_integer(plan, BATCH_AGG_KEY_COUNT);
	List	   *keys = NIL;

	ExplainPropertyText("Batched Table",
						list_nth(es->rtable_names, scanrelid - 1), es);
	for (int i = 0; i < key_count; i++)
	{
		TargetEntry *entry = list_nth(plan->custom_scan_tlist, i);
		List	   *deparse_context = set_deparse_context_plan(es->deparse_cxt,
															  css->ss.ps.plan,
															  ancestors);

		keys = lappend(keys, deparse_expression((Node *) entry->expr,
												deparse_context,
												es->verbose || list_length(es->rtable) > 1,
												false));
	}
	if (keys != NIL)
		ExplainPropertyList("Group Key", keys, es);
	if (plan->custom_exprs != NIL)
		explain_expressions(css, "Scan Filter",
							(Node *) make_ands_explicit(plan->custom_exprs),
							ancestors, es);
	if (es->analyze && plan->custom_exprs != NIL && state->node.original == NULL &&
		css->ss.ps.instrument != NULL)
		ExplainPropertyFloat("Rows Removed by Scan Filter", NULL,
							 css->ss.ps.instrument->nfiltered2 /
							 Max(css->ss.ps.instrument->nloops, 1), 0, es);
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
