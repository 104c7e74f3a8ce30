/*
 * datum_vector.c
 *	  Datums of rows as vectors, and batches of rows that are collected.
 */
#include "postgres.h"

#include "catalog/pg_type.h"

#include "datum_vector.h"
#include "expr.h"

/* A short varlena of no bytes: kernels may look at what is NULL. */
#ifdef WORDS_BIGENDIAN
static char empty_varlena[] = {(char) 0x81};
#else
static char empty_varlena[] = {0x03};
#endif

static void
copy_nulls(Vector *result, const Vector *datums, const Selection *selection)
{
	result->has_nulls = datums->has_nulls;
	if (datums->has_nulls)
		FOR_SELECTED(row, selection, result->nulls[row] = datums->nulls[row]);
}

/* Make words of values: of the common types in a loop of their own. */
static void
words_from_datums(Vector *result, Oid type, const Datum *from, const Selection *selection)
{
	Datum	   *to = result->values;

	switch (type)
	{
		case INT4OID:
		case DATEOID:
			FOR_SELECTED(row, selection, to[row] = Int64GetDatum((int64) DatumGetInt32(from[row])));
			break;
		case INT8OID:
		case FLOAT8OID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			FOR_SELECTED(row, selection, to[row] = from[row]);
			break;
		default:
			FOR_SELECTED(row, selection, to[row] = vector_word_from_datum(type, from[row]));
	}
}

/* Fill a column with what the Datums are as words of its kind. */
void
vector_from_datums(BatchColumn *column, const Vector *datums,
				   const Selection *selection)
{
	Vector	   *result = &column->vector;
	const Datum *from = datums->values;
	const Oid	type = column->type;

	Assert(selection_is_valid(selection, BATCH_ROWS_MAX));
	result->usable = true;
	result->dictionary = column->kind == VALUE_TEXT ? datums->dictionary : NULL;
	result->codes = datums->codes;
	if (column->kind == VALUE_NUMERIC)
	{
		numeric_vector_decode(result, datums, selection);
		return;
	}
	copy_nulls(result, datums, selection);
	switch (column->kind)
	{
		case VALUE_OPAQUE:
			break;
		case VALUE_TEXT:
			FOR_SELECTED(row, selection,
						 result->values[row] = (result->has_nulls && result->nulls[row]) ?
						 PointerGetDatum(empty_varlena) : from[row]);
			break;
		default:
			words_from_datums(result, type, from, selection);
	}
}

/* Fill a column with NULLs. */
void
vector_of_nulls(BatchColumn *column, const Selection *selection)
{
	Vector	   *result = &column->vector;
	const Datum null_value = column->kind == VALUE_TEXT ?
		PointerGetDatum(empty_varlena) : (Datum) 0;

	result->usable = result->has_nulls = true;
	result->dictionary = NULL;
	result->has_mixed_scales = false;
	result->scale = 0;
	FOR_SELECTED(row, selection,
				 result->nulls[row] = true;
				 result->values[row] = null_value);
}

/* A row's value as a Datum of the type.  The words of numerics are pointers to stored ones. */
Datum
vector_datum(const Vector *words, Oid type, int row, bool *is_null)
{
	*is_null = words->has_nulls && words->nulls[row];
	if (*is_null)
		return (Datum) 0;
	return type == FLOAT4OID ? Float4GetDatum((float4) DatumGetFloat8(words->values[row])) :
		words->values[row];
}

/*
 * A batch of rows of this shape, that hold these attributes, numbered from 0; NULL: all.
 * It lives in the current memory context.
 */
DatumBatch *
datum_batch_create(TupleDesc descriptor, const Bitmapset *attributes)
{
	DatumBatch *rows = palloc0(sizeof(DatumBatch));

	rows->descriptor = descriptor;
	rows->attributes = palloc0(sizeof(Vector) * (descriptor->natts + 1));
	for (int i = 0; i < descriptor->natts; i++)
		if (attributes == NULL || bms_is_member(i, attributes))
			vector_allocate(&rows->attributes[i]);
	return rows;
}

/* Append the attributes of a row that the batch holds; copy keeps a value that is passed by reference. */
void
datum_batch_add(DatumBatch *rows, TupleTableSlot *slot,
				Datum (*copy) (void *owner, Datum value, int length), void *owner)
{
	const int	row = rows->row_count++;
	Assert(row >= 0 && row < BATCH_ROWS_MAX);
	Assert(slot->tts_tupleDescriptor->natts >= rows->descriptor->natts);

	slot_getallattrs(slot);
	for (int i = 0; i < rows->descriptor->natts; i++)
	{
		const Form_pg_attribute form = TupleDescAttr(rows->descriptor, i);
		Vector	   *attribute = &rows->attributes[i];
		const bool	is_null = slot->tts_isnull[i];

		if (attribute->values == NULL)
			continue;
		if (row == 0)
			attribute->has_nulls = false;
		attribute->has_nulls |= is_null;
		attribute->nulls[row] = is_null;
		attribute->values[row] = is_null ? (Datum) 0 :
			form->attbyval ? slot->tts_values[i] :
			copy(owner, slot->tts_values[i], form->attlen);
	}
}

/*
 * Append the selected words of a column to an attribute, numbered from 0; the caller counts the rows.
 * The words of numerics are pointers to stored ones.
 */
void
datum_batch_append_column(DatumBatch *rows, int number, const Vector *words, const Selection *selection,
						  Datum (*copy) (void *owner, Datum value, int length), void *owner)
{
	const Form_pg_attribute form = TupleDescAttr(rows->descriptor, number);
	Vector	   *to = &rows->attributes[number];
	const bool	has_nulls = words->has_nulls;
	int			at = rows->row_count;

	Assert(at + selection->count <= BATCH_ROWS_MAX);
	Assert(words->usable);
	if (at == 0)
		to->has_nulls = false;
	to->has_nulls |= has_nulls;
	if (form->attbyval && form->atttypid != FLOAT4OID)
		FOR_SELECTED(row, selection,
					 to->nulls[at] = has_nulls && words->nulls[row];
					 to->values[at] = to->nulls[at] ? (Datum) 0 : words->values[row];
					 at++);
	else if (form->attbyval)
		FOR_SELECTED(row, selection,
					 to->nulls[at] = has_nulls && words->nulls[row];
					 to->values[at] = to->nulls[at] ? (Datum) 0 :
					 Float4GetDatum((float4) DatumGetFloat8(words->values[row]));
					 at++);
	else
		FOR_SELECTED(row, selection,
					 to->nulls[at] = has_nulls && words->nulls[row];
					 to->values[at] = to->nulls[at] ? (Datum) 0 :
					 copy(owner, words->values[row], form->attlen);
					 at++);
}

static void
fill_datum_column(TupleBatch *batch, BatchColumn *column, const Selection *selection)
{
	const DatumBatch *rows = batch->source;
	Assert(column->attno >= 1 && column->attno <= rows->descriptor->natts);
	Assert(batch->row_count <= rows->row_count || rows->row_count == 0);

	column->vector.generation = batch->generation;
	vector_from_datums(column, &rows->attributes[column->attno - 1], selection);
}

static TupleTableSlot *
materialise_datum_row(TupleBatch *batch, int row)
{
	const DatumBatch *rows = batch->source;
	TupleTableSlot *slot = batch->slot;
	Assert(row >= 0 && row < batch->row_count);
	Assert(slot->tts_tupleDescriptor->natts == rows->descriptor->natts);

	ExecClearTuple(slot);
	for (int i = 0; i < rows->descriptor->natts; i++)
	{
		const Vector *attribute = &rows->attributes[i];

		slot->tts_isnull[i] = attribute->values == NULL || attribute->nulls[row];
		slot->tts_values[i] = slot->tts_isnull[i] ? (Datum) 0 : attribute->values[row];
	}
	return ExecStoreVirtualTuple(slot);
}

static void
release_datum_batch(TupleBatch *batch)
{
	ExecClearTuple(batch->slot);
}

const TupleBatchOps datum_batch_ops = {
	.fill_column = fill_datum_column,
	.materialise_row = materialise_datum_row,
	.release = release_datum_batch,
};
