/*
 * heap_source.h
 *	  A heap table as a source of batches.
 */
#ifndef BATCHEXEC_HEAP_SOURCE_H
#define BATCHEXEC_HEAP_SOURCE_H

#include "access/heapam.h"

#include "buffer_guess.h"
#include "heap_batch.h"
#include "instrument.h"
#include "named_pages.h"
#include "source.h"
#include "server.h"

/* Pages pinned at once: the current one, and those being prefetched. */
#define PAGES_HELD_MAX	2

/* The visible tuples of one pinned page. */
typedef struct HeapPage
{
	Buffer		buffer;
	BlockNumber block;
	int			row_count;
	const char *data;			/* of all tuples, visible or not */
	int			data_bytes;
	char	   *tuples[BATCH_ROWS_MAX];
	uint16		line_pointers[BATCH_ROWS_MAX];
} HeapPage;

typedef struct HeapSource
{
	BatchSource base;			/* must be first */
	HeapBatch	batch;
	Snapshot	snapshot;
	TableScanDesc scan;			/* NULL: not begun */
	HeapScanDesc heap_scan;
	NamedPages *named;			/* the pages to read; NULL: all */
	bool		is_read_only;	/* the statement does not change or lock the table's rows */
	bool		reads_ahead;	/* the next page will be asked for, too */

	/* reads of several blocks at once, where they are not in shared buffers */
	ReadStream *stream;			/* NULL: blocks are read one by one */
	bool		stream_ends;	/* it is to hand out no block beyond those that it has begun to read */
	int			stream_pages;	/* since blocks were last seen to be read */
	int64		blocks_read;	/* by this process, when they were */

	/* where the scan is */
	bool		is_finished;
	BlockNumber next_block;		/* serial: the block to load next */
	BlockNumber blocks_left;	/* serial */
	HeapPage	pages[PAGES_HELD_MAX];	/* a ring */
	HeapPage   *page;			/* the current page; its buffer may be invalid */
	int			pages_ahead;	/* pages after it that are already loaded */
	BlockNumber pages_loaded;	/* by this process, since the scan began */
	int			row_next;		/* of page: first row of the next batch */
	bool		end_is_pending; /* the last batch came to its page's end */
	bool		page_is_irregular;
	BufferGuesses guesses;
} HeapSource;

extern const BatchSourceOps heap_source_ops;

/* The statement does not change or lock rows of the table: the scan may mark pages all-visible. */
extern void heap_source_set_read_only(BatchSource *source);

/* Read only rows that are named. */
extern void heap_source_read_named(BatchSource *source, NamedPages *pages);

#endif
