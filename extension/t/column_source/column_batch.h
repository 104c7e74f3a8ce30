/*
 * column_batch.h
 *	  Batches of the test sources: columns of Datums, copied from rows.
 *
 * Included once by each library, which sets services when it registers its source.
 */
#ifndef COLUMN_BATCH_H
#define COLUMN_BATCH_H

#include "executor/tuptable.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "source.h"

/* The head of a source of such batches. */
typedef struct ColumnSource
{
	BatchSource base;			/* must be first */
	MemoryContext values;		/* of the current batch */
	Vector	   *attributes;
} ColumnSource;

static const BatchServices *services;

static void
fill_column(TupleBatch *batch, BatchColumn *column, const Selection *selection)
{
	const ColumnSource *source = batch->source;

	column->vector.generation = batch->generation;
	services->fill_column(column, &source->attributes[column->attno - 1], selection);
}

static TupleTableSlot *
materialise_row(TupleBatch *batch, int row)
{
	const ColumnSource *source = batch->source;
	TupleTableSlot *slot = batch->slot;

	ExecClearTuple(slot);
	for (int i = 0; i < batch->descriptor->natts; i++)
	{
		slot->tts_values[i] = source->attributes[i].values[row];
		slot->tts_isnull[i] = source->attributes[i].nulls[row];
	}
	return ExecStoreVirtualTuple(slot);
}

static void
release(TupleBatch *batch)
{
	ExecClearTuple(batch->slot);
}

static const TupleBatchOps column_batch_ops = {
	.fill_column = fill_column,
	.materialise_row = materialise_row,
	.release = release,
};

/* Make a source of this size, with a batch that has this slot. */
static ColumnSource *
create_column_source(const BatchSourceOps *ops, Size bytes, Relation relation, TupleTableSlot *slot)
{
	ColumnSource *source = palloc0(bytes);
	TupleDesc	descriptor = RelationGetDescr(relation);

	source->base.ops = ops;
	source->base.relation = relation;
	source->base.batch = services->create_batch(&column_batch_ops, descriptor, slot);
	source->base.batch->source = source;
	source->values = AllocSetContextCreate(CurrentMemoryContext, "ColumnSource",
										   ALLOCSET_DEFAULT_SIZES);
	source->attributes = palloc0(sizeof(Vector) * (descriptor->natts + 1));
	for (int i = 0; i < descriptor->natts; i++)
		services->allocate_vector(&source->attributes[i]);
	return source;
}

/* Append a row to the columns. */
static void
add_row(ColumnSource *source, TupleTableSlot *slot, int row)
{
	TupleDesc	descriptor = RelationGetDescr(source->base.relation);
	MemoryContext caller = MemoryContextSwitchTo(source->values);

	slot_getallattrs(slot);
	for (int i = 0; i < descriptor->natts; i++)
	{
		const Form_pg_attribute form = TupleDescAttr(descriptor, i);
		Vector	   *attribute = &source->attributes[i];
		const bool	is_null = slot->tts_isnull[i];

		attribute->has_nulls = is_null || (row > 0 && attribute->has_nulls);
		attribute->nulls[row] = is_null;
		attribute->values[row] = is_null ? (Datum) 0 :
			datumCopy(slot->tts_values[i], form->attbyval, form->attlen);
	}
	MemoryContextSwitchTo(caller);
}

#endif
