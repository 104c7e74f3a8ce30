/*
 * sort_entries.h
 *	  Rows in memory, put in order by words of their keys.
 */
#ifndef BATCHEXEC_SORT_ENTRIES_H
#define BATCHEXEC_SORT_ENTRIES_H

#include "sort_key.h"

typedef struct SortEntry
{
	uint64		word;			/* of the key that is being sorted by */
	FileRow    *row;
} SortEntry;

typedef struct EntrySorter
{
	const RowFormat *format;
	SortKey    *keys;
	int			key_count;
	SortEntry  *room;			/* for as many entries */
} EntrySorter;

extern void sort_entries(const EntrySorter *sorter, SortEntry *entries, Size count);

#endif
