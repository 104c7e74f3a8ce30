/*
 * column_am.c
 *	  A table access method for tests of registered sources of batches.
 *
 * Tables are stored as heap stores them.  Their batches are columns of Datums,
 * copied from rows that the table access method's own interface returns: nothing
 * in them is a heap page.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "catalog/pg_am.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "source.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(column_am_handler);

void		_PG_init(void);

typedef struct ColumnSource
{
	BatchSource base;			/* must be first */
	TableScanDesc scan;			/* NULL: not begun */
	TupleTableSlot *row;		/* that the scan returns */
	MemoryContext values;		/* of the current batch */
	Vector	   *attributes;
	bool		is_finished;
} ColumnSource;

static const BatchServices *services;
static TableAmRoutine column_am_routine;
static const BatchSourceOps column_source_ops;

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

static bool
reads(Relation relation)
{
	return relation->rd_tableam == &column_am_routine;
}

static BatchSource *
create(Relation relation, TupleTableSlot *slot)
{
	ColumnSource *source = palloc0(sizeof(ColumnSource));
	TupleDesc	descriptor = RelationGetDescr(relation);

	source->base.ops = &column_source_ops;
	source->base.relation = relation;
	source->base.batch = services->create_batch(&column_batch_ops, descriptor, slot);
	source->base.batch->source = source;
	source->values = AllocSetContextCreate(CurrentMemoryContext, "ColumnSource",
										   ALLOCSET_DEFAULT_SIZES);
	source->attributes = palloc0(sizeof(Vector) * (descriptor->natts + 1));
	for (int i = 0; i < descriptor->natts; i++)
		services->allocate_vector(&source->attributes[i]);
	return &source->base;
}

static void
start(BatchSource *base, Snapshot snapshot, ParallelTableScanDesc shared)
{
	ColumnSource *source = (ColumnSource *) base;

	source->is_finished = false;
	if (source->scan != NULL)
		return;
	source->scan = shared != NULL ? table_beginscan_parallel(base->relation, shared) :
		table_beginscan(base->relation, snapshot, 0, NULL);
	source->row = table_slot_create(base->relation, NULL);
}

/* Append a row to the columns. */
static void
add_row(ColumnSource *source, int row)
{
	TupleDesc	descriptor = RelationGetDescr(source->base.relation);
	TupleTableSlot *slot = source->row;
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

static bool
next(BatchSource *base, int rows_max)
{
	ColumnSource *source = (ColumnSource *) base;
	const int	limit = Min(rows_max, *services->batch_rows);
	int			rows = 0;

	MemoryContextReset(source->values);
	while (rows < limit && !source->is_finished)
	{
		CHECK_FOR_INTERRUPTS();
		if (table_scan_getnextslot(source->scan, ForwardScanDirection, source->row))
			add_row(source, rows++);
		else
			source->is_finished = true;
	}
	if (rows == 0)
		return false;
	services->start_batch(base->batch, rows);
	return true;
}

static void
rescan(BatchSource *base)
{
	ColumnSource *source = (ColumnSource *) base;

	if (source->scan == NULL)
		return;
	ExecClearTuple(source->row);
	table_rescan(source->scan, NULL);
}

static void
stop(BatchSource *base)
{
	ColumnSource *source = (ColumnSource *) base;

	if (source->scan == NULL)
		return;
	ExecDropSingleTupleTableSlot(source->row);
	table_endscan(source->scan);
	source->scan = NULL;
	source->row = NULL;
}

static const BatchSourceOps column_source_ops = {
	.name = "column_am",
	.reads = reads,
	.slot_ops = &TTSOpsVirtual,
	.create = create,
	.start = start,
	.next = next,
	.rescan = rescan,
	.stop = stop,
};

/* Heap's function insists on heap's own routine. */
static double
index_build_range_scan(Relation table, Relation index, IndexInfo *info,
					   bool allow_sync, bool anyvisible, bool progress,
					   BlockNumber start_block, BlockNumber block_count,
					   IndexBuildCallback callback, void *callback_state,
					   TableScanDesc scan)
{
	const TableAmRoutine *own = table->rd_tableam;
	volatile double rows = 0;

	table->rd_tableam = GetHeapamTableAmRoutine();
	PG_TRY();
	{
		rows = table->rd_tableam->index_build_range_scan(table, index, info, allow_sync,
														 anyvisible, progress, start_block,
														 block_count, callback,
														 callback_state, scan);
	}
	PG_FINALLY();
	{
		table->rd_tableam = own;
	}
	PG_END_TRY();
	return rows;
}

/* TOAST tables are heap's. */
static Oid
relation_toast_am(Relation relation)
{
	return HEAP_TABLE_AM_OID;
}

void
_PG_init(void)
{
	batchexec_register_source_type *register_source = (batchexec_register_source_type *)
		load_external_function("pg_batchexec", "batchexec_register_source", true, NULL);

	column_am_routine = *GetHeapamTableAmRoutine();
	column_am_routine.index_build_range_scan = index_build_range_scan;
	column_am_routine.relation_toast_am = relation_toast_am;
	services = register_source(&column_source_ops, BATCHEXEC_SOURCE_VERSION);
}

Datum
column_am_handler(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(&column_am_routine);
}
