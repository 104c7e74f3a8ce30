/*
 * kept_rows.c
 *	  Rows of a node's batches that are kept in files, and come in its batches again.
 *
 * Expressions are compiled over the columns of a batch.  So rows from a file come in
 * the same batch: it gets other operations, and a slot for rows without a page.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "executor/executor.h"
#include "optimizer/optimizer.h"
#include "utils/memutils.h"

#include "expr.h"
#include "kept_rows.h"

/* The columns, numbered from 0, that expressions over a batch read. */
Bitmapset *
kept_attributes(const Node *expressions, int varno)
{
	Bitmapset  *found = NULL;
	Bitmapset  *attributes = NULL;
	int			number = -1;

	pull_varattnos(unconstify(Node *, expressions), varno, &found);
	while ((number = bms_next_member(found, number)) >= 0)
		attributes = bms_add_member(attributes,
									number + FirstLowInvalidHeapAttributeNumber - 1);
	return attributes;
}

/* Have the batches provide what rows in files are made of.  Called before the first batch. */
void
kept_rows_plan(KeptRows *kept, TupleBatch *batch, Bitmapset *attributes)
{
	int			number = -1;

	Assert(kept->column_count == 0);
	kept->batch = batch;
	kept->attributes = attributes;
	kept->columns = palloc0(sizeof(KeptColumn) * (bms_num_members(attributes) + 1));
	while ((number = bms_next_member(attributes, number)) >= 0)
	{
		const Oid	type = TupleDescAttr(batch->descriptor, number)->atttypid;
		KeptColumn *column = &kept->columns[kept->column_count++];
		ValueKind	kind;

		column->attno = (AttrNumber) (number + 1);
		/* A stored numeric is a pointer, as a text is. */
		if (value_kind_of_type(type, &kind))
			column->words = batch_add_column(batch, column->attno, type,
											 kind == VALUE_NUMERIC ? VALUE_TEXT : kind);
	}
}

/* Prepare to keep rows, in the current memory context. */
void
kept_rows_begin(KeptRows *kept)
{
	kept->format = row_format_create(kept->batch->descriptor, kept->attributes);
	kept->values = palloc(sizeof(Datum) * (kept->column_count + 1));
	kept->nulls = palloc(sizeof(bool) * (kept->column_count + 1));
	kept->row_memory = AllocSetContextCreate(CurrentMemoryContext, "Batch rows",
											 ALLOCSET_DEFAULT_SIZES);
	kept->filled_generation = 0;
	kept->rows = NULL;
}

/* Fill the columns for all rows that are selected before the first of these is left out. */
static void
fill_columns(KeptRows *kept)
{
	TupleBatch *batch = kept->batch;

	if (kept->filled_generation == batch->generation)
		return;
	kept->filled_generation = batch->generation;
	for (int i = 0; i < kept->column_count; i++)
		if (kept->columns[i].words != NULL)
			(void) batch_column(batch, kept->columns[i].words, &batch->selection);
}

/* Write a selected row of the batch. */
void
kept_rows_write(KeptRows *kept, RowFile *file, int row, uint64 hash)
{
	TupleBatch *batch = kept->batch;
	TupleTableSlot *slot = NULL;

	Assert(row >= 0 && row < batch->row_count);
	Assert(kept->format != NULL);
	fill_columns(kept);
	for (int i = 0; i < kept->column_count; i++)
	{
		const KeptColumn *column = &kept->columns[i];

		if (column->words != NULL)
			kept->values[i] = vector_datum(&column->words->vector, column->words->type, row,
										   &kept->nulls[i]);
		else
		{
			if (slot == NULL)
				slot = batch->ops->materialise_row(batch, row);
			kept->values[i] = slot_getattr(slot, column->attno, &kept->nulls[i]);
		}
	}
	row_file_write(file, kept->format, kept->values, kept->nulls, hash);
}

/* From now on, the batch is filled from files. */
void
kept_rows_start_reading(KeptRows *kept)
{
	TupleBatch *batch = kept->batch;
	MemoryContext caller;

	if (kept->rows != NULL)
		return;
	caller = MemoryContextSwitchTo(GetMemoryChunkContext(kept->format));
	kept->rows = datum_batch_create(batch->descriptor, kept->attributes);
	batch->ops->release(batch);
	kept->of_node = (BatchContents) {
		.ops = &datum_batch_ops,.source = kept->rows,
		.slot = MakeSingleTupleTableSlot(batch->descriptor, &TTSOpsVirtual),
	};
	batch_exchange_contents(batch, &kept->of_node);
	MemoryContextSwitchTo(caller);
}

/* Forget the rows of the batch before. */
void
kept_rows_start_batch(KeptRows *kept)
{
	Assert(kept->rows != NULL);
	MemoryContextReset(kept->row_memory);
	kept->rows->row_count = 0;
}

/* Add a copy of a row. */
void
kept_rows_add(KeptRows *kept, const FileRow *row)
{
	if (kept->format->holds_references)
	{
		void	   *copy = MemoryContextAllocHuge(kept->row_memory, row->bytes);

		row = memcpy(copy, row, row->bytes);
	}
	Assert(!kept_rows_is_full(kept));
	row_format_to_batch(kept->format, row, kept->rows);
}

/* The node fills its batch again. */
void
kept_rows_end(KeptRows *kept)
{
	TupleBatch *batch = kept->batch;

	if (kept->rows == NULL)
		return;
	Assert(batch->ops == &datum_batch_ops && batch->source == kept->rows);
	batch_exchange_contents(batch, &kept->of_node);
	ExecDropSingleTupleTableSlot(kept->of_node.slot);
	kept->rows = NULL;
}
