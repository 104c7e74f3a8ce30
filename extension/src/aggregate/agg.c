/*
 * agg.c
 *	  BatchAgg: plain and hash aggregation right over the batches of a table, or
 *	  of several: partitions, children, the parts of a UNION.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "executor/nodeHash.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "agg_state.h"
#include "statistics.h"

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
	Size		states_start = state->set_count > 0 ? group_header_bytes(NULL, 0) : 0;
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
		if (IsA(source, GroupingFunc))
			continue;
		aggregate = aggregate_compile(context, castNode(Aggref, source));
		aggregate->memory = state->memory;
		if (aggregate->distinct_keys != NULL && number == 0)
			distinct_begin(aggregate, state->set_count > 0);
		else if (aggregate->distinct_keys != NULL)
			distinct_share(aggregate, state->inputs[0].aggregates[state->aggregate_count]);
		state->has_distinct |= (aggregate->distinct != NULL);
		state->keeps_values |= aggregate->ops->keeps_values;
		aggregate->state_offset = states_start + state->state_bytes;
		Assert(aggregate->state_offset == MAXALIGN(aggregate->state_offset));
		state->state_bytes += MAXALIGN(aggregate->ops->state_bytes);
		input->aggregates[state->aggregate_count++] = aggregate;
	}
}

/* Are rows of a table only counted, without a look at their tuples? */
static bool
only_counts(const BatchAggState *state, int number)
{
	const BatchInput *input = &state->node.inputs[number];

	/* A row that is evaluated as a tuple needs its address. */
	if (input->source->batch->last_attno > 0 || state->set_count > 0 ||
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
	input->by_row = row_arguments_of(&state->node.inputs[number].context, input->aggregates, state->aggregate_count);
}

/* Open one of the tables, and compile what is computed of it. */
static void
begin_input(BatchAggState *state, EState *estate, int eflags, int number,
			const Scan *scan, List *expressions)
{
	BatchInput *input = &state->node.inputs[number];
	Relation	relation = ExecOpenScanRelation(estate, scan->scanrelid, eflags);
	TupleTableSlot *slot = ExecInitExtraTupleSlot(estate, RelationGetDescr(relation),
												  source_to_read(relation)->slot_ops);

	node_begin_input(&state->node, input, relation, slot, &scan->plan, eflags);
	input->qual = qual_compile(&input->context, linitial(expressions));
	compile_targets(state, number, lsecond(expressions));
	begin_evaluation(state, number);
	input->source->counts_only = only_counts(state, number);
}

/* Start the batched node below, and compile what is computed of its rows. */
static void
begin_child_input(BatchAggState *state, EState *estate, int eflags, int scanrelid,
				  List *expressions)
{
	CustomScan *plan = (CustomScan *) state->node.css.ss.ps.plan;
	BatchInput *input = &state->node.inputs[0];
	BatchNode  *child = node_begin_child(&state->node, plan->scan.plan.lefttree,
										 estate, eflags);

	state->node.child = child;
	node_begin_context(&state->node, &input->context, child->output, scanrelid);
	input->qual = qual_compile(&input->context, NIL);
	compile_targets(state, 0, lsecond(expressions));
	begin_evaluation(state, 0);
}

/* Make the tables of the grouping sets; all have the states at one offset. */
static void
begin_sets(BatchAggState *state, const List *sets)
{
	state->tables = palloc(sizeof(GroupTable *) * (state->set_count + 1));
	for (int i = 0; i < state->set_count; i++)
	{
		GroupTable *table = group_table_create(state->memory, state->inputs[0].keys,
											   state->key_count, state->state_bytes);

		table->left_out = (uint32) list_nth_int(sets, i);
		state->tables[i] = table;
		state->row_groups[i] = table->row_groups;
	}
	state->end_set = state->set_count;
	if (state->set_count == 0)
		state->plain_states = palloc0(state->state_bytes + 1);
}

/* Note the order that the plan above relies on, if it does. */
static void
begin_order(BatchAggState *state, const List *order)
{
	if (order != NIL)
		state->order = group_order_create(linitial(order), lsecond(order),
										  lthird(order), lfourth(order));
}

static void
begin_agg(CustomScanState *css, EState *estate, int eflags)
{
	BatchAggState *state = (BatchAggState *) css;
	CustomScan *plan = (CustomScan *) css->ss.ps.plan;
	List	   *scanrelids = list_nth(plan->custom_private, BATCH_AGG_SCANRELIDS);
	const List *sets = list_nth(plan->custom_private, BATCH_AGG_SETS);
	int			input_count = list_length(scanrelids);

	if (node_begin_original(&state->node, estate, eflags))
		return;
	state->memory = AllocSetContextCreate(CurrentMemoryContext, "BatchAgg",
										  ALLOCSET_DEFAULT_SIZES);
	state->set_count = list_length(sets);
	state->key_count = private_integer(plan, BATCH_AGG_KEY_COUNT);
	Assert(state->key_count >= 0 && state->key_count <= GROUP_KEYS_MAX);
	Assert(state->set_count <= GROUPING_SETS_MAX);
	state->groupings = list_nth(plan->custom_private, BATCH_AGG_GROUPINGS);
	state->grouping_count = list_length(state->groupings) / Max(state->set_count, 1);
	/*
	 * Processes that share a scan share its groups: those come in parts anyway.  A partial aggregation that reads
	 * all rows returns one part of each, as core's does: the sum of floats depends on the parts.
	 */
	state->returns_parts = private_integer(plan, BATCH_AGG_READS_A_SHARE) != 0;
	state->inputs = palloc0(sizeof(AggInput) * input_count);
	node_begin_inputs(&state->node, input_count);
	if (plan->scan.plan.lefttree != NULL)
		begin_child_input(state, estate, eflags, linitial_int(scanrelids),
						  linitial(plan->custom_exprs));
	else
	{
		const List *scans = agg_scans(linitial_node(Agg, plan->custom_plans));

		for (int i = 0; i < input_count; i++)
			begin_input(state, estate, eflags, i, list_nth(scans, i),
						list_nth(plan->custom_exprs, i));
	}
	begin_sets(state, sets);
	begin_order(state, list_nth(plan->custom_private, BATCH_AGG_ORDER));
	agg_files_plan(state);
	agg_waiting_begin(state);
	state->memory_limit_bytes = get_hash_memory_limit();
}

/* What is computed of the table that the last batch is of. */
static AggInput *
current_input(const BatchAggState *state)
{
	Assert(state->node.input >= state->node.inputs && state->node.input < state->node.inputs + state->node.input_count);
	return &state->inputs[state->node.input - state->node.inputs];
}

/* Leave only the rows that have a group in memory, in some set. */
static void
select_grouped(const BatchAggState *state, Selection *selection, uint16 *numbers)
{
	int			count = 0;

	FOR_SELECTED(row, selection,
				 bool has_group = false;
				 for (int i = state->first_set; i < state->end_set; i++)
				 has_group |= state->row_groups[i][row] != NULL;
				 numbers[count] = row;
				 count += has_group);
	Assert(count <= selection->count);
	selection->count = count;
	selection->rows = numbers;
}

/* Find the groups of the batch's rows in each set.  Where they have none in memory, files take the rows. */
static void
find_groups(BatchAggState *state, const AggInput *input, VectorContext *context)
{
	TupleBatch *batch = context->batch;
	const bool	uses_files = agg_files_are_written(state);

	Assert(state->first_set >= 0 && state->first_set <= state->end_set && state->end_set <= state->set_count);
	for (int i = state->first_set; i < state->end_set; i++)
	{
		GroupTable *table = state->tables[i];

		table->keys = input->keys;
		if (i == state->first_set)
			group_table_evaluate(table, context, &batch->selection);
		group_table_hash(table, &batch->selection);
		if (uses_files)
		{
			group_table_find_existing(table, &batch->selection);
			agg_files_write(state, input - state->inputs, i, &batch->selection);
		}
		else
			group_table_find(table, &batch->selection);
	}
	if (uses_files)
		select_grouped(state, &batch->selection, batch->selected_rows);
}

/* Select the rows of a batch that pass the filter of its table. */
static void
filter_batch(BatchAggState *state)
{
	BatchInput *input = state->node.input;
	TupleBatch *batch = input->context.batch;

	Assert(selection_is_valid(&batch->selection, batch->row_count));
	ResetExprContext(input->context.econtext);
	if (state->node.child == NULL && !agg_files_are_read(state))
	{
		qual_apply(input->qual, batch);
		InstrCountFiltered2(&state->node.css, batch->row_count - batch->selection.count);
	}
}

/* Take the selected rows of a batch into the states. */
static void
accumulate_selected(BatchAggState *state)
{
	BatchInput *input = state->node.input;
	AggInput   *agg_input = current_input(state);
	TupleBatch *batch = input->context.batch;
	const RowGroups groups = {
		.of_sets = state->row_groups + state->first_set,
		.set_count = state->end_set - state->first_set,
		.may_be_missing = agg_files_are_written(state),
	};

	if (batch->selection.count == 0)
		return;
	find_groups(state, agg_input, &input->context);
	row_arguments_evaluate(&agg_input->by_row);
	for (int i = 0; i < state->aggregate_count; i++)
	{
		Aggregate  *aggregate = agg_input->aggregates[i];

		aggregate_accumulate(aggregate, &input->context,
							 state->set_count > 0 ? NULL : state->plain_states + aggregate->state_offset,
							 &groups);
	}
}

/* Filter a batch and take it into the states, where several expressions may fail. */
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
		filter_batch(state);
		accumulate_selected(state);
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
		replay_batch(&current_input(state)->evaluation, batch, &selection,
					 agg_files_are_read(state));
		ReThrowError(error);
	}
	PG_END_TRY();
}

/* Take the rows that wait for others into the states. */
static void
accumulate_waiting(BatchAggState *state)
{
	AggInput   *waiting = state->waiting;
	BatchInput *input = state->node.input;

	if (waiting == NULL)
		return;
	state->waiting = NULL;
	state->node.input = &state->node.inputs[waiting - state->inputs];
	compaction_show(&waiting->compaction, state->node.counters);
	accumulate_selected(state);
	compaction_hide(&waiting->compaction);
	state->node.input = input;
}

/* Filter a batch, and take it into the states or have its rows wait. */
static void
take_batch(BatchAggState *state)
{
	AggInput   *input = current_input(state);
	TupleBatch *batch = state->node.input->context.batch;

	/* Rows come in the order of the tables. */
	if (state->waiting != NULL && state->waiting != input)
		accumulate_waiting(state);
	if (input->replays_errors)
	{
		accumulate_or_replay(state);
		return;
	}
	filter_batch(state);
	if (batch->selection.count == 0 || agg_rows_wait(state, input))
		return;
	if (state->waiting != NULL)
	{
		accumulate_waiting(state);
		batch_forget_columns(batch);
		if (agg_rows_wait(state, input))
			return;
	}
	accumulate_selected(state);
}

/* The next DISTINCT aggregate behind one, or the first; NULL: there is none. */
Aggregate *
agg_next_distinct(const BatchAggState *state, int *number)
{
	while (state->has_distinct && *number < state->aggregate_count)
	{
		Aggregate  *aggregate = state->inputs[0].aggregates[(*number)++];

		if (aggregate->distinct != NULL)
			return aggregate;
	}
	return NULL;
}

void
agg_reset_states(BatchAggState *state)
{
	Aggregate  *aggregate;
	int			number = 0;

	Assert(CurrentMemoryContext != state->memory);
	MemoryContextReset(state->memory);
	for (int i = 0; i < state->set_count; i++)
		group_table_forget(state->tables[i]);
	while ((aggregate = agg_next_distinct(state, &number)) != NULL)
		distinct_reset(aggregate);
	if (state->set_count == 0)
		memset(state->plain_states, 0, state->state_bytes);
	state->ordered_groups = NULL;
	state->set_next = 0;
	state->group_next = 0;
	state->is_filled = false;
}

/* Groups of all sets, and distinct values of all aggregates. */
static uint64
count_entries(const BatchAggState *state)
{
	uint64		count = 0;
	const Aggregate *aggregate;
	int			number = 0;

	for (int i = 0; i < state->set_count; i++)
		count += state->tables[i]->group_count;
	while ((aggregate = agg_next_distinct(state, &number)) != NULL)
		count += aggregate->distinct->group_count;
	return count;
}

/* All input is taken: make the groups that need no row, and put them in order. */
static void
complete_groups(BatchAggState *state)
{
	const uint32 all_keys = state->key_count < GROUP_KEYS_MAX ?
		(UINT32_C(1) << state->key_count) - 1 : ~UINT32_C(0);

	Assert(!state->input_is_done && !state->is_filled);
	state->input_is_done = true;
	state->is_filled = true;
	agg_finish_distinct(state);
	for (int i = state->first_set; i < state->end_set; i++)
		if (state->tables[i]->left_out == all_keys)
			group_table_add_empty(state->tables[i]);
	if (state->order != NULL && state->files == NULL)
		state->ordered_groups = group_order_sort(state->order, state->tables[0]);
}

/* The next batch of the input, or of rows in a file. */
static bool
next_batch(BatchAggState *state)
{
	return agg_files_are_read(state) ? agg_files_next_batch(state) :
		node_next_batch(&state->node, BATCH_ROWS_MAX);
}

/* Read the input to its end, or, where groups may come in parts, until memory is full. */
static void
fill_states(BatchAggState *state)
{
	BatchNode  *node = &state->node;
	uint64		entries_checked = 0;

	while (next_batch(state))
	{
		uint64		entries;

		take_batch(state);
		entries = count_entries(state);
		if (entries == entries_checked && !state->keeps_values)
			continue;
		entries_checked = entries;
		if (agg_files_are_written(state) || !agg_exceeds_memory(state, entries))
			continue;
		if (state->returns_parts)
		{
			node->counters->group_flushes++;
			state->is_filled = true;
			return;
		}
		agg_use_files(state);
	}
	accumulate_waiting(state);
	complete_groups(state);
}

/* Put keys and results of one group, or of the whole table, in the slot. */
static void
store_result(BatchAggState *state, char *group)
{
	const GroupTable *table = state->set_count > 0 ? state->tables[state->set_next] : NULL;
	TupleTableSlot *slot = state->node.css.ss.ss_ScanTupleSlot;
	int			column = 0;
	Datum	   *values = slot->tts_values;
	bool	   *nulls = slot->tts_isnull;

	ExecClearTuple(slot);
	for (int i = 0; i < state->key_count; i++, column++)
	{
		nulls[column] = (((GroupHeader *) group)->null_keys >> i) & 1;
		values[column] = nulls[column] ? (Datum) 0 : group_key_datum(table, group, i);
	}
	for (int i = 0; i < state->grouping_count; i++, column++)
	{
		nulls[column] = false;
		values[column] = Int32GetDatum(list_nth_int(state->groupings,
													i * state->set_count + state->set_next));
	}
	for (int i = 0; i < state->aggregate_count; i++, column++)
	{
		const Aggregate *aggregate = state->inputs[0].aggregates[i];

		values[column] = aggregate_finish(aggregate, group + aggregate->state_offset,
										  &nulls[column]);
	}
	Assert(column == slot->tts_tupleDescriptor->natts);
	ExecStoreVirtualTuple(slot);
}

/* The states of the next group, or NULL when all have been emitted. */
static char *
next_group(BatchAggState *state)
{
	if (state->set_count == 0)
		return state->group_next++ == 0 ? state->plain_states : NULL;
	for (; state->set_next < state->set_count; state->set_next++, state->group_next = 0)
	{
		const GroupTable *table = state->tables[state->set_next];
		uint32		number = state->group_next;
		Assert(number <= table->group_count);

		if (number == table->group_count)
			continue;
		state->group_next++;
		return state->ordered_groups != NULL ? state->ordered_groups[number] :
			group_table_get(table, number);
	}
	return NULL;
}

/* Put the next group that passes the filter in the slot; false when all have been emitted. */
static bool
next_result(BatchAggState *state)
{
	CustomScanState *css = &state->node.css;
	ExprContext *econtext = css->ss.ps.ps_ExprContext;
	char	   *group;

	while ((group = next_group(state)) != NULL)
	{
		MemoryContext caller;

		CHECK_FOR_INTERRUPTS();
		ResetExprContext(econtext);
		caller = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
		store_result(state, group);
		MemoryContextSwitchTo(caller);
		econtext->ecxt_scantuple = css->ss.ss_ScanTupleSlot;
		if (ExecQual(css->ss.ps.qual, econtext))
			return true;
		InstrCountFiltered1(css, 1);
	}
	return false;
}

static TupleTableSlot *
project_result(BatchAggState *state)
{
	CustomScanState *css = &state->node.css;

	css->ss.ps.ps_ExprContext->ecxt_scantuple = css->ss.ss_ScanTupleSlot;
	return css->ss.ps.ps_ProjInfo != NULL ?
		ExecProject(css->ss.ps.ps_ProjInfo) : css->ss.ss_ScanTupleSlot;
}

/* Make all groups, also those whose rows are in files, and sort them. */
static void
sort_results(BatchAggState *state)
{
	Assert(state->order != NULL && agg_files_are_possible(state));
	agg_files_begin_sort(state);
	for (;;)
	{
		while (next_result(state))
			agg_files_add_sorted(state, state->node.css.ss.ss_ScanTupleSlot);
		agg_reset_states(state);
		if (!agg_files_next(state))
			break;
		fill_states(state);
	}
	agg_files_end_sort(state);
}

static TupleTableSlot *
exec_agg(CustomScanState *css)
{
	BatchAggState *state = (BatchAggState *) css;

	for (;;)
	{
		if (state->node.original != NULL)
			return ExecProcNode(state->node.original);
		if (agg_files_are_sorted(state))
		{
			ResetExprContext(css->ss.ps.ps_ExprContext);
			return agg_files_next_sorted(state, css->ss.ss_ScanTupleSlot) ?
				project_result(state) : NULL;
		}
		if (!state->is_filled && state->input_is_done && !agg_files_next(state))
			return NULL;
		if (!state->is_filled)
			fill_states(state);
		if (state->order != NULL && state->files != NULL)
			sort_results(state);
		else if (next_result(state))
			return project_result(state);
		else
			agg_reset_states(state);
	}
}

static void
rescan_agg(CustomScanState *css)
{
	BatchAggState *state = (BatchAggState *) css;

	if (state->node.original == NULL)
	{
		agg_waiting_forget(state);
		agg_files_end(state);
		agg_reset_states(state);
		state->input_is_done = false;
	}
	node_rescan(&state->node);
}

static void
end_agg(CustomScanState *css)
{
	statistics_count_node(NODE_AGG, (BatchNode *) css);
	if (((BatchNode *) css)->original == NULL)
	{
		agg_waiting_forget((BatchAggState *) css);
		agg_files_end((BatchAggState *) css);
	}
	node_end((BatchNode *) css);
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
	.ExplainCustomScan = agg_explain,
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
