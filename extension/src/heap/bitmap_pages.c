/*
 * bitmap_pages.c
 *	  The pages that a bitmap of row numbers names, and their rows.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/spccache.h"

#include "bitmap_pages.h"

BitmapPages *
bitmap_pages_create(PlanState *plan, Relation relation)
{
	BitmapPages *pages = palloc0(sizeof(BitmapPages));

	pages->plan = plan;
	pages->relation = relation;
	return pages;
}

static BitmapIterator *
begin_iterator(TIDBitmap *bitmap)
{
#if PG_VERSION_NUM >= 180000
	return tbm_begin_private_iterate(bitmap);
#else
	return tbm_begin_iterate(bitmap);
#endif
}

static void
end_iterator(BitmapIterator **iterator)
{
	if (*iterator == NULL)
		return;
#if PG_VERSION_NUM >= 180000
	tbm_end_private_iterate(*iterator);
#else
	tbm_end_iterate(*iterator);
#endif
	*iterator = NULL;
}

/* The number of the next page of an iterator, and its rows where they are asked for. */
static BlockNumber
next_page(BitmapIterator *iterator, BitmapPages *pages)
{
#if PG_VERSION_NUM >= 180000
	TBMIterateResult result;

	if (!tbm_private_iterate(iterator, &result))
		return InvalidBlockNumber;
	if (pages != NULL)
	{
		pages->is_lossy = result.lossy;
		pages->line_count = result.lossy ? 0 :
			tbm_extract_page_tuple(&result, pages->lines, lengthof(pages->lines));
	}
	return result.blockno;
#else
	const TBMIterateResult *result = tbm_iterate(iterator);

	if (result == NULL)
		return InvalidBlockNumber;
	if (pages != NULL)
	{
		pages->is_lossy = result->ntuples < 0;
		pages->line_count = Max(result->ntuples, 0);
		memcpy(pages->lines, result->offsets, sizeof(OffsetNumber) * pages->line_count);
	}
	return result->blockno;
#endif
}

/* Make the bitmap, and go to its start. */
void
bitmap_pages_start(BitmapPages *pages, BlockNumber block_count)
{
	TIDBitmap  *bitmap = (TIDBitmap *) MultiExecProcNode(pages->plan);

	if (bitmap == NULL || !IsA(bitmap, TIDBitmap))
		elog(ERROR, "the plan below a bitmap scan made no bitmap");
	pages->bitmap = bitmap;
	pages->block_count = block_count;
	pages->iterator = begin_iterator(bitmap);
	pages->ahead_max = get_tablespace_io_concurrency(pages->relation->rd_rel->reltablespace);
	pages->ahead_iterator = pages->ahead_max > 0 ? begin_iterator(bitmap) : NULL;
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
			(void) PrefetchBuffer(pages->relation, MAIN_FORKNUM, block);
	}
}

/* The next page, or InvalidBlockNumber.  Rows that came after the scan began are not seen. */
BlockNumber
bitmap_pages_next(BitmapPages *pages)
{
	BlockNumber block;

	do
	{
		block = next_page(pages->iterator, pages);
		if (block == InvalidBlockNumber)
			return InvalidBlockNumber;
		read_ahead(pages);
	} while (block >= pages->block_count);
	return block;
}

void
bitmap_pages_stop(BitmapPages *pages)
{
	if (pages->bitmap == NULL)
		return;
	end_iterator(&pages->iterator);
	end_iterator(&pages->ahead_iterator);
	tbm_free(pages->bitmap);
	pages->bitmap = NULL;
}
