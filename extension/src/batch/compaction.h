/*
 * compaction.h
 *	  The rows of several sparse batches as one.
 *
 * What is done for each batch, whatever its rows, is most of the work where a filter or a join
 * leaves a few of them.  Such rows are copied until there are enough; the batch that expressions
 * are compiled over then shows them in place of those of its node.
 */
#ifndef BATCHEXEC_COMPACTION_H
#define BATCHEXEC_COMPACTION_H

#include "instrument.h"
#include "kept_rows.h"

/*
 * Selected rows of a batch that is called sparse, at most: the work for each batch then exceeds that of
 * copying its rows.  With 8, joins of 4 to 8 rows a page gain half as much; of more rows, copying costs as much as it spares.
 */
#define SPARSE_ROWS_MAX			16

/* Bytes that collected rows point to: beyond, they wait for no more of them. */
#define COMPACTION_BYTES_MAX	(1024 * 1024)

typedef struct Compaction
{
	const KeptRows *kept;		/* the batch, and the columns that are read of its rows; NULL: never */
	TupleTableSlot *slot;		/* of collected rows; NULL: none was collected yet */
	DatumBatch *rows;
	MemoryContext values;		/* that they point to */
	bool		is_shown;		/* in place of the node's rows */
	uint64		shown_count;	/* how often */

	/* the node's batch, while others are shown in its place */
	BatchContents contents;
	int			row_count;
	uint64		generation;
	Selection	selection;
	uint16		selected_rows[BATCH_ROWS_MAX];
} Compaction;

extern void compaction_begin(Compaction *compaction, const KeptRows *kept);
extern bool compaction_take(Compaction *compaction, EState *estate, BatchCounters *counters);
extern bool compaction_is_full(const Compaction *compaction);
extern void compaction_show(Compaction *compaction, BatchCounters *counters);
extern void compaction_hide(Compaction *compaction);
extern void compaction_forget(Compaction *compaction);

/* Do rows wait for others? */
static inline bool
compaction_has_rows(const Compaction *compaction)
{
	return compaction->rows != NULL && compaction->rows->row_count > 0;
}

#endif
