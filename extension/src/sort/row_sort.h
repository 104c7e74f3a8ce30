/*
 * row_sort.h
 *	  Rows that are taken in, and returned in the order of their keys.
 *
 * Where they exceed the memory, they are sorted in runs, which wait in a temporary file
 * and are merged.  Rows that are equal by all keys come in the order in which they were added.
 */
#ifndef BATCHEXEC_ROW_SORT_H
#define BATCHEXEC_ROW_SORT_H

#include "sort_entries.h"

/* A run that is being read. */
typedef struct SortSource
{
	RowFile    *file;
	RowFormat  *format;			/* with the row that comes next */
	uint64		rows_left;		/* behind it */
	uint64		word;			/* of its first key */
	bool		is_null;		/* that key is */
} SortSource;

/* Runs that are being merged. */
typedef struct SortMerge
{
	SortSource *sources;		/* a heap: the first one has the row that comes next */
	int			source_count;
	int			begun_count;	/* with those that have been read */
	bool		is_taken;		/* that row has been returned */
} SortMerge;

typedef struct RowSort
{
	RowFormat  *format;
	SortKey    *keys;
	int			key_count;
	bool	   *are_key_columns;
	Size		bytes_allowed;
	MemoryContext memory;		/* of all but the rows */

	/* rows in memory */
	MemoryContext row_memory;
	MemoryContext value_memory; /* of a row's values while it is added */
	char	   *room_next;		/* for rows */
	char	   *room_end;
	Size		room_bytes;		/* of all rows */
	SortEntry  *entries;
	Size		entry_count;
	Size		entries_allocated;
	Size		next_entry;
	uint64		row_count;

	/* rows in files */
	RowStore   *store;			/* NULL: there are none */
	RowFile   **runs;
	int			run_count;
	int			runs_allocated;
	SortMerge  *merge;			/* of all that are left */

	/* figures, of the largest run of the node */
	Size		bytes_most;
	int64		blocks_most;
	uint64		runs_most;
	uint64		runs_made;
} RowSort;

/* row_sort.c */
extern RowSort *row_sort_create(TupleDesc descriptor, SortKey *keys, int key_count, Size bytes_allowed);
extern void row_sort_add(RowSort *sort, Datum *values, const bool *nulls);
extern void row_sort_finish(RowSort *sort);
extern const FileRow *row_sort_next(RowSort *sort);
extern bool row_sort_rewind(RowSort *sort);
extern void row_sort_reset(RowSort *sort);

/* sort_merge.c */
extern void sort_runs_add(RowSort *sort, RowFile *run);
extern void sort_runs_begin_reading(RowSort *sort);
extern const FileRow *sort_merge_next(RowSort *sort, SortMerge *merge);
extern void sort_merge_end(SortMerge *merge);

#endif
