/*
 * batch.c
 *	  TupleBatch: its columns, its selection and its vectors.
 */
#include "postgres.h"

#include "batch.h"

/* Make a batch without columns.  Lives in the current memory context. */
TupleBatch *
batch_create(const TupleBatchOps *ops, TupleDesc descriptor, TupleTableSlot *slot)
{
	TupleBatch *batch = palloc0(sizeof(TupleBatch));

	batch_begin(batch, ops, descriptor, slot);
	return batch;
}

/* The same of a batch that is part of something larger, and zeroed. */
void
batch_begin(TupleBatch *batch, const TupleBatchOps *ops, TupleDesc descriptor,
			TupleTableSlot *slot)
{
	Assert(ops == NULL || (ops->fill_column != NULL && ops->materialise_row != NULL && ops->release != NULL));
	batch->ops = ops;
	batch->descriptor = descriptor;
	batch->slot = slot;
	batch->generation = 1;		/* 0: never */
	/* A column may be asked for several kinds: integer, opaque, text. */
	batch->columns = palloc0(sizeof(BatchColumn) * descriptor->natts * 3);
}

void
vector_allocate(Vector *vector)
{
	Assert(vector->values == NULL);
	vector->values = palloc0(sizeof(Datum) * BATCH_ROWS_MAX);
	vector->nulls = palloc0(sizeof(bool) * BATCH_FLAGS_MAX);
	vector->scales = palloc0(sizeof(uint8) * BATCH_ROWS_MAX);
	vector->usable = true;
}

/* The column of this attribute and kind, made on first request. */
BatchColumn *
batch_add_column(TupleBatch *batch, AttrNumber attno, Oid type, ValueKind kind)
{
	BatchColumn *column;

	Assert(attno > 0 && attno <= batch->descriptor->natts);
	for (int i = 0; i < batch->column_count; i++)
	{
		column = &batch->columns[i];
		if (column->attno == attno && column->kind == kind)
			return column;
	}
	Assert(batch->column_count < batch->descriptor->natts * 3);
	column = &batch->columns[batch->column_count++];
	column->attno = attno;
	column->type = type;
	column->kind = kind;
	vector_allocate(&column->vector);
	batch->last_attno = Max(batch->last_attno, attno);
	return column;
}

/* Begin a batch of row_count rows, all selected; every vector is stale. */
void
batch_start(TupleBatch *batch, int row_count)
{
	Assert(row_count >= 0 && row_count <= BATCH_ROWS_MAX);
	batch->row_count = row_count;
	batch->generation++;
	batch_select_all(batch);
}

void
batch_select_all(TupleBatch *batch)
{
	batch->selection.count = batch->row_count;
	batch->selection.rows = NULL;
}

/* Have columns be filled anew: they were overwritten, or filled for other rows. */
void
batch_forget_columns(TupleBatch *batch)
{
	batch->generation++;
}

/* Select one row. */
void
batch_select_row(TupleBatch *batch, int row)
{
	Assert(row >= 0 && row < batch->row_count);
	batch_forget_columns(batch);
	batch->selected_rows[0] = row;
	batch->selection.count = 1;
	batch->selection.rows = batch->selected_rows;
}

/* Give the batch these contents, and take those that it has. */
void
batch_exchange_contents(TupleBatch *batch, BatchContents *contents)
{
	const BatchContents before = {.ops = batch->ops,.source = batch->source,.slot = batch->slot};

	Assert(contents->ops != NULL && contents->slot != NULL);
	batch->ops = contents->ops;
	batch->source = contents->source;
	batch->slot = contents->slot;
	*contents = before;
}

/* Raise an error where a source's dictionary does not fit the selected rows: their results are looked up by code. */
void
vector_check_dictionary(const Vector *vector, const Selection *selection)
{
	const Dictionary *dictionary = vector->dictionary;
	const uint16 *codes = vector->codes;
	const bool	entry_nulls = dictionary->entries.has_nulls;
	bool		is_wrong = false;

	if (dictionary->id == 0)
		elog(ERROR, "the source of a batch gives a dictionary the id 0");
	if (dictionary->count < 1 || dictionary->count > BATCH_ROWS_MAX)
		elog(ERROR, "the source of a batch gives a dictionary %d entries, not 1 to %d", dictionary->count, (int) BATCH_ROWS_MAX);
	FOR_SELECTED(row, selection, is_wrong |= codes[row] >= dictionary->count);
	if (is_wrong)
		elog(ERROR, "the source of a batch gives a row a code beyond the dictionary's entries, %d in number", dictionary->count);
	if (!entry_nulls && !vector->has_nulls)
		return;
	FOR_SELECTED(row, selection,
				 is_wrong |= (entry_nulls && dictionary->entries.nulls[codes[row]]) != (vector->has_nulls && vector->nulls[row]));
	if (is_wrong)
		elog(ERROR, "the source of a batch gives a row that is NULL an entry that is not, or the other way round");
}

/*
 * The selected rows whose value is not NULL.  rows receives their numbers
 * where there are fewer than before; it may be the selection's own array.
 */
Selection
selection_without_nulls(const Selection *selection, const Vector *vector,
						uint16 *rows)
{
	Selection	result = *selection;
	int			count = 0;

	Assert(selection_is_valid(selection, BATCH_ROWS_MAX));
	if (!vector->has_nulls)
		return result;
	FOR_SELECTED(row, selection,
				 rows[count] = row;
				 count += !vector->nulls[row]);
	Assert(count <= selection->count);
	result.count = count;
	result.rows = rows;
	return result;
}

/* NULL wherever either operand is: the rule of all strict functions. */
void
vector_merge_nulls(Vector *result, const Vector *left, const Vector *right,
				   const Selection *selection)
{
	bool		left_nulls = left->has_nulls;
	bool		right_nulls = right != NULL && right->has_nulls;

	result->has_nulls = left_nulls || right_nulls;
	if (!result->has_nulls)
		return;
	FOR_SELECTED(row, selection,
				 result->nulls[row] = (left_nulls && left->nulls[row]) ||
				 (right_nulls && right->nulls[row]));
}
