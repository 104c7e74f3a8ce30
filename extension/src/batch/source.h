/*
 * source.h
 *	  Sources of batches: what reads a table, whatever its format.
 *
 * Heap tables are read by a source of our own.  The library of another table
 * access method, or of a foreign data wrapper, registers its own source when it
 * is loaded:
 *
 *		batchexec_register_source_type *register_source = (batchexec_register_source_type *)
 *			load_external_function("pg_batchexec", "batchexec_register_source", true, NULL);
 *		services = register_source(&my_source_ops, BATCHEXEC_SOURCE_VERSION);
 *
 * A library that is of use without pg_batchexec, too, takes the function from
 * *find_rendezvous_variable(BATCHEXEC_REGISTER_SOURCE): NULL where pg_batchexec has
 * not been loaded before it.
 *
 * The source of a foreign table stands in for the wrapper's IterateForeignScan
 * alone.  The scan that it reads, foreign_scan, is the wrapper's own: begun by
 * BeginForeignScan, rescanned by ReScanForeignScan and ended by EndForeignScan.
 * What these do about users, options and parameters holds for batches, too.  The
 * batches have the rows that IterateForeignScan would return, in that order.
 * Where a row can't be read, the batch ends before it, and the next call raises
 * the error: the rows before it may be all that are wanted.
 *
 * A source that stores each text of a column once may say so, by the dictionary of the column's vector.
 */
#ifndef BATCHEXEC_SOURCE_H
#define BATCHEXEC_SOURCE_H

#include "access/relscan.h"
#include "nodes/execnodes.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

#include "batch.h"

struct BatchCounters;

/* Raised where the structures of source.h or batch.h change. */
#define BATCHEXEC_SOURCE_VERSION	3

typedef struct BatchSource BatchSource;

/*
 * One kind of source.  All of it is called in the executor, but for reads; memory
 * is that of the query where nothing else is said.
 */
typedef struct BatchSourceOps
{
	const char *name;
	/* Is this table, or foreign table, one of its own?  Looks at nothing but the relation. */
	bool		(*reads) (Relation relation);
	/* The slot that the batch's rows are materialised in. */
	const TupleTableSlotOps *slot_ops;
	/* Make a source with a batch that has this slot. */
	BatchSource *(*create) (Relation relation, TupleTableSlot *slot);
	/* Called once, when all columns have been added to the batch; may be NULL. */
	void		(*plan_columns) (BatchSource *source);
	/*
	 * Prepare to read from the start.  shared is NULL, or what
	 * table_parallelscan_initialize has made of the table; of a foreign one it is NULL.
	 */
	void		(*start) (BatchSource *source, Snapshot snapshot,
						  ParallelTableScanDesc shared);
	/*
	 * Fill the batch with up to rows_max rows, by batch_start; false where no row
	 * is left.  Fewer than BATCH_ROWS_MAX: the scan may be stopped early.
	 */
	bool		(*next) (BatchSource *source, int rows_max);
	/* Go back to the start; start is called before the next batch.  A foreign scan is rescanned already. */
	void		(*rescan) (BatchSource *source);
	/* Let go of all that it holds, but for the foreign scan.  It may be started again. */
	void		(*stop) (BatchSource *source);
} BatchSourceOps;

/* The head of every source. */
struct BatchSource
{
	const BatchSourceOps *ops;
	Relation	relation;
	TupleBatch *batch;
	ForeignScanState *foreign_scan; /* set when it is created; NULL: of no foreign table */
	struct BatchCounters *counters; /* heap's: what it did */
	bool		counts_only;	/* no column is needed: rows are only counted */
	bool		is_started;
};

/* What other libraries may call. */
typedef struct BatchServices
{
	TupleBatch *(*create_batch) (const TupleBatchOps *ops, TupleDesc descriptor,
								 TupleTableSlot *slot);
	/* Begin a batch of so many rows: no column of it is filled. */
	void		(*start_batch) (TupleBatch *batch, int row_count);
	/* Make room for BATCH_ROWS_MAX values. */
	void		(*allocate_vector) (Vector *vector);
	/* Fill a column from an attribute's Datums, with their dictionary; varlenas may be toasted. */
	void		(*fill_column) (BatchColumn *column, const Vector *datums,
								const Selection *selection);
	const int  *batch_rows;		/* the setting: rows a batch at most */
} BatchServices;

#define BATCHEXEC_REGISTER_SOURCE	"batchexec_register_source"

typedef const BatchServices *batchexec_register_source_type(const BatchSourceOps *ops,
															int version);

extern PGDLLEXPORT const BatchServices *batchexec_register_source(const BatchSourceOps *ops,
																  int version);
extern const BatchSourceOps *source_of_relation(Relation relation);
extern const BatchSourceOps *source_to_read(Relation relation);

#endif
