/*
 * distinct_files.c
 *	  Values of an aggregate of a DISTINCT argument that do not fit in memory, in files.
 *
 * Once the values fill the memory, those that are not among them go to files with their
 * groups, by bits of their hashes.  At the end of the input, the values of one file after
 * another are told apart.  What an aggregate has of one file has nothing to do with
 * that of another, so the groups' states go on from file to file.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"

#include "aggregate.h"
#include "group.h"
#include "row_parts.h"
#include "server.h"

/* Parts that values are divided into, where the memory allows. */
#define PARTS_MAX		32

/* The attributes of a row in a file. */
enum DistinctAttribute
{
	ATTRIBUTE_VALUE,			/* the word of a key */
	ATTRIBUTE_GROUP				/* the group's address, or 0 */
};

struct DistinctFiles
{
	MemoryContext memory;
	RowParts	parts;
	RowFormat  *format;
	DatumBatch *rows;			/* that are read */
	MemoryContext row_memory;
	bool		is_writing;
};

static bool
is_reference(const GroupKey *key)
{
	return key->kind == VALUE_TEXT || key->kind == VALUE_NUMERIC;
}

/* The values fill the memory: write others to files from now on. */
void
distinct_files_begin(Aggregate *aggregate, Size memory_limit_bytes)
{
	const GroupKey *key = &aggregate->distinct_keys[0];
	MemoryContext memory = AllocSetContextCreate(GetMemoryChunkContext(aggregate->distinct),
												 "BatchAgg values", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(memory);
	DistinctFiles *files = palloc0(sizeof(DistinctFiles));
	TupleDesc	descriptor = CreateTemplateTupleDesc(2);

	TupleDescInitEntry(descriptor, ATTRIBUTE_VALUE + 1, "value",
					   is_reference(key) ? BYTEAOID : INT8OID, -1, 0);
	TupleDescInitEntry(descriptor, ATTRIBUTE_GROUP + 1, "group", INT8OID, -1, 0);
	TupleDescFinalize(descriptor);
	files->memory = memory;
	files->parts = (RowParts) {
		.store = row_store_create(),
		.count = Min(row_parts_limit(memory_limit_bytes), PARTS_MAX),
	};
	files->format = row_format_create(descriptor, bms_add_range(NULL, 0, 1));
	files->rows = datum_batch_create(descriptor, NULL);
	files->row_memory = AllocSetContextCreate(memory, "BatchAgg rows", ALLOCSET_DEFAULT_SIZES);
	files->is_writing = true;
	MemoryContextSwitchTo(caller);
	*aggregate->distinct_files = files;
}

/* Do values go to files? */
bool
distinct_files_are_written(const Aggregate *aggregate)
{
	const DistinctFiles *files = *aggregate->distinct_files;

	return files != NULL && files->is_writing;
}

/* Write the values of the selected rows that are not in memory; rows receives row numbers. */
void
distinct_files_write(Aggregate *aggregate, VectorContext *context, char **groups,
					 Selection *selection, uint16 *rows)
{
	DistinctFiles *files = *aggregate->distinct_files;
	GroupTable *table = aggregate->distinct;
	GroupKey   *keys = aggregate->distinct_keys;
	const Vector *values;
	const bool	nulls[2] = {false, false};

	table->keys = keys;
	if (groups != NULL)
		distinct_note_groups(aggregate, groups, selection);
	group_table_hash_present(table, context, selection, rows, false);
	group_table_find_existing(table, selection);
	values = keys[0].vector;
	FOR_SELECTED(row, selection,
				 const uint32 hash = table->row_hashes[row];
				 const Datum row_values[2] = {
					 values->values[row],
					 groups != NULL ? PointerGetDatum(groups[row]) : (Datum) 0,
				 };
				 if (table->row_groups[row] != NULL)
					 continue;
				 row_file_write(row_parts_file(&files->parts, hash), files->format, row_values,
								nulls, hash));
}

/* Take the rows that were read into the states: those whose values are new. */
static void
take_rows(Aggregate *aggregate, VectorContext *context, void *state)
{
	DistinctFiles *files = *aggregate->distinct_files;
	GroupKey   *keys = aggregate->distinct_keys;
	char	  **groups = (char **) files->rows->attributes[ATTRIBUTE_GROUP].values;
	Selection	selection = {.count = files->rows->row_count, .rows = NULL};
	const Vector *values = &files->rows->attributes[ATTRIBUTE_VALUE];
	uint16		rows[BATCH_ROWS_MAX];

	keys[0].vector = values;
	if (files->is_writing)
		distinct_files_write(aggregate, context, state == NULL ? groups : NULL, &selection, rows);
	else
	{
		(void) distinct_select(aggregate, context, state == NULL ? groups : NULL, &selection, rows);
		if (state != NULL)
			aggregate->ops->accumulate(aggregate, state, values, &selection);
		else
			aggregate->ops->accumulate_groups(aggregate, groups, values, &selection);
	}
}

/* Read a file; where its values don't fit in memory either, others go to files of the next level. */
static void
read_file(Aggregate *aggregate, VectorContext *context, void *state, RowFile *file,
		  Size memory_limit_bytes)
{
	DistinctFiles *files = *aggregate->distinct_files;
	RowFormat  *format = files->format;

	group_table_reset(aggregate->distinct);
	for (uint64 left = file->row_count; left > 0;)
	{
		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(files->row_memory);
		files->rows->row_count = 0;
		for (; left > 0 && files->rows->row_count < BATCH_ROWS_MAX; left--)
		{
			const FileRow *row = row_file_read(file, format);

			if (format->holds_references)
				row = memcpy(MemoryContextAllocHuge(files->row_memory, row->bytes), row, row->bytes);
			row_format_to_batch(format, row, files->rows);
		}
		take_rows(aggregate, context, state);
		files->is_writing |= row_parts_may_divide(&files->parts) &&
			group_table_bytes(aggregate->distinct) > memory_limit_bytes;
	}
	row_file_close(file);
}

/*
 * At the end of the input, take the values in files into the states: into one, or, where that
 * is NULL, into those of their groups.  Returns how many files there were; adds their blocks.
 */
int
distinct_files_finish(Aggregate *aggregate, VectorContext *context, void *state,
					  Size memory_limit_bytes, int64 *blocks)
{
	DistinctFiles *files = *aggregate->distinct_files;
	GroupKey   *key = &aggregate->distinct_keys[0];
	RowFile    *file;
	int			count = 0;

	if (files == NULL)
		return 0;
	key->is_given = true;
	while ((file = row_parts_next(&files->parts)) != NULL)
	{
		files->is_writing = false;
		read_file(aggregate, context, state, file, memory_limit_bytes);
		count++;
	}
	*blocks += files->parts.store->block_count;
	group_table_reset(aggregate->distinct);
	distinct_files_end(aggregate);
	return count;
}

/* Forget the values in files. */
void
distinct_files_end(Aggregate *aggregate)
{
	DistinctFiles *files = *aggregate->distinct_files;

	if (files == NULL)
		return;
	aggregate->distinct_keys[0].is_given = false;
	row_store_close(files->parts.store);
	MemoryContextDelete(files->memory);
	*aggregate->distinct_files = NULL;
}
