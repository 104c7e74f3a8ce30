/*
 * row_sort.c
 *	  Rows that are taken in, and returned in the order of their keys.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "heap_batch.h"
#include "row_sort.h"

/* Memory that is taken at once for rows: at first, and at most. */
#define ROOM_BYTES_FIRST	(8 * 1024)
#define ROOM_BYTES_MOST		(1024 * 1024)

/* The share of the memory that it is at most. */
#define ROOM_PARTS			8

#define ENTRIES_FIRST		256

/* Returned rows that are asked for ahead. */
#define ROWS_AHEAD			16

/* A sort in the current memory context. */
RowSort *
row_sort_create(TupleDesc descriptor, SortKey *keys, int key_count, Size bytes_allowed)
{
	RowSort    *sort = palloc0(sizeof(RowSort));
	Bitmapset  *attributes = NULL;

	Assert(key_count > 0 && descriptor->natts > 0);
	attributes = bms_add_range(attributes, 0, descriptor->natts - 1);
	sort->format = row_format_create(descriptor, attributes);
	sort->keys = keys;
	sort->key_count = key_count;
	sort->are_key_columns = palloc0(sizeof(bool) * descriptor->natts);
	for (int i = 0; i < key_count; i++)
		sort->are_key_columns[keys[i].column] = true;
	sort->bytes_allowed = bytes_allowed;
	sort->memory = CurrentMemoryContext;
	sort->row_memory = AllocSetContextCreate(sort->memory, "Sorted rows", ALLOCSET_DEFAULT_SIZES);
	sort->value_memory = AllocSetContextCreate(sort->memory, "Values of a row", ALLOCSET_SMALL_SIZES);
	return sort;
}

/* Room for a row. */
static inline FileRow *
allocate_row(RowSort *sort, Size bytes)
{
	char	   *row;

	if (bytes > sort->room_end - sort->room_next)
	{
		const Size	wanted = Min(Max(sort->room_bytes, ROOM_BYTES_FIRST), ROOM_BYTES_MOST);
		const Size	taken = Max(bytes, Min(wanted, Max(sort->bytes_allowed / ROOM_PARTS, ROOM_BYTES_FIRST)));

		sort->room_next = MemoryContextAllocHuge(sort->row_memory, taken);
		sort->room_end = sort->room_next + taken;
		sort->room_bytes += taken;
	}
	row = sort->room_next;
	sort->room_next += bytes;
	return (FileRow *) row;
}

/* How many entries there is to be room for, so that one more can be added. */
static inline Size
entries_wanted(const RowSort *sort)
{
	return sort->entry_count < sort->entries_allocated ? sort->entries_allocated :
		Max(2 * sort->entries_allocated, ENTRIES_FIRST);
}

/* What rows and their entries take, with room to sort these, where one more row of so many bytes is added. */
static inline Size
bytes_with(const RowSort *sort, Size row_bytes)
{
	return sort->room_bytes + (row_bytes > sort->room_end - sort->room_next ? row_bytes : 0) +
		sizeof(SortEntry) * (entries_wanted(sort) + sort->entry_count);
}

static void
reserve_entry(RowSort *sort)
{
	if (sort->entry_count < sort->entries_allocated)
		return;
	sort->entries_allocated = entries_wanted(sort);
	sort->entries = sort->entries == NULL ?
		MemoryContextAlloc(sort->memory, sizeof(SortEntry) * sort->entries_allocated) :
		repalloc_huge(sort->entries, sizeof(SortEntry) * sort->entries_allocated);
}

/* Put the rows in memory in order. */
static void
sort_memory(RowSort *sort)
{
	EntrySorter sorter = {
		.format = sort->format,.keys = sort->keys,.key_count = sort->key_count,
	};

	sort->bytes_most = Max(sort->bytes_most, sort->room_bytes +
						   sizeof(SortEntry) * (sort->entries_allocated + sort->entry_count));
	if (sort->entry_count < 2)
		return;
	sorter.room = MemoryContextAllocHuge(sort->memory, sizeof(SortEntry) * sort->entry_count);
	sort_entries(&sorter, sort->entries, sort->entry_count);
	pfree(sorter.room);
}

static void
forget_memory(RowSort *sort)
{
	MemoryContextReset(sort->row_memory);
	sort->room_next = sort->room_end = NULL;
	sort->room_bytes = 0;
	sort->entry_count = sort->next_entry = 0;
}

static void
prefetch_entry(const RowSort *sort, Size at)
{
	const char *row;

	if (at + ROWS_AHEAD >= sort->entry_count)
		return;
	row = (const char *) sort->entries[at + ROWS_AHEAD].row;
	__builtin_prefetch(row, 0, PREFETCH_TO_FIRST_LEVEL);
	__builtin_prefetch(row + row_head_bytes(sort->format), 0, PREFETCH_TO_FIRST_LEVEL);
}

/* Write the rows in memory to a file, in order. */
static void
write_run(RowSort *sort)
{
	RowFile    *run;

	if (sort->store == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(sort->memory);

		sort->store = row_store_create();
		MemoryContextSwitchTo(caller);
	}
	sort_memory(sort);
	run = row_file_create(sort->store);
	for (Size i = 0; i < sort->entry_count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		prefetch_entry(sort, i);
		row_file_append(run, sort->entries[i].row);
	}
	forget_memory(sort);
	sort->runs_made++;
	sort_runs_add(sort, run);
}

/*
 * Make plain values of those that are not: of keys, which are looked at often, and of
 * arrays and records that are being worked on.
 */
static void
flatten_values(RowSort *sort, Datum *values, const bool *nulls)
{
	MemoryContext caller = MemoryContextSwitchTo(sort->value_memory);

	for (int i = 0; i < sort->format->attribute_count; i++)
	{
		const struct varlena *value = (const struct varlena *) DatumGetPointer(values[i]);

		if (nulls[i] || TupleDescAttr(sort->format->descriptor, i)->attlen != -1)
			continue;
		if (VARATT_IS_EXTERNAL_EXPANDED(value) ||
			(sort->are_key_columns[i] && (VARATT_IS_EXTERNAL(value) || VARATT_IS_COMPRESSED(value))))
			values[i] = PointerGetDatum(PG_DETOAST_DATUM(values[i]));
	}
	MemoryContextSwitchTo(caller);
}

/* Take in a row: what its values point to is copied.  May change values. */
void
row_sort_add(RowSort *sort, Datum *values, const bool *nulls)
{
	Size		bytes;
	FileRow    *row;

	Assert(sort->merge == NULL && sort->next_entry == 0);
	if (sort->format->holds_references)
	{
		MemoryContextReset(sort->value_memory);
		flatten_values(sort, values, nulls);
	}
	bytes = row_bytes(sort->format, values, nulls);
	if (sort->entry_count > 0 && bytes_with(sort, bytes) > sort->bytes_allowed)
		write_run(sort);
	row = allocate_row(sort, bytes);
	row_fill(sort->format, row, values, nulls, sort->row_count++);
	for (int i = 0; i < sort->key_count; i++)
		sort->keys[i].is_nullable |= nulls[sort->keys[i].column];
	reserve_entry(sort);
	sort->entries[sort->entry_count++].row = row;
}

/* All rows have been added. */
void
row_sort_finish(RowSort *sort)
{
	Assert(sort->merge == NULL);
	if (sort->store == NULL)
	{
		sort_memory(sort);
		return;
	}
	if (sort->entry_count > 0)
		write_run(sort);
	sort_runs_begin_reading(sort);
}

/* The next row in order, valid until another one is asked for; NULL: there is none. */
const FileRow *
row_sort_next(RowSort *sort)
{
	if (sort->merge != NULL)
		return sort_merge_next(sort, sort->merge);
	if (sort->next_entry == sort->entry_count)
		return NULL;
	prefetch_entry(sort, sort->next_entry);
	return sort->entries[sort->next_entry++].row;
}

/* Go back to the first row; false: they have been read from files, which is done once. */
bool
row_sort_rewind(RowSort *sort)
{
	if (sort->store != NULL)
		return false;
	sort->next_entry = 0;
	return true;
}

/* Forget all rows, and give files back. */
void
row_sort_reset(RowSort *sort)
{
	forget_memory(sort);
	sort->row_count = 0;
	for (int i = 0; i < sort->key_count; i++)
		sort->keys[i].is_nullable = false;
	sort->runs_most = Max(sort->runs_most, sort->runs_made);
	sort->runs_made = 0;
	if (sort->store == NULL)
		return;
	sort->blocks_most = Max(sort->blocks_most, sort->store->block_count);
	if (sort->merge != NULL)
		sort_merge_end(sort->merge);
	sort->merge = NULL;
	for (int i = 0; i < sort->run_count; i++)
		row_file_close(sort->runs[i]);
	sort->run_count = 0;
	row_store_close(sort->store);
	if (sort->store->free_blocks != NULL)
		pfree(sort->store->free_blocks);
	pfree(sort->store);
	sort->store = NULL;
}
