/*
 * kept_rows.h
 *	  Rows of a node's batches that are kept in files, and come in its batches again.
 */
#ifndef BATCHEXEC_KEPT_ROWS_H
#define BATCHEXEC_KEPT_ROWS_H

#include "row_file.h"

/* A column of the batches that is kept. */
typedef struct KeptColumn
{
	AttrNumber	attno;
	BatchColumn *words;			/* what a Datum is made of; NULL: it is taken from a row */
} KeptColumn;

typedef struct KeptRows
{
	TupleBatch *batch;
	Bitmapset  *attributes;		/* that are kept, numbered from 0 */
	KeptColumn *columns;		/* the same */
	int			column_count;

	/* once a row is kept */
	RowFormat  *format;
	Datum	   *values;			/* of a row that is written */
	bool	   *nulls;
	uint64		filled_generation;	/* of the batch whose columns have been filled */

	/* while the batch is filled from files */
	MemoryContext row_memory;
	DatumBatch *rows;			/* NULL: it is filled by its node */
	BatchContents of_node;		/* that the batch has otherwise */
} KeptRows;

extern Bitmapset *kept_attributes(const Node *expressions, int varno);
extern void kept_rows_plan(KeptRows *kept, TupleBatch *batch, Bitmapset *attributes);
extern void kept_rows_begin(KeptRows *kept);
extern void kept_rows_write(KeptRows *kept, RowFile *file, int row, uint64 hash);
extern void kept_rows_start_reading(KeptRows *kept);
extern void kept_rows_start_batch(KeptRows *kept);
extern void kept_rows_add(KeptRows *kept, const FileRow *row);
extern void kept_rows_end(KeptRows *kept);

static inline bool
kept_rows_is_full(const KeptRows *kept)
{
	return kept->rows->row_count == BATCH_ROWS_MAX;
}

#endif
