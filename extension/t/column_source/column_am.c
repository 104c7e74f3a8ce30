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
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"

#include "column_batch.h"
#include "server.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(column_am_handler);

void		_PG_init(void);

typedef struct TableSource
{
	ColumnSource columns;		/* must be first */
	TableScanDesc scan;			/* NULL: not begun */
	TupleTableSlot *row;		/* that the scan returns */
	bool		is_finished;
} TableSource;

static TableAmRoutine column_am_routine;
static const BatchSourceOps column_source_ops;

static bool
reads(Relation relation)
{
	return relation->rd_tableam == &column_am_routine;
}

static BatchSource *
create(Relation relation, TupleTableSlot *slot)
{
	return &create_column_source(&column_source_ops, sizeof(TableSource), relation, slot)->base;
}

static void
start(BatchSource *base, Snapshot snapshot, ParallelTableScanDesc shared)
{
	TableSource *source = (TableSource *) base;

	source->is_finished = false;
	if (source->scan != NULL)
		return;
	source->scan = shared != NULL ? BEGIN_PARALLEL_SCAN(base->relation, shared) :
		BEGIN_SCAN(base->relation, snapshot);
	source->row = table_slot_create(base->relation, NULL);
}

static bool
next(BatchSource *base, int rows_max)
{
	TableSource *source = (TableSource *) base;
	const int	limit = Min(rows_max, *services->batch_rows);
	int			rows = 0;

	MemoryContextReset(source->columns.values);
	while (rows < limit && !source->is_finished)
	{
		CHECK_FOR_INTERRUPTS();
		if (table_scan_getnextslot(source->scan, ForwardScanDirection, source->row))
			add_row(&source->columns, source->row, rows++);
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
	TableSource *source = (TableSource *) base;

	if (source->scan == NULL)
		return;
	ExecClearTuple(source->row);
	table_rescan(source->scan, NULL);
}

static void
stop(BatchSource *base)
{
	TableSource *source = (TableSource *) base;

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

	define_dictionary_settings("column_am.dictionaries", "column_am.dictionary_fault");
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
