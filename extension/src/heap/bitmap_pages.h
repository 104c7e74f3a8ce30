/*
 * bitmap_pages.h
 *	  The pages of a heap table that a bitmap names, in the order of their numbers.
 */
#ifndef BATCHEXEC_BITMAP_PAGES_H
#define BATCHEXEC_BITMAP_PAGES_H

#include "nodes/execnodes.h"
#include "nodes/tidbitmap.h"
#include "storage/block.h"
#include "storage/off.h"
#include "utils/relcache.h"

#include "batch.h"

#if PG_VERSION_NUM >= 180000
typedef TBMPrivateIterator BitmapIterator;
#else
typedef TBMIterator BitmapIterator;
#endif

typedef struct BitmapPages
{
	PlanState  *plan;			/* that makes the bitmap */
	Relation	relation;
	BlockNumber block_count;	/* of the table, when the scan began */
	TIDBitmap  *bitmap;			/* NULL: not started */
	BitmapIterator *iterator;

	/* pages that the server is asked to read ahead */
	BitmapIterator *ahead_iterator; /* NULL: it has come to the end, or none is to be read */
	int			ahead_count;
	int			ahead_target;	/* grows up to ahead_max */
	int			ahead_max;

	/* the current page */
	bool		is_lossy;		/* any of its rows may be meant */
	int			line_count;
	OffsetNumber lines[BATCH_ROWS_MAX];
} BitmapPages;

extern BitmapPages *bitmap_pages_create(PlanState *plan, Relation relation);
extern void bitmap_pages_start(BitmapPages *pages, BlockNumber block_count);
extern BlockNumber bitmap_pages_next(BitmapPages *pages);
extern void bitmap_pages_stop(BitmapPages *pages);

#endif
