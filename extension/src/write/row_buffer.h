/*
 * row_buffer.h
 *	  Rows of a heap table that wait to be written together.
 */
#ifndef BATCHEXEC_ROW_BUFFER_H
#define BATCHEXEC_ROW_BUFFER_H

#include "access/tableam.h"
#include "executor/tuptable.h"

#include "batch_limits.h"

typedef struct RowBuffer
{
	Relation	relation;
	MemoryContext memory;		/* of the slots */
	MemoryContext scratch;		/* of what writing rows allocates */
	TupleTableSlot *slots[INSERT_BATCH_ROWS_MAX];	/* made when they are needed */
	int			row_count;		/* rows that wait */
	Size		row_bytes;
	uint64		rows_written;
	uint64		batches_written;
} RowBuffer;

/* The buffer lives in zeroed memory; its slots in the current memory context. */
extern void row_buffer_begin(RowBuffer *buffer, Relation relation);

/* Keep a copy of a row. */
extern void row_buffer_keep(RowBuffer *buffer, TupleTableSlot *row);

/* Have as many rows been kept as are to be written together? */
static inline bool
row_buffer_is_full(const RowBuffer *buffer)
{
	return buffer->row_count == INSERT_BATCH_ROWS_MAX || buffer->row_bytes >= INSERT_BATCH_BYTES_MAX;
}

/* Write the rows that wait.  They stay in their slots, with their places, until they are forgotten. */
extern void row_buffer_write(RowBuffer *buffer, CommandId command, int options,
							 struct BulkInsertStateData *bulk);

extern void row_buffer_forget(RowBuffer *buffer);

/* Let go of the slots, and of rows that have not been written. */
extern void row_buffer_end(RowBuffer *buffer);

#endif
