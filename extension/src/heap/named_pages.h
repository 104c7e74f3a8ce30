/*
 * named_pages.h
 *	  Pages of a heap table of which some rows are named: by a bitmap, or by an index.
 */
#ifndef BATCHEXEC_NAMED_PAGES_H
#define BATCHEXEC_NAMED_PAGES_H

#include "nodes/execnodes.h"
#include "storage/block.h"
#include "storage/off.h"
#include "utils/relcache.h"

#include "batch.h"

typedef struct NamedPages NamedPages;

typedef struct NamedPagesOps
{
	/* Prepare to name pages from the first one on, of a table of so many blocks. */
	void		(*start) (NamedPages *pages, BlockNumber block_count);
	/* Name the next page and its rows; InvalidBlockNumber at the end. */
	BlockNumber (*next) (NamedPages *pages);
	void		(*stop) (NamedPages *pages);
} NamedPagesOps;

struct NamedPages
{
	const NamedPagesOps *ops;
	PlanState  *plan;			/* that finds them */
	Relation	relation;
	bool		is_lossy;		/* any row of the current page may be meant */
	int			line_count;
	OffsetNumber lines[BATCH_ROWS_MAX];	/* the current page's rows, in their order */
};

/* bitmap_pages.c: by the plan of a bitmap, in the order of pages */
extern NamedPages *bitmap_pages_create(PlanState *plan, Relation relation);

/* index_pages.c: by an index scan, in the order of the index */
extern NamedPages *index_pages_create(PlanState *plan, Relation relation);

#endif
