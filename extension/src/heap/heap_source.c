/*
 * heap_source.c
 *	  Pages of a heap table to batches.
 *
 * The order of pages, the buffer strategy and synchronised scans are those of
 * the table scan descriptor that core makes.  The page loop is our own: pages in shared
 * buffers are pinned one by one, and others come in a stream of the server's, which reads several at once.
 */
#include "postgres.h"

#include "access/relscan.h"
#include "access/syncscan.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "batchexec.h"
#include "heap_source.h"
#include "heap_page.h"
#include "server.h"

/*
 * A scan that may be stopped early reads ahead only once it has read this many
 * pages, so that it pins few that it will not need.
 */
#define PAGES_BEFORE_READ_AHEAD	8

/* A stream that has read nothing for so many pages is given up: pages that are in shared buffers are pinned faster without. */
#define STREAM_PAGES_WITHOUT_READ	128

/* Blocks that this process has read into buffers. */
static int64
count_blocks_read(void)
{
	return pgBufferUsage.shared_blks_read + pgBufferUsage.local_blks_read;
}

/* Pin a block: in the buffer that is guessed, or else by the mapping hash. */
static Buffer
pin_block(HeapSource *source, BlockNumber block)
{
	Relation	relation = source->base.relation;
	Buffer		buffer = buffer_guess(&source->guesses, block);

	Assert(block < source->heap_scan->rs_nblocks);
	if (BufferIsValid(buffer) &&
		ReadRecentBuffer(relation->rd_locator, MAIN_FORKNUM, block, buffer))
	{
		pgstat_count_buffer_read(relation);
		pgstat_count_buffer_hit(relation);
	}
	else
		buffer = ReadBufferExtended(relation, MAIN_FORKNUM, block, RBM_NORMAL,
									source->heap_scan->rs_strategy);
	buffer_guesses_learn(&source->guesses, block, buffer);
	Assert(BufferIsValid(buffer) && BufferGetBlockNumber(buffer) == block);
	return buffer;
}

static void
release_page(HeapPage *page)
{
	if (BufferIsValid(page->buffer))
		ReleaseBuffer(page->buffer);
	page->buffer = InvalidBuffer;
	page->row_count = 0;
}

/* The next block of a serial scan, from the start block round to it. */
static BlockNumber
next_serial_block(HeapSource *source)
{
	HeapScanDesc scan = source->heap_scan;
	BlockNumber block = source->next_block;
	Assert(source->blocks_left <= scan->rs_nblocks);

	if (source->blocks_left == 0)
		return InvalidBlockNumber;
	source->blocks_left--;
	source->next_block = (block + 1 < scan->rs_nblocks) ? block + 1 : 0;
	if (scan->rs_base.rs_flags & SO_ALLOW_SYNC)
		ss_report_location(source->base.relation, source->next_block);
	return block;
}

static BlockNumber
next_block(HeapSource *source)
{
	HeapScanDesc scan = source->heap_scan;

	if (source->named != NULL)
		return source->named->ops->next(source->named);
	if (scan->rs_base.rs_parallel == NULL)
		return next_serial_block(source);
	return table_block_parallelscan_nextpage(source->base.relation,
											 scan->rs_parallelworkerdata,
											 (ParallelBlockTableScanDesc) scan->rs_base.rs_parallel);
}

/* The next block that a stream is to read. */
static BlockNumber
next_block_of_stream(ReadStream *stream, void *source_, void *buffer_data)
{
	HeapSource *source = source_;

	(void) stream;
	(void) buffer_data;
	return source->stream_ends ? InvalidBlockNumber : next_block(source);
}

static void
end_stream(HeapSource *source)
{
	if (source->stream != NULL)
		read_stream_end(source->stream);
	source->stream = NULL;
}

/* Have the blocks from the next one on be read in a stream. */
static void
begin_stream(HeapSource *source)
{
	Assert(source->stream == NULL && source->named == NULL);
	source->stream_ends = false;
	source->stream_pages = 0;
	source->blocks_read = count_blocks_read();
	source->stream = read_stream_begin_relation(READ_STREAM_FLAGS, source->heap_scan->rs_strategy,
												source->base.relation, MAIN_FORKNUM,
												next_block_of_stream, source, 0);
}

/*
 * The next page of the stream.  False at its end: of the scan, or as it has found the blocks in
 * shared buffers for a while; then there is no stream any more.
 */
static bool
pin_block_of_stream(HeapSource *source, HeapPage *page)
{
	const int64 blocks_read = count_blocks_read();

	page->buffer = read_stream_next_buffer(source->stream, NULL);
	if (!BufferIsValid(page->buffer))
	{
		source->is_finished = !source->stream_ends;
		end_stream(source);
		return false;
	}
	page->block = BufferGetBlockNumber(page->buffer);
	Assert(page->block < source->heap_scan->rs_nblocks);
	source->stream_pages++;
	if (blocks_read != source->blocks_read)
	{
		source->blocks_read = blocks_read;
		source->stream_pages = 0;
	}
	source->stream_ends |= source->stream_pages >= STREAM_PAGES_WITHOUT_READ;
	return true;
}

/* Pin the next page, by itself; where it had to be read, those behind it come in a stream. */
static bool
pin_next_block(HeapSource *source, HeapPage *page)
{
	const int64 blocks_read = count_blocks_read();

	page->block = next_block(source);
	if (page->block == InvalidBlockNumber)
	{
		source->is_finished = true;
		return false;
	}
	page->buffer = pin_block(source, page->block);
	if (READ_STREAMS_EXIST && source->reads_ahead && source->named == NULL &&
		count_blocks_read() != blocks_read)
		begin_stream(source);
	return true;
}

/* Load the next page of the scan; false at its end. */
static bool
load_next(HeapSource *source, HeapPage *page)
{
	if (source->is_finished)
		return false;
	CHECK_FOR_INTERRUPTS();
	if ((source->stream == NULL || !pin_block_of_stream(source, page)) &&
		(source->is_finished || !pin_next_block(source, page)))
		return false;
	Assert(BufferIsValid(page->buffer) && BufferGetBlockNumber(page->buffer) == page->block);
	heap_page_load(source, page);
	Assert(page->row_count >= 0 && page->row_count <= BATCH_ROWS_MAX);
	if (source->reads_ahead && source->named == NULL && source->stream == NULL)
		heap_page_prefetch(buffer_guess(&source->guesses, page->block + BLOCKS_AHEAD),
						   page->row_count, source->base.counts_only);
	source->base.counters->pages++;
	if (source->named != NULL && source->named->is_lossy)
		source->base.counters->pages_lossy++;
	source->pages_loaded++;
	return true;
}

static const TupleBatchOps heap_batch_ops;

static bool
reads_heap(Relation relation)
{
	return relation->rd_tableam == GetHeapamTableAmRoutine();
}

static BatchSource *
create_heap_source(Relation relation, TupleTableSlot *slot)
{
	HeapSource *source = palloc0(sizeof(HeapSource));
	HeapBatch  *batch = &source->batch;

	source->base.ops = &heap_source_ops;
	source->base.relation = relation;
	source->base.batch = &batch->base;
	batch_begin(&batch->base, &heap_batch_ops, RelationGetDescr(relation), slot);
	batch->table_oid = RelationGetRelid(relation);
	batch->buffer = InvalidBuffer;
	return &source->base;
}

static void
plan_heap_columns(BatchSource *base)
{
	HeapBatch  *batch = &((HeapSource *) base)->batch;

	deform_plan(batch);
	batch->prefetch_bytes = deform_prefetch_bytes(batch);
}

/* What core knows of a scan.  Pages that are named are our own matter. */
static TableScanDesc
begin_scan(HeapSource *source, Snapshot snapshot, ParallelTableScanDesc shared)
{
	Relation	relation = source->base.relation;

	if (source->named != NULL)
		return table_beginscan_tid(relation, snapshot);
	return shared != NULL ? BEGIN_PARALLEL_SCAN(relation, shared) :
		BEGIN_SCAN(relation, snapshot);
}

/* Prepare a scan, of all of the table or of this process's share, from its first page. */
static void
start_heap_source(BatchSource *base, Snapshot snapshot, ParallelTableScanDesc shared)
{
	HeapSource *source = (HeapSource *) base;
	TableScanDesc scan = source->scan;
	HeapScanDesc heap_scan;

	if (scan == NULL)
		scan = begin_scan(source, snapshot, shared);
	Assert(reads_heap(base->relation));
	Assert(!base->is_started);
	heap_scan = (HeapScanDesc) scan;
	source->scan = scan;
	source->heap_scan = heap_scan;
	source->snapshot = scan->rs_snapshot;
	Assert(source->named != NULL || IsMVCCSnapshot(source->snapshot));
	source->page = &source->pages[0];
	source->pages_ahead = 0;
	source->pages_loaded = 0;
	for (int i = 0; i < PAGES_HELD_MAX; i++)
		source->pages[i].buffer = InvalidBuffer;
	source->page->row_count = 0;
	source->row_next = 0;
	source->is_finished = false;
	source->end_is_pending = false;
	buffer_guesses_start(&source->guesses, source->base.relation,
						 heap_scan->rs_nblocks);
	source->next_block = heap_scan->rs_startblock;
	source->blocks_left = heap_scan->rs_nblocks;
	if (scan->rs_parallel != NULL)
		START_PARALLEL_SCAN(source->base.relation, heap_scan->rs_parallelworkerdata,
							(ParallelBlockTableScanDesc) scan->rs_parallel);
	if (source->named != NULL)
		source->named->ops->start(source->named, heap_scan->rs_nblocks);
	source->base.is_started = true;
}

void
heap_source_set_read_only(BatchSource *base)
{
	Assert(base->ops == &heap_source_ops);
	((HeapSource *) base)->is_read_only = true;
}

void
heap_source_read_named(BatchSource *base, NamedPages *pages)
{
	Assert(base->ops == &heap_source_ops && ((HeapSource *) base)->named == NULL);
	((HeapSource *) base)->named = pages;
}

/* The page of the ring that is some pages after the current one. */
static HeapPage *
page_after(HeapSource *source, int distance)
{
	int			current = source->page - source->pages;
	Assert(current >= 0 && current < PAGES_HELD_MAX);
	Assert(distance >= 0 && distance < PAGES_HELD_MAX);

	return &source->pages[(current + distance) % PAGES_HELD_MAX];
}

/* Make the next page with a visible row the current one. */
static bool
advance_page(HeapSource *source)
{
	do
	{
		Assert(source->pages_ahead >= 0 && source->pages_ahead < PAGES_HELD_MAX);
		release_page(source->page);
		if (source->pages_ahead > 0)
		{
			source->page = page_after(source, 1);
			source->pages_ahead--;
		}
		else if (!load_next(source, source->page))
			return false;
		while (source->reads_ahead && source->pages_ahead < PAGES_HELD_MAX - 1 &&
			   load_next(source, page_after(source, source->pages_ahead + 1)))
			source->pages_ahead++;
	} while (source->page->row_count == 0);
	Assert(BufferIsValid(source->page->buffer));
	source->row_next = 0;
	return true;
}

/* Say why the last batch ended, now that it is known what follows it. */
static void
count_end(HeapSource *source, bool is_scan_end)
{
	if (!source->end_is_pending)
		return;
	source->end_is_pending = false;
	if (is_scan_end)
		source->base.counters->ended_scan++;
	else if (source->page_is_irregular)
		source->base.counters->ended_irregular++;
	else
		source->base.counters->ended_page++;
}

/* How many rows of the page the next batch takes. */
static int
batch_size(HeapSource *source, int rows_max)
{
	int			rows = source->page->row_count - source->row_next;

	Assert(rows > 0 && rows_max > 0);
	if (rows <= Min(rows_max, batchexec_batch_rows))
	{
		source->end_is_pending = true;
		return rows;
	}
	if (rows_max <= batchexec_batch_rows)
	{
		source->base.counters->ended_limit++;
		return rows_max;
	}
	source->base.counters->ended_capacity++;
	return batchexec_batch_rows;
}

/* Note whether the batch that was just consumed was of an irregular page. */
static void
note_irregular_page(HeapSource *source)
{
	HeapBatch  *batch = &source->batch;

	if (batch->headers_generation == batch->base.generation &&
		!batch->is_regular && !source->page_is_irregular)
	{
		source->page_is_irregular = true;
		source->base.counters->pages_irregular++;
	}
}

/* Let the batches of a page prefetch the tuples of the next page. */
static void
offer_prefetch(HeapSource *source)
{
	HeapBatch  *batch = &source->batch;
	HeapPage   *next = page_after(source, 1);

	if (source->row_next > 0)
		return;
	deform_prefetch_rest(batch);
	if (source->pages_ahead > 0)
		deform_offer_prefetch(batch, next->tuples, next->row_count, next->data,
							  next->data_bytes);
	else
		deform_offer_prefetch(batch, NULL, 0, NULL, 0);
}

/* Count rows as the stock server does: what an index leads to is fetched. */
static void
count_rows(const HeapSource *source, int rows)
{
	Relation	relation = source->base.relation;

	if (!pgstat_should_count_relation(relation))
		return;
	if (source->named != NULL)
		COUNT_FETCHED(relation, rows);
	else
		COUNT_RETURNED(relation, rows);
}

/*
 * Fill the batch with the next rows; false at the end of the scan.  Where
 * fewer than BATCH_ROWS_MAX are asked for, the scan may be stopped.
 */
static bool
next_heap_batch(BatchSource *base, int rows_max)
{
	HeapSource *source = (HeapSource *) base;
	HeapBatch  *batch = &source->batch;
	HeapPage   *page;
	int			rows;

	Assert(base->is_started);
	note_irregular_page(source);
	source->reads_ahead = rows_max >= BATCH_ROWS_MAX ||
		source->pages_loaded >= PAGES_BEFORE_READ_AHEAD;
	if (source->row_next >= source->page->row_count)
	{
		bool		found = advance_page(source);

		count_end(source, !found);
		if (!found)
			return false;
		source->page_is_irregular = false;
	}
	page = source->page;
	rows = batch_size(source, rows_max);
	Assert(rows > 0 && rows <= Min(rows_max, batchexec_batch_rows));
	Assert(source->row_next + rows <= page->row_count);
	batch->tuples = page->tuples + source->row_next;
	batch->line_pointers = page->line_pointers + source->row_next;
	batch->buffer = page->buffer;
	batch->block = page->block;
	batch_start(&batch->base, rows);
	offer_prefetch(source);
	source->row_next += rows;
	count_rows(source, rows);
	return true;
}

/* Let go of all pages. */
static void
release_pages(HeapSource *source)
{
	if (!source->base.is_started)
		return;
	note_irregular_page(source);
	Assert(source->page >= source->pages && source->page < source->pages + PAGES_HELD_MAX);
	for (int i = 0; i < PAGES_HELD_MAX; i++)
		release_page(&source->pages[i]);
	source->pages_ahead = 0;
	end_stream(source);
	if (source->named != NULL)
		source->named->ops->stop(source->named);
	source->base.is_started = false;
	source->batch.headers_generation = 0;
	Assert(source->stream == NULL);
}

static void
rescan_heap_source(BatchSource *base)
{
	HeapSource *source = (HeapSource *) base;

	release_pages(source);
	if (source->scan != NULL)
		table_rescan(source->scan, NULL);
}

static void
stop_heap_source(BatchSource *base)
{
	HeapSource *source = (HeapSource *) base;

	release_pages(source);
	if (source->scan != NULL)
		table_endscan(source->scan);
	source->scan = NULL;
}

static TupleTableSlot *
materialise_heap_row(TupleBatch *base, int row)
{
	HeapBatch  *batch = (HeapBatch *) base;
	HeapTuple	tuple = &batch->row_tuple;
	Page		page = BufferGetPage(batch->buffer);
	OffsetNumber line_pointer = batch->line_pointers[row];

	Assert(row >= 0 && row < base->row_count);
	Assert(BufferIsValid(batch->buffer) && BufferGetBlockNumber(batch->buffer) == batch->block);
	Assert(line_pointer <= PageGetMaxOffsetNumber(page));
	tuple->t_data = (HeapTupleHeader) batch->tuples[row];
	tuple->t_len = ItemIdGetLength(PageGetItemId(page, line_pointer));
	Assert(batch->tuples[row] == (char *) PageGetItem(page, PageGetItemId(page, line_pointer)));
	ItemPointerSet(&tuple->t_self, batch->block, line_pointer);
	tuple->t_tableOid = batch->table_oid;
	return ExecStoreBufferHeapTuple(tuple, batch->base.slot, batch->buffer);
}

static void
release_heap_batch(TupleBatch *batch)
{
	ExecClearTuple(batch->slot);
}

static const TupleBatchOps heap_batch_ops = {
	.fill_column = deform_column,
	.materialise_row = materialise_heap_row,
	.release = release_heap_batch,
};

const BatchSourceOps heap_source_ops = {
	.name = "heap",
	.reads = reads_heap,
	.slot_ops = &TTSOpsBufferHeapTuple,
	.create = create_heap_source,
	.plan_columns = plan_heap_columns,
	.start = start_heap_source,
	.next = next_heap_batch,
	.rescan = rescan_heap_source,
	.stop = stop_heap_source,
};
