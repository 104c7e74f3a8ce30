/*
 * agg_files.c
 *	  Rows of groups that do not fit in memory, in files until others are returned.
 *
 * Once the groups fill the memory, rows of these go on to them.  Rows of any other
 * group are written to files, by bits of their hashes.  When the groups in memory have
 * been returned, the rows of one file after another make groups, in the same way.
 *
 * Groups in an order are sorted when all of them are made.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/memutils.h"
#include "utils/tuplesort.h"

#include "agg_state.h"
#include "plan.h"
#include "row_parts.h"

/* Of what a file says of a row, the upper half is the number of its input. */
#define INPUT_SHIFT		32

struct AggFiles
{
	MemoryContext memory;
	RowStore   *store;
	RowParts   *parts;			/* of each set: of rows without a group in it */
	bool		is_writing;
	RowFile    *current;		/* that is read; NULL: none yet */
	uint64		rows_left;		/* in it */
	AggInput   *begun;			/* whose next batch has a row already, or NULL */

	/* groups in an order */
	Tuplesortstate *sort;
	TupleTableSlot *sorted_slot;
	bool		is_sorted;
};

/* Can rows of groups wait in files? */
bool
agg_files_are_possible(const BatchAggState *state)
{
	return state->set_count > 0 && state->key_count > 0 && !state->returns_parts;
}

/* Have the batches provide what rows in files, and rows that wait, are made of: what keys and aggregates read. */
void
agg_files_plan(BatchAggState *state)
{
	const CustomScan *plan = (const CustomScan *) state->node.css.ss.ps.plan;
	const List *scanrelids = list_nth(plan->custom_private, BATCH_AGG_SCANRELIDS);

	if (state->set_count == 0 || state->key_count == 0)
		return;
	for (int i = 0; i < state->node.input_count; i++)
	{
		List	   *targets = lsecond(list_nth(plan->custom_exprs, i));

		kept_rows_plan(&state->inputs[i].kept, state->node.inputs[i].context.batch,
					   kept_attributes((Node *) targets, list_nth_int(scanrelids, i)));
	}
}

/* How many parts to divide a set's rows into, by the number of groups that is expected. */
static int
estimate_parts(const BatchAggState *state)
{
	const CustomScan *plan = castNode(CustomScan, state->node.css.ss.ps.plan);
	const RowFile *read = state->files->current;
	const double groups = read != NULL ? (double) read->row_count :
		agg_group_estimate(linitial_node(Agg, plan->custom_plans));
	const int	sets = state->end_set - state->first_set;
	const int	parts_max = Max(row_parts_limit(state->memory_limit_bytes) / (int) pg_nextpower2_32(sets),
								ROW_PARTS_MIN);
	uint64		in_memory = 0;
	double		parts;

	for (int i = state->first_set; i < state->end_set; i++)
		in_memory += state->tables[i]->group_count;
	parts = Min(Max(2 * groups / Max(in_memory, 1), ROW_PARTS_MIN), parts_max);
	return (int) pg_nextpower2_32((uint32) parts);
}

static AggFiles *
create_files(BatchAggState *state)
{
	MemoryContext memory = AllocSetContextCreate(state->node.css.ss.ps.state->es_query_cxt,
												 "BatchAgg files", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(memory);
	AggFiles   *files = palloc0(sizeof(AggFiles));

	files->memory = memory;
	files->store = row_store_create();
	files->parts = palloc0(sizeof(RowParts) * state->set_count);
	for (int i = 0; i < state->set_count; i++)
		files->parts[i].store = files->store;
	for (int i = 0; i < state->node.input_count; i++)
		kept_rows_begin(&state->inputs[i].kept);
	MemoryContextSwitchTo(caller);
	return files;
}

/* The groups fill the memory: rows of others go to files. */
void
agg_files_begin(BatchAggState *state)
{
	int			part_count;

	Assert(agg_files_are_possible(state) && !agg_files_are_written(state));
	if (state->files == NULL)
		state->files = create_files(state);
	part_count = estimate_parts(state);
	Assert(part_count >= 1 && part_count <= ROW_PARTS_MAX);
	for (int i = state->first_set; i < state->end_set; i++)
	{
		state->files->parts[i].count = part_count;
		state->files->is_writing = row_parts_may_divide(&state->files->parts[i]);
	}
}

/* Do rows of groups that are not in memory go to files? */
bool
agg_files_are_written(const BatchAggState *state)
{
	return state->files != NULL && state->files->is_writing;
}

/* Write the selected rows that have no group in a set, whose table has looked for them. */
void
agg_files_write(BatchAggState *state, int input, int set, const Selection *selection)
{
	RowParts   *parts = &state->files->parts[set];
	const GroupTable *table = state->tables[set];

	Assert(agg_files_are_written(state));
	Assert(input >= 0 && input < state->node.input_count && set >= state->first_set && set < state->end_set);
	FOR_SELECTED(row, selection,
				 const uint32 hash = table->row_hashes[row];
				 if (table->row_groups[row] != NULL)
					 continue;
				 kept_rows_write(&state->inputs[input].kept, row_parts_file(parts, hash), row,
								 (uint64) input << INPUT_SHIFT | hash));
}

/* Blocks that the files take. */
int64
agg_files_block_count(const BatchAggState *state)
{
	return state->files != NULL ? state->files->store->block_count : 0;
}

/* Go on with the rows of the next file; false where none is left. */
bool
agg_files_next(BatchAggState *state)
{
	AggFiles   *files = state->files;
	RowFile    *next = NULL;

	if (files == NULL)
		return false;
	files->is_writing = false;
	for (int i = 0; i < state->set_count && next == NULL; i++)
	{
		next = row_parts_next(&files->parts[i]);
		state->first_set = i;
		state->end_set = i + 1;
	}
	if (next == NULL)
		return false;
	if (files->current == NULL)
		for (int i = 0; i < state->node.input_count; i++)
			kept_rows_start_reading(&state->inputs[i].kept);
	else
		row_file_close(files->current);
	files->current = next;
	files->rows_left = next->row_count;
	state->files_read++;
	state->input_is_done = false;
	return true;
}

/* Do batches come from files? */
bool
agg_files_are_read(const BatchAggState *state)
{
	return state->files != NULL && state->files->current != NULL;
}

/* Fill the batch of one of the inputs with rows from the file; false at its end. */
bool
agg_files_next_batch(BatchAggState *state)
{
	AggFiles   *files = state->files;
	/* Whatever input a row is of, the first one has room for it. */
	RowFormat  *format = state->inputs[0].kept.format;
	AggInput   *input = files->begun;

	CHECK_FOR_INTERRUPTS();
	files->begun = NULL;
	while (files->rows_left > 0 && files->begun == NULL &&
		   (input == NULL || !kept_rows_is_full(&input->kept)))
	{
		const FileRow *row = row_file_read(files->current, format);
		AggInput   *of_row = &state->inputs[row->hash >> INPUT_SHIFT];
		Assert((row->hash >> INPUT_SHIFT) < (uint64) state->node.input_count);

		files->rows_left--;
		if (of_row != input)
			kept_rows_start_batch(&of_row->kept);
		kept_rows_add(&of_row->kept, row);
		if (input == NULL)
			input = of_row;
		else if (of_row != input)
			files->begun = of_row;
	}
	if (input == NULL)
		return false;
	state->node.input = &state->node.inputs[input - state->inputs];
	batch_start(input->kept.batch, input->kept.rows->row_count);
	Assert(input->kept.rows->row_count > 0);
	return true;
}

/* Begin to sort the groups.  Some of them were not in memory. */
void
agg_files_begin_sort(BatchAggState *state)
{
	AggFiles   *files = state->files;
	const CustomScan *plan = (const CustomScan *) state->node.css.ss.ps.plan;
	const List *order = list_nth(plan->custom_private, BATCH_AGG_ORDER);
	const int	count = list_length(linitial(order));
	TupleDesc	descriptor = state->node.css.ss.ss_ScanTupleSlot->tts_tupleDescriptor;
	MemoryContext caller = MemoryContextSwitchTo(files->memory);
	AttrNumber *columns = palloc(sizeof(AttrNumber) * count);
	Oid		   *operators = palloc(sizeof(Oid) * count);
	Oid		   *collations = palloc(sizeof(Oid) * count);
	bool	   *nulls_first = palloc(sizeof(bool) * count);

	for (int i = 0; i < count; i++)
	{
		columns[i] = (AttrNumber) (list_nth_int(linitial(order), i) + 1);
		operators[i] = list_nth_oid(lsecond(order), i);
		collations[i] = list_nth_oid(lthird(order), i);
		nulls_first[i] = list_nth_int(lfourth(order), i) != 0;
	}
	files->sort = tuplesort_begin_heap(descriptor, count, columns, operators, collations,
									   nulls_first, work_mem, NULL, 0);
	files->sorted_slot = MakeSingleTupleTableSlot(descriptor, &TTSOpsMinimalTuple);
	MemoryContextSwitchTo(caller);
}

void
agg_files_add_sorted(BatchAggState *state, TupleTableSlot *slot)
{
	Assert(!state->files->is_sorted && state->files->sort != NULL);
	tuplesort_puttupleslot(state->files->sort, slot);
}

void
agg_files_end_sort(BatchAggState *state)
{
	tuplesort_performsort(state->files->sort);
	state->files->is_sorted = true;
}

/* Are all groups sorted, to be taken from there? */
bool
agg_files_are_sorted(const BatchAggState *state)
{
	return state->files != NULL && state->files->is_sorted;
}

/* Put the next of the sorted groups in a virtual slot; false at the end. */
bool
agg_files_next_sorted(BatchAggState *state, TupleTableSlot *slot)
{
	TupleTableSlot *sorted = state->files->sorted_slot;
	const int	count = slot->tts_tupleDescriptor->natts;

	ExecClearTuple(slot);
	if (!tuplesort_gettupleslot(state->files->sort, true, false, sorted, NULL))
		return false;
	slot_getallattrs(sorted);
	memcpy(slot->tts_values, sorted->tts_values, sizeof(Datum) * count);
	memcpy(slot->tts_isnull, sorted->tts_isnull, sizeof(bool) * count);
	ExecStoreVirtualTuple(slot);
	return true;
}

/* Let go of the files, and give the nodes below their batches back. */
void
agg_files_end(BatchAggState *state)
{
	AggFiles   *files = state->files;

	if (files == NULL)
		return;
	for (int i = 0; i < state->node.input_count; i++)
		kept_rows_end(&state->inputs[i].kept);
	row_store_close(files->store);
	if (files->sort != NULL)
	{
		ExecDropSingleTupleTableSlot(files->sorted_slot);
		tuplesort_end(files->sort);
	}
	MemoryContextDelete(files->memory);
	state->files = NULL;
	state->first_set = 0;
	state->end_set = state->set_count;
}
