/*
 * instrument.h
 *	  What a batched node did, for EXPLAIN (ANALYZE).
 */
#ifndef BATCHEXEC_INSTRUMENT_H
#define BATCHEXEC_INSTRUMENT_H

#include "access/parallel.h"
#include "nodes/execnodes.h"

#include "server.h"

/* Batches are counted by their rows: 1, 2 to 3, 4 to 7, and so on. */
#define BATCH_SIZE_CLASSES	12

typedef struct BatchCounters
{
	uint64		batches;
	uint64		sizes[BATCH_SIZE_CLASSES];
	uint64		rows;
	uint64		rows_max;
	uint64		ended_page;		/* the page had no more rows */
	uint64		ended_capacity; /* batchexec.batch_rows */
	uint64		ended_scan;		/* the table had no more rows */
	uint64		ended_limit;	/* kept small, as the consumer may stop soon */
	uint64		ended_irregular;	/* as ended_page, of an irregular page */
	uint64		pages;
	uint64		pages_irregular;	/* with NULLs, or with tuples older than a column */
	uint64		pages_lossy;	/* of a bitmap that names no rows of them */
	uint64		batches_by_row; /* an expression had to go by row */
	uint64		rows_beyond_top;	/* that a Sort above would not return */
	uint64		groups;
	uint64		group_flushes;	/* partial groups emitted early */
	uint64		sparse_batches; /* whose rows waited for those of others */
	uint64		compacted_batches;	/* that were made of these */
} BatchCounters;

/* Counters of the leader and of each worker, in dynamic shared memory. */
typedef struct SharedCounters
{
	int			worker_count;
	BatchCounters workers[FLEXIBLE_ARRAY_MEMBER];
} SharedCounters;

extern void counters_note_batch(BatchCounters *counters, int rows);
extern Size counters_shared_bytes(int worker_count);
extern void counters_add(BatchCounters *sum, const BatchCounters *counters);
extern void counters_add_shared(BatchCounters *sum, const SharedCounters *shared);
extern void counters_explain_compaction(const BatchCounters *counters, ExplainState *es);
extern void counters_explain(const BatchCounters *counters, ExplainState *es);

#endif
