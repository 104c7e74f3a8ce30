/*
 * row_parts.c
 *	  Rows that are divided into files by their hashes, and wait there to be read.
 */
#include "postgres.h"

#include "port/pg_bitutils.h"
#include "utils/memutils.h"

#include "row_parts.h"

/* The file for rows of a hash, made for the first of them. */
RowFile *
row_parts_file(RowParts *parts, uint32 hash)
{
	Assert(parts->count >= 1 && parts->count <= ROW_PARTS_MAX);
	Assert((parts->count & (parts->count - 1)) == 0);
	RowFile   **file = &parts->files[row_part_of_hash(hash, parts->level, parts->count)];

	if (*file == NULL)
	{
		*file = row_file_create(parts->store);
		(*file)->level = parts->level + 1;
	}
	return *file;
}

/*
 * The next file to read; NULL: none is left.  Rows that are divided from now on are its own.
 * The last file that was written comes first: it is a part of the one before.
 */
RowFile *
row_parts_next(RowParts *parts)
{
	MemoryContext caller = MemoryContextSwitchTo(parts->store->memory);
	RowFile    *next = NULL;

	for (int i = 0; i < parts->count; i++)
		if (parts->files[i] != NULL)
		{
			parts->waiting = lappend(parts->waiting, parts->files[i]);
			parts->files[i] = NULL;
		}
	if (parts->waiting != NIL)
	{
		next = llast(parts->waiting);
		parts->waiting = list_delete_last(parts->waiting);
		parts->level = next->level;
		Assert(next->level >= 1 && next->level <= ROW_LEVELS_MAX + 1);
	}
	MemoryContextSwitchTo(caller);
	return next;
}

/*
 * How many parts to divide rows into, at most: each has a buffer of a block, and these take a quarter of the
 * memory for a hash table, as in core's hash aggregation.
 */
int
row_parts_limit(Size memory_bytes)
{
	const Size	parts = Min(Max(memory_bytes / 4 / BLCKSZ, ROW_PARTS_MIN), ROW_PARTS_MAX);

	Assert(parts >= ROW_PARTS_MIN && parts <= ROW_PARTS_MAX);
	return (int) pg_prevpower2_32((uint32) parts);
}

/* May rows be divided, or have they been so often that their hashes must be alike? */
bool
row_parts_may_divide(const RowParts *parts)
{
	return parts->level <= ROW_LEVELS_MAX;
}
