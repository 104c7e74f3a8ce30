/*
 * deform_rows.c
 *	  The row path: tuple by tuple, for pages with an irregular tuple.
 *
 * Handles NULLs, tuples that are shorter than the descriptor, and attributes
 * that were added with a default.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tupmacs.h"

#include "expr.h"

/* Store one value in all columns of an attribute, or in its pointers. */
static void
store_value(TupleBatch *batch, AttrNumber attno, int row, Datum value,
			bool is_null)
{
	AttributeStep *step = &batch->steps[attno - 1];

	if (step->length == -1)
	{
		step->pointers.values[row] = value;
		step->pointers.nulls[row] = is_null;
		step->pointers.has_nulls |= is_null;
		return;
	}
	for (int i = 0; i < batch->column_count; i++)
	{
		BatchColumn *column = &batch->columns[i];

		if (column->attno != attno)
			continue;
		column->vector.values[row] = (is_null || column->kind == VALUE_OPAQUE) ?
			(Datum) 0 : vector_word_from_datum(column->type, value);
		column->vector.nulls[row] = is_null;
		column->vector.has_nulls |= is_null;
	}
}

/* Values that the tuple itself does not hold: defaults, else NULL. */
static void
store_missing(TupleBatch *batch, int row, AttrNumber from)
{
	for (AttrNumber attno = from; attno <= batch->last_attno; attno++)
	{
		bool		is_null;
		Datum		value;

		if (!batch->steps[attno - 1].is_needed)
			continue;
		value = getmissingattr(batch->descriptor, attno, &is_null);
		store_value(batch, attno, row, is_null ? (Datum) 0 : value, is_null);
	}
}

static void
deform_row(TupleBatch *batch, int row)
{
	HeapTupleHeader tuple = (HeapTupleHeader) batch->tuples[row];
	bits8	   *null_bits = tuple->t_bits;
	bool		has_nulls = (tuple->t_infomask & HEAP_HASNULL) != 0;
	char	   *data = (char *) tuple + tuple->t_hoff;
	int			present = Min(HeapTupleHeaderGetNatts(tuple), batch->last_attno);
	uint32		offset = 0;

	for (int i = 0; i < present; i++)
	{
		const AttributeStep *step = &batch->steps[i];

		if (has_nulls && att_isnull(i, null_bits))
		{
			if (step->is_needed)
				store_value(batch, i + 1, row, (Datum) 0, true);
			continue;
		}
		if (step->length != -1 || data[offset] == 0)
			offset = TYPEALIGN(step->alignment_bytes, offset);
		if (step->is_needed)
			store_value(batch, i + 1, row,
						fetchatt(TupleDescAttr(batch->descriptor, i), data + offset),
						false);
		if (step->length > 0)
			offset += step->length;
		else if (step->length == -1)
			offset += VARSIZE_ANY(data + offset);
		else
			offset += strlen(data + offset) + 1;
	}
	store_missing(batch, row, present + 1);
}

/* Deform the selected rows into every column and pointer vector. */
void
deform_rows(TupleBatch *batch, const Selection *selection)
{
	batch->rows_generation = batch->generation;
	for (int i = 0; i < batch->last_attno; i++)
		batch->steps[i].pointers.has_nulls = false;
	for (int i = 0; i < batch->column_count; i++)
	{
		BatchColumn *column = &batch->columns[i];

		column->vector.has_nulls = false;
		/* Varlena columns are made from their pointers on demand. */
		if (batch->steps[column->attno - 1].length != -1)
			column->vector.generation = batch->generation;
	}
	FOR_SELECTED(row, selection, deform_row(batch, row));
}
