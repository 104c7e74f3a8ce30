/*
 * bitmap_pages.c
 *	  The pages that a bitmap of row numbers names, and their rows.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "nodes/tidbitmap.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/spccache.h"

#include "named_pages.h"
#include "server.h"

typedef struct BitmapPages
{
	NamedPages	pages;			/* must be first */
	BlockNumber block_count;	/* of the table, when the scan began */
	TIDBitmap  *bitmap;			/* NULL: not started */
	BitmapIterator *iterator;

	/* pages that the server is asked to read ahead */
	BitmapIterator *ahead_iterator; /* NULL: it has come to the end, or none is to be read */
	int			ahead_count;
	int			ahead_target;	/* grows up to ahead_max */
	int			ahead_max;
} BitmapPages;

static void
end_iterator(BitmapIterator **iterator)
{
	if (*iterator == NULL)
		return;
	END_BITMAP_ITERATOR(*iterator);
	*iterator = NULL;
}

/* The number of the next page of an iterator, and its rows where they are asked for. */
static BlockNumber
next_page(BitmapIterator *iterator, NamedPages *pages)
{
	int			count = 0;
	const BlockNumber block = server_next_bitmap_page(iterator, pages != NULL ? pages->lines : NULL,
													  BATCH_ROWS_MAX, &count);

	if (pages != NULL && block != InvalidBlockNumber)
	{
		pages->is_lossy = count < 0;
		pages->line_count = Max(count, 0);
		Assert(pages->line_count <= BATCH_ROWS_MAX);
	}
	return block;
}

/* Make the bitmap, and go to its start. */
static void
start_bitmap_pages(NamedPages *pages_, BlockNumber block_count)
{
	BitmapPages *pages = (BitmapPages *) pages_;
	TIDBitmap  *bitmap = (TIDBitmap *) MultiExecProcNode(pages_->plan);

	if (bitmap == NULL || !IsA(bitmap, TIDBitmap))
		elog(ERROR, "the plan below a bitmap scan made no bitmap");
	Assert(pages->bitmap == NULL && pages->iterator == NULL);
	pages->bitmap = bitmap;
	pages->block_count = block_count;
	pages->iterator = BEGIN_BITMAP_ITERATOR(bitmap);
	pages->ahead_max = get_tablespace_io_concurrency(pages_->relation->rd_rel->reltablespace);
	pages->ahead_iterator = pages->ahead_max > 0 ? BEGIN_BITMAP_ITERATOR(bitmap) : NULL;
	pages->ahead_count = pages->ahead_target = 0;
}

/* Ask for the pages after the current one: for more each time, as a scan may stop early. */
static void
read_ahead(BitmapPages *pages)
{
	if (pages->ahead_iterator == NULL)
		return;
	/* The one that has just been returned; at first, it has not been asked for. */
	if (pages->ahead_count > 0)
		pages->ahead_count--;
	else
		(void) next_page(pages->ahead_iterator, NULL);
	pages->ahead_target = Min(pages->ahead_target * 2 + 1, pages->ahead_max);
	Assert(pages->ahead_count >= 0 && pages->ahead_count <= pages->ahead_max);
	while (pages->ahead_count < pages->ahead_target)
	{
		const BlockNumber block = next_page(pages->ahead_iterator, NULL);

		if (block == InvalidBlockNumber)
		{
			end_iterator(&pages->ahead_iterator);
			return;
		}
		pages->ahead_count++;
		if (block < pages->block_count)
			(void) PrefetchBuffer(pages->pages.relation, MAIN_FORKNUM, block);
	}
}

/* The next page, or InvalidBlockNumber.  Rows that came after the scan began are not seen. */
static BlockNumber
next_bitmap_page(NamedPages *pages_)
{
	BitmapPages *pages = (BitmapPages *) pages_;
	BlockNumber block;

	do
	{
		block = next_page(pages->iterator, pages_);
		Assert(pages->iterator != NULL);
		if (block == InvalidBlockNumber)
			return InvalidBlockNumber;
		read_ahead(pages);
	} while (block >= pages->block_count);
	return block;
}

static void
stop_bitmap_pages(NamedPages *pages_)
{
	BitmapPages *pages = (BitmapPages *) pages_;

	if (pages->bitmap == NULL)
		return;
	end_iterator(&pages->iterator);
	end_iterator(&pages->ahead_iterator);
	tbm_free(pages->bitmap);
	pages->bitmap = NULL;
}

static const NamedPagesOps bitmap_pages_ops = {
	.start = start_bitmap_pages,
	.next = next_bitmap_page,
	.stop = stop_bitmap_pages,
};

NamedPages *
bitmap_pages_create(PlanState *plan, Relation relation)
{
	BitmapPages *pages = palloc0(sizeof(BitmapPages));

	pages->pages.ops = &bitmap_pages_ops;
	pages->pages.plan = plan;
	pages->pages.relation = relation;
	return &pages->pages;
}
