/*
 * index_pages.c
 *	  The rows that an index scan finds, page by page.
 *
 * Rows that follow each other in the index, and lie on one page, are fetched together:
 * the page is pinned and locked once.  The idea is Peter Geoghegan's.  The scan of the
 * index is that of the executor's own node, which is not executed itself.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/plannodes.h"

#include "named_pages.h"
#include "server.h"

typedef struct IndexPages
{
	NamedPages	pages;			/* must be first */
	IndexScanState *scan;
	ScanDirection direction;
	ItemPointerData pending;	/* found, and not yet named */
	bool		has_pending;
	bool		is_finished;
} IndexPages;

/* Begin the scan of the index, as the executor does at its node's first row. */
static void
start_index_pages(NamedPages *pages_, BlockNumber block_count)
{
	IndexPages *pages = (IndexPages *) pages_;
	IndexScanState *scan = pages->scan;
	PlanState  *plan = &scan->ss.ps;

	(void) block_count;
	pages->has_pending = pages->is_finished = false;
	if (plan->chgParam != NULL || (scan->iss_NumRuntimeKeys != 0 && !scan->iss_RuntimeKeysReady))
		ExecReScan(plan);
	if (scan->iss_ScanDesc != NULL)
		return;
	scan->iss_ScanDesc = BEGIN_INDEX_SCAN(pages_->relation, scan, plan->state->es_snapshot);
	index_rescan(scan->iss_ScanDesc, scan->iss_ScanKeys, scan->iss_NumScanKeys,
				 scan->iss_OrderByKeys, scan->iss_NumOrderByKeys);
}

/* Find the next row of the index; false at its end. */
static bool
find_row(IndexPages *pages)
{
	ItemPointer row;

	if (pages->has_pending)
		return true;
	if (pages->is_finished)
		return false;
	CHECK_FOR_INTERRUPTS();
	row = index_getnext_tid(pages->scan->iss_ScanDesc, pages->direction);
	if (row == NULL)
	{
		pages->is_finished = true;
		return false;
	}
	if (pages->scan->iss_ScanDesc->xs_recheck)
		elog(ERROR, "rows of a B-tree index need no recheck");
	Assert(!pages->has_pending);
	pages->pending = *row;
	pages->has_pending = true;
	return true;
}

static BlockNumber
next_index_page(NamedPages *pages_)
{
	IndexPages *pages = (IndexPages *) pages_;
	NodeInstrumentation *instrument = pages->scan->ss.ps.instrument;
	BlockNumber block = InvalidBlockNumber;

	if (instrument != NULL)
		InstrStartNode(instrument);
	Assert(pages->scan->iss_ScanDesc != NULL);
	pages_->line_count = 0;
	while (pages_->line_count < BATCH_ROWS_MAX && find_row(pages))
	{
		if (block == InvalidBlockNumber)
			block = ItemPointerGetBlockNumber(&pages->pending);
		else if (block != ItemPointerGetBlockNumber(&pages->pending))
			break;
		pages_->lines[pages_->line_count++] = ItemPointerGetOffsetNumber(&pages->pending);
		Assert(ItemPointerIsValid(&pages->pending));
		pages->has_pending = false;
	}
	if (instrument != NULL)
		InstrStopNode(instrument, pages_->line_count);
	Assert((block == InvalidBlockNumber) == (pages_->line_count == 0));
	return block;
}

/* The executor's node ends its scan. */
static void
stop_index_pages(NamedPages *pages)
{
	(void) pages;
}

static const NamedPagesOps index_pages_ops = {
	.start = start_index_pages,
	.next = next_index_page,
	.stop = stop_index_pages,
};

NamedPages *
index_pages_create(PlanState *plan, Relation relation)
{
	IndexPages *pages = palloc0(sizeof(IndexPages));

	pages->pages.ops = &index_pages_ops;
	pages->pages.plan = plan;
	pages->pages.relation = relation;
	pages->scan = castNode(IndexScanState, plan);
	pages->direction = ((const IndexScan *) plan->plan)->indexorderdir;
	return &pages->pages;
}
