/*
 * instrument.c
 *	  Counters of a batched node, and how EXPLAIN shows them.
 */
#include "postgres.h"

#include "port/pg_bitutils.h"

#include "batch.h"
#include "batchexec.h"
#include "instrument.h"

StaticAssertDecl(BATCH_ROWS_MAX < (1 << BATCH_SIZE_CLASSES),
				 "the largest batch must belong to a class of sizes");

/* Count a batch of so many rows. */
void
counters_note_batch(BatchCounters *counters, int rows)
{
	Assert(rows >= 0 && rows <= BATCH_ROWS_MAX);
	counters->batches++;
	counters->rows += rows;
	counters->rows_max = Max(counters->rows_max, (uint64) rows);
	counters->sizes[pg_leftmost_one_pos32((uint32) Max(rows, 1))]++;
}

Size
counters_shared_bytes(int worker_count)
{
	return offsetof(SharedCounters, workers) +
		sizeof(BatchCounters) * Max(worker_count, 1);
}

void
counters_add(BatchCounters *sum, const BatchCounters *counters)
{
	sum->batches += counters->batches;
	for (int i = 0; i < BATCH_SIZE_CLASSES; i++)
		sum->sizes[i] += counters->sizes[i];
	sum->rows += counters->rows;
	sum->rows_max = Max(sum->rows_max, counters->rows_max);
	sum->ended_page += counters->ended_page;
	sum->ended_capacity += counters->ended_capacity;
	sum->ended_scan += counters->ended_scan;
	sum->ended_limit += counters->ended_limit;
	sum->ended_irregular += counters->ended_irregular;
	sum->pages += counters->pages;
	sum->pages_irregular += counters->pages_irregular;
	sum->pages_lossy += counters->pages_lossy;
	sum->batches_by_row += counters->batches_by_row;
	sum->rows_beyond_top += counters->rows_beyond_top;
	sum->groups += counters->groups;
	sum->group_flushes += counters->group_flushes;
	sum->sparse_batches += counters->sparse_batches;
	sum->compacted_batches += counters->compacted_batches;
}

void
counters_add_shared(BatchCounters *sum, const SharedCounters *shared)
{
	for (int i = 0; i < shared->worker_count; i++)
		counters_add(sum, &shared->workers[i]);
}

/* Batches whose end was not seen: the consumer stopped asking. */
static uint64
ended_by_consumer(const BatchCounters *counters)
{
	uint64		known = counters->ended_page + counters->ended_capacity +
		counters->ended_scan + counters->ended_limit +
		counters->ended_irregular;

	return counters->ended_limit +
		(counters->batches > known ? counters->batches - known : 0);
}

/* The most rows of a batch of a class. */
static int
class_rows_max(int class)
{
	return Min((2 << class) - 1, BATCH_ROWS_MAX);
}

static void
explain_sizes_text(const BatchCounters *counters, ExplainState *es)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int class = 0; class < BATCH_SIZE_CLASSES; class++)
	{
		if (counters->sizes[class] == 0)
			continue;
		appendStringInfo(&text, "%s%d", text.len == 0 ? "" : " ", 1 << class);
		if (class > 0)
			appendStringInfo(&text, "-%d", class_rows_max(class));
		appendStringInfo(&text, "=" UINT64_FORMAT, counters->sizes[class]);
	}
	if (text.len > 0)
		ExplainPropertyText("Batch Sizes", text.data, es);
	pfree(text.data);
}

static void
explain_sizes_fields(const BatchCounters *counters, ExplainState *es)
{
	ExplainOpenGroup("Batch Sizes", "Batch Sizes", false, es);
	for (int class = 0; class < BATCH_SIZE_CLASSES; class++)
	{
		if (counters->sizes[class] == 0)
			continue;
		ExplainOpenGroup("Batch Size", NULL, true, es);
		ExplainPropertyInteger("Rows Min", NULL, 1 << class, es);
		ExplainPropertyInteger("Rows Max", NULL, class_rows_max(class), es);
		ExplainPropertyUInteger("Batches", NULL, counters->sizes[class], es);
		ExplainCloseGroup("Batch Size", NULL, true, es);
	}
	ExplainCloseGroup("Batch Sizes", "Batch Sizes", false, es);
}

static void
explain_text(const BatchCounters *counters, ExplainState *es)
{
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfo(&text, UINT64_FORMAT " (rows mean %.1f, max " UINT64_FORMAT ")",
					 counters->batches,
					 counters->batches == 0 ? 0.0 :
					 (double) counters->rows / (double) counters->batches,
					 counters->rows_max);
	ExplainPropertyText("Batches", text.data, es);
	explain_sizes_text(counters, es);
	/* Heap alone knows of pages, and why its batches end. */
	if (counters->batches > 0 && counters->pages == 0)
	{
		pfree(text.data);
		return;
	}
	resetStringInfo(&text);
	appendStringInfo(&text, "page=" UINT64_FORMAT " capacity=" UINT64_FORMAT
					 " scan end=" UINT64_FORMAT " limit=" UINT64_FORMAT
					 " irregular page=" UINT64_FORMAT,
					 counters->ended_page, counters->ended_capacity,
					 counters->ended_scan, ended_by_consumer(counters),
					 counters->ended_irregular);
	ExplainPropertyText("Batches Ended", text.data, es);
	resetStringInfo(&text);
	appendStringInfo(&text, UINT64_FORMAT " of " UINT64_FORMAT,
					 counters->pages_irregular, counters->pages);
	ExplainPropertyText("Irregular Pages", text.data, es);
	pfree(text.data);
}

static void
explain_fields(const BatchCounters *counters, ExplainState *es)
{
	ExplainPropertyUInteger("Batches", NULL, counters->batches, es);
	ExplainPropertyUInteger("Batch Rows", NULL, counters->rows, es);
	ExplainPropertyUInteger("Batch Rows Max", NULL, counters->rows_max, es);
	explain_sizes_fields(counters, es);
	ExplainPropertyUInteger("Batches Ended by Page", NULL, counters->ended_page, es);
	ExplainPropertyUInteger("Batches Ended by Capacity", NULL, counters->ended_capacity, es);
	ExplainPropertyUInteger("Batches Ended by Scan End", NULL, counters->ended_scan, es);
	ExplainPropertyUInteger("Batches Ended by Limit", NULL, ended_by_consumer(counters), es);
	ExplainPropertyUInteger("Batches Ended by Irregular Page", NULL, counters->ended_irregular, es);
	ExplainPropertyUInteger("Pages", NULL, counters->pages, es);
	ExplainPropertyUInteger("Irregular Pages", NULL, counters->pages_irregular, es);
}

/* Show how many of the batches below a node came together; only where it ran. */
void
counters_explain_compaction(const BatchCounters *counters, ExplainState *es)
{
	if (!batchexec_explain || !es->analyze)
		return;
	if (es->format != EXPLAIN_FORMAT_TEXT)
	{
		ExplainPropertyUInteger("Sparse Batches", NULL, counters->sparse_batches, es);
		ExplainPropertyUInteger("Compacted Batches", NULL, counters->compacted_batches, es);
	}
	else if (counters->sparse_batches > 0)
		ExplainPropertyText("Sparse Batches",
							psprintf(UINT64_FORMAT " (compacted to " UINT64_FORMAT ")",
									 counters->sparse_batches, counters->compacted_batches), es);
}

/* Show what a node did; only where it ran. */
void
counters_explain(const BatchCounters *counters, ExplainState *es)
{
	/* Programs want the same fields each time. */
	const bool	is_complete = es->format != EXPLAIN_FORMAT_TEXT;

	if (!batchexec_explain || !es->analyze)
		return;
	if (es->format == EXPLAIN_FORMAT_TEXT)
		explain_text(counters, es);
	else
		explain_fields(counters, es);
	if (counters->pages_lossy > 0 || is_complete)
		ExplainPropertyUInteger("Lossy Pages", NULL, counters->pages_lossy, es);
	if (counters->batches_by_row > 0 || is_complete)
		ExplainPropertyUInteger("Batches Evaluated by Row", NULL,
								counters->batches_by_row, es);
	if (counters->rows_beyond_top > 0 || is_complete)
		ExplainPropertyUInteger("Rows Removed by Sort Bound", NULL,
								counters->rows_beyond_top, es);
	if (counters->group_flushes > 0 || is_complete)
		ExplainPropertyUInteger("Partial Group Flushes", NULL,
								counters->group_flushes, es);
	counters_explain_compaction(counters, es);
}
