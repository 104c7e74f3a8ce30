/*
 * join_batch.c
 *	  Pairs of outer and inner rows as a batch.
 *
 * A pair is two row numbers until a column of it is asked for.  So of an outer
 * row without a match no column but the keys is ever read.
 */
#include "postgres.h"

#include "expr.h"
#include "join_batch.h"

static bool
inner_is_null(const JoinRow *row, AttrNumber attno)
{
	return row == NULL || ((row->nulls >> (attno - 1)) & 1);
}

static void
fill_inner_column(JoinBatch *join, BatchColumn *column, AttrNumber attno,
				  const Selection *selection)
{
	Vector	   *datums = &join->datums;

	datums->has_nulls = false;
	FOR_SELECTED(row, selection,
				 const JoinRow *inner = join->inner_rows[row];
				 datums->nulls[row] = inner_is_null(inner, attno);
				 datums->has_nulls |= datums->nulls[row];
				 datums->values[row] = datums->nulls[row] ? (Datum) 0 :
				 inner->values[attno - 1]);
	vector_from_datums(column, datums, selection);
}

static void
fill_outer_column(JoinBatch *join, BatchColumn *column, BatchColumn *outer_column,
				  const Selection *selection)
{
	const uint16 *rows = join->outer_rows;
	Vector	   *to = &column->vector;
	const Vector *from;

	if (join->outer_is_null)
	{
		vector_of_nulls(column, selection);
		return;
	}
	from = batch_column(join->outer, outer_column, &join->outer->selection);
	to->usable = from->usable;
	to->has_nulls = from->has_nulls;
	to->scale = from->scale;
	to->has_mixed_scales = from->has_mixed_scales;
	if (!from->usable)
		return;
	if (column->kind != VALUE_OPAQUE)
		FOR_SELECTED(row, selection, to->values[row] = from->values[rows[row]]);
	if (from->has_nulls)
		FOR_SELECTED(row, selection, to->nulls[row] = from->nulls[rows[row]]);
	if (from->has_mixed_scales)
		FOR_SELECTED(row, selection, to->scales[row] = from->scales[rows[row]]);
}

static void
fill_join_column(TupleBatch *batch, BatchColumn *column, const Selection *selection)
{
	JoinBatch  *join = batch->source;
	const JoinColumn *from = &join->columns[column->attno - 1];
	Assert(column->attno >= 1 && column->attno <= join->column_count);
	Assert(selection_is_valid(selection, batch->row_count));

	column->vector.generation = batch->generation;
	if (from->is_inner)
		fill_inner_column(join, column, from->attno, selection);
	else
		fill_outer_column(join, column,
						  join->outer_columns[column - batch->columns], selection);
}

/* Have the outer batch provide what has been asked of the pairs. */
void
join_batch_plan(JoinBatch *join)
{
	TupleBatch *output = join->output;

	Assert(join->outer_columns == NULL);
	join->outer_columns = palloc0(sizeof(BatchColumn *) * (output->column_count + 1));
	for (int i = 0; i < output->column_count; i++)
	{
		const BatchColumn *column = &output->columns[i];
		const JoinColumn *from = &join->columns[column->attno - 1];

		if (!from->is_inner)
			join->outer_columns[i] = batch_add_column(join->outer, from->attno,
													  column->type, column->kind);
	}
}

/* Have the outer batch provide what rows are made of. */
void
join_batch_plan_rows(JoinBatch *join)
{
	for (int i = 0; i < join->column_count; i++)
	{
		JoinColumn *column = &join->columns[i];
		const Oid	type = TupleDescAttr(join->output->descriptor, i)->atttypid;
		ValueKind	kind;

		/* A stored numeric is a pointer, as a text is. */
		if (!column->is_inner && value_kind_of_type(type, &kind))
			column->outer_words =
				batch_add_column(join->outer, column->attno, type,
								 kind == VALUE_NUMERIC ? VALUE_TEXT : kind);
	}
}

static void
store_outer_value(JoinBatch *join, JoinColumn *column, int row, Oid type,
				  TupleTableSlot **outer_slot, Datum *value, bool *is_null)
{
	const int	outer_row = join->outer_rows[row];
	const Vector *words;

	if (join->outer_is_null)
	{
		*value = (Datum) 0;
		*is_null = true;
		return;
	}
	if (column->outer_words == NULL)
	{
		if (*outer_slot == NULL)
			*outer_slot = join->outer->ops->materialise_row(join->outer, outer_row);
		*value = slot_getattr(*outer_slot, column->attno, is_null);
		return;
	}
	words = batch_column(join->outer, column->outer_words, &join->outer->selection);
	*value = vector_datum(words, type, outer_row, is_null);
}

/* Put a pair in a virtual slot; valid as long as the outer batch. */
void
join_batch_store_row(JoinBatch *join, int row, TupleTableSlot *slot)
{
	const JoinRow *inner = join->inner_rows[row];
	TupleDesc	descriptor = join->output->descriptor;
	TupleTableSlot *outer_slot = NULL;

	Assert(row >= 0 && row < join->output->row_count);
	Assert(slot->tts_tupleDescriptor->natts == join->column_count);
	ExecClearTuple(slot);
	for (int i = 0; i < join->column_count; i++)
	{
		JoinColumn *column = &join->columns[i];

		if (!column->is_inner)
		{
			store_outer_value(join, column, row,
							  TupleDescAttr(descriptor, i)->atttypid, &outer_slot,
							  &slot->tts_values[i], &slot->tts_isnull[i]);
			continue;
		}
		slot->tts_isnull[i] = inner_is_null(inner, column->attno);
		slot->tts_values[i] = slot->tts_isnull[i] ? (Datum) 0 :
			inner->values[column->attno - 1];
	}
	ExecStoreVirtualTuple(slot);
}

static TupleTableSlot *
materialise_join_row(TupleBatch *batch, int row)
{
	join_batch_store_row(batch->source, row, batch->slot);
	return batch->slot;
}

static void
release_join_batch(TupleBatch *batch)
{
	ExecClearTuple(batch->slot);
}

const TupleBatchOps join_batch_ops = {
	.fill_column = fill_join_column,
	.materialise_row = materialise_join_row,
	.release = release_join_batch,
};
