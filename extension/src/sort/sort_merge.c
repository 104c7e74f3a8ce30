/*
 * sort_merge.c
 *	  Sorted runs in a temporary file, and how they are merged.
 *
 * A run takes a block of memory, written or read.  So there are only so many of each level:
 * they are merged to one of the next level as soon as there are more.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "row_sort.h"

/* Runs that are merged at once, at least and at most; and what each takes, at least. */
#define MERGED_RUNS_MIN		6
#define MERGED_RUNS_MAX		256
#define MERGED_RUN_BYTES	(BLCKSZ + 2 * 1024)

static int
runs_to_merge(const RowSort *sort)
{
	const Size	fitting = sort->bytes_allowed / MERGED_RUN_BYTES;

	return (int) Min(Max(fitting, MERGED_RUNS_MIN), MERGED_RUNS_MAX);
}

/* Read the next row of a run; false: there is none. */
static bool
advance(RowSort *sort, SortSource *source)
{
	SortKey    *key = &sort->keys[0];
	const FileRow *row;

	if (source->rows_left == 0)
		return false;
	row = row_file_read(source->file, source->format);
	source->rows_left--;
	source->is_null = row_nulls(sort->format, row)[key->column];
	source->word = source->is_null || key->words == WORDS_NONE ? 0 :
		sort_word(key, sort->format, row, 0);
	return true;
}

/* Does the row of one run belong behind that of another? */
static bool
is_behind(RowSort *sort, const SortSource *left, const SortSource *right)
{
	int			result;

	if (!left->is_null && !right->is_null && left->word != right->word)
		return left->word > right->word;
	result = sort_compare_keys(sort->keys, sort->key_count, sort->format,
							   left->format->row, right->format->row);
	return result > 0 || (result == 0 && left->format->row->hash > right->format->row->hash);
}

/* Move a source to its place in the heap. */
static void
sift_down(RowSort *sort, SortMerge *merge, int at)
{
	SortSource *sources = merge->sources;
	const SortSource source = sources[at];

	for (;;)
	{
		int			child = 2 * at + 1;

		if (child >= merge->source_count)
			break;
		if (child + 1 < merge->source_count && is_behind(sort, &sources[child], &sources[child + 1]))
			child++;
		if (!is_behind(sort, &source, &sources[child]))
			break;
		sources[at] = sources[child];
		at = child;
	}
	sources[at] = source;
}

/* Begin to merge runs; they belong to the merge from then on. */
static SortMerge *
begin_merge(RowSort *sort, RowFile **runs, int count)
{
	MemoryContext caller = MemoryContextSwitchTo(sort->memory);
	SortMerge  *merge = palloc0(sizeof(SortMerge));
	Bitmapset  *attributes = bms_add_range(NULL, 0, sort->format->attribute_count - 1);

	merge->sources = palloc0(sizeof(SortSource) * count);
	merge->source_count = merge->begun_count = count;
	for (int i = 0; i < count; i++)
	{
		SortSource *source = &merge->sources[i];

		source->file = runs[i];
		source->rows_left = runs[i]->row_count;
		source->format = row_format_create(sort->format->descriptor, attributes);
		Assert(source->rows_left > 0);
		(void) advance(sort, source);
	}
	for (int i = count / 2 - 1; i >= 0; i--)
		sift_down(sort, merge, i);
	bms_free(attributes);
	MemoryContextSwitchTo(caller);
	return merge;
}

/* The next row of all runs; NULL: there is none. */
const FileRow *
sort_merge_next(RowSort *sort, SortMerge *merge)
{
	SortSource *first = &merge->sources[0];

	if (merge->source_count == 0)
		return NULL;
	if (merge->is_taken)
	{
		if (!advance(sort, first))
		{
			/* A run that has been read stays behind the others, to be freed with them. */
			const SortSource done = *first;

			*first = merge->sources[--merge->source_count];
			merge->sources[merge->source_count] = done;
		}
		if (merge->source_count == 0)
			return NULL;
		sift_down(sort, merge, 0);
	}
	merge->is_taken = true;
	return merge->sources[0].format->row;
}

void
sort_merge_end(SortMerge *merge)
{
	for (int i = 0; i < merge->begun_count; i++)
	{
		RowFormat  *format = merge->sources[i].format;

		row_file_close(merge->sources[i].file);
		pfree(format->attributes);
		pfree(format->row);
		pfree(format);
	}
	pfree(merge->sources);
	pfree(merge);
}

static void
append_run(RowSort *sort, RowFile *run)
{
	if (sort->run_count == sort->runs_allocated)
	{
		sort->runs_allocated = Max(2 * sort->runs_allocated, MERGED_RUNS_MIN);
		sort->runs = sort->runs == NULL ?
			MemoryContextAlloc(sort->memory, sizeof(RowFile *) * sort->runs_allocated) :
			repalloc(sort->runs, sizeof(RowFile *) * sort->runs_allocated);
	}
	sort->runs[sort->run_count++] = run;
}

/* Make one run of the last ones. */
static void
merge_last_runs(RowSort *sort, int count)
{
	RowFile    *merged = row_file_create(sort->store);
	SortMerge  *merge;
	const FileRow *row;

	Assert(count > 1 && count <= sort->run_count);
	/* The levels of runs never rise from one to the next. */
	merged->level = sort->runs[sort->run_count - count]->level + 1;
	sort->run_count -= count;
	merge = begin_merge(sort, sort->runs + sort->run_count, count);
	while ((row = sort_merge_next(sort, merge)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		row_file_append(merged, row);
	}
	sort_merge_end(merge);
	append_run(sort, merged);
}

/* How many of the last runs have the level of the last one? */
static int
count_last_level(const RowSort *sort)
{
	int			count = 1;

	while (count < sort->run_count &&
		   sort->runs[sort->run_count - 1 - count]->level == sort->runs[sort->run_count - 1]->level)
		count++;
	return count;
}

/* Add a sorted run. */
void
sort_runs_add(RowSort *sort, RowFile *run)
{
	append_run(sort, run);
	while (count_last_level(sort) >= runs_to_merge(sort))
		merge_last_runs(sort, count_last_level(sort));
}

/* Merge all runs as they are read. */
void
sort_runs_begin_reading(RowSort *sort)
{
	const int	at_once = runs_to_merge(sort);

	while (sort->run_count > at_once)
		merge_last_runs(sort, Min(at_once, sort->run_count - at_once + 1));
	sort->merge = begin_merge(sort, sort->runs, sort->run_count);
	sort->run_count = 0;
}
