/*
 * join_table.c
 *	  The hash table of a join: its inner rows, by their keys.
 *
 * The groups of a hash aggregation, which know how to compare keys of all
 * kinds, with rows in the place of aggregate states.  The first row of a key lies
 * in its group, so that a join to a unique key follows no further pointer.
 * Rows of one key come newest first, as in the stock server's hash table.
 */
#include "postgres.h"

#include "utils/datum.h"
#include "utils/memutils.h"

#include "join_table.h"

/* Rows and values are cut from pieces of this size; larger ones stand alone. */
#define CHUNK_BYTES		(32 * 1024)

/* The rows of a group. */
typedef struct GroupRows
{
	JoinRow    *newest;
	bool		is_matched;		/* by an outer row */
	JoinRow		oldest;
} GroupRows;

JoinTable *
join_table_create(MemoryContext memory, GroupKey *inner_keys, GroupKey *outer_keys,
				  int key_count, TupleDesc descriptor)
{
	JoinTable  *table = palloc0(sizeof(JoinTable));

	Assert(key_count >= 1 && key_count <= GROUP_KEYS_MAX);
	Assert(descriptor->natts <= JOIN_INNER_COLUMNS_MAX);
	table->kept.context = memory;
	table->collected = &table->kept;
	table->inner_keys = inner_keys;
	table->outer_keys = outer_keys;
	table->descriptor = descriptor;
	table->rows_offset = group_header_bytes(inner_keys, key_count);
	table->row_bytes = offsetof(JoinRow, values) + sizeof(Datum) * descriptor->natts;
	table->groups = group_table_create(memory, inner_keys, key_count,
									   offsetof(GroupRows, oldest) + table->row_bytes);
	table->groups->columns_stay = true;
	return table;
}

/* Keep one row of each key, of the rows that are added from now on. */
void
join_table_keep_one(JoinTable *table)
{
	Assert(table->row_count == 0 && !table->keeps_one);
	table->keeps_one = true;
	table->groups->columns_stay = false;
	table->scratch.context = AllocSetContextCreate(MemoryContextGetParent(table->kept.context),
												   "BatchJoin rows", ALLOCSET_SMALL_SIZES);
	table->collected = &table->scratch;
}

/* Forget rows that were collected and added: those that are kept have copies of their values. */
void
join_table_forget_collected(JoinTable *table)
{
	if (!table->keeps_one)
		return;
	MemoryContextReset(table->scratch.context);
	table->scratch.chunk_bytes_left = 0;
}

/* Forget all rows. */
void
join_table_reset(JoinTable *table)
{
	join_table_forget_collected(table);
	group_table_reset(table->groups);
	table->row_count = 0;
	table->unkeyed = NULL;
	table->kept.chunk_bytes_left = 0;
}

Size
join_table_bytes(const JoinTable *table)
{
	return group_table_bytes(table->groups) +
		(table->keeps_one ? MemoryContextMemAllocated(table->scratch.context, true) : 0);
}

static void *
allocate(JoinMemory *memory, Size bytes)
{
	void	   *result;

	bytes = MAXALIGN(bytes);
	if (bytes > CHUNK_BYTES / 8)
		return MemoryContextAllocHuge(memory->context, bytes);
	if (bytes > memory->chunk_bytes_left)
	{
		memory->chunk = MemoryContextAlloc(memory->context, CHUNK_BYTES);
		memory->chunk_bytes_left = CHUNK_BYTES;
	}
	Assert(bytes <= memory->chunk_bytes_left);
	result = memory->chunk;
	memory->chunk += bytes;
	memory->chunk_bytes_left -= bytes;
	return result;
}

static void *
copy_bytes(JoinMemory *memory, const void *from, Size bytes)
{
	return memcpy(allocate(memory, bytes), from, bytes);
}

static Datum
copy_value(JoinMemory *memory, Datum value, int length)
{
	return PointerGetDatum(copy_bytes(memory, DatumGetPointer(value),
									  datumGetSize(value, false, length)));
}

/* A copy of bytes in the memory of collected rows, at the largest alignment. */
void *
join_table_copy_bytes(JoinTable *table, const void *from, Size bytes)
{
	return copy_bytes(table->collected, from, bytes);
}

/* A copy, in the memory of collected rows, of a value that is passed by reference. */
Datum
join_table_copy(void *table_, Datum value, int length)
{
	JoinTable  *table = table_;

	/* An expanded object has no flat form to be copied. */
	if (length == -1 && VARATT_IS_EXTERNAL_EXPANDED(DatumGetPointer(value)))
	{
		MemoryContext caller = MemoryContextSwitchTo(table->collected->context);

		value = datumCopy(value, false, length);
		MemoryContextSwitchTo(caller);
		return value;
	}
	return copy_value(table->collected, value, length);
}

static void
store_row(const JoinTable *table, JoinRow *row, const DatumBatch *rows, int number)
{
	Assert(number >= 0 && number < rows->row_count);
	row->nulls = 0;
	for (int i = 0; i < table->descriptor->natts; i++)
	{
		const Vector *attribute = &rows->attributes[i];

		row->values[i] = attribute->values[number];
		row->nulls |= (uint64) attribute->nulls[number] << i;
	}
}

/* Have a row keep what its values point to. */
static void
copy_references(JoinTable *table, JoinRow *row)
{
	for (int i = 0; i < table->descriptor->natts; i++)
	{
		const Form_pg_attribute form = TupleDescAttr(table->descriptor, i);

		if (!form->attbyval && ((row->nulls >> i) & 1) == 0)
			row->values[i] = copy_value(&table->kept, row->values[i], form->attlen);
	}
}

/* Append a row of the table to a batch. */
void
join_table_fetch(const JoinTable *table, const JoinRow *row, DatumBatch *rows)
{
	const int	number = rows->row_count++;
	Assert(number < BATCH_ROWS_MAX);

	for (int i = 0; i < table->descriptor->natts; i++)
	{
		Vector	   *attribute = &rows->attributes[i];
		const bool	is_null = (row->nulls >> i) & 1;

		attribute->has_nulls = (number > 0 && attribute->has_nulls) || is_null;
		attribute->nulls[number] = is_null;
		attribute->values[number] = row->values[i];
	}
}

/* Keep the rows that a batch has beside those whose keys are not NULL. */
static void
add_unkeyed(JoinTable *table, const TupleBatch *batch, const Selection *present,
			const DatumBatch *rows)
{
	bool		has_key[BATCH_ROWS_MAX] = {false};

	Assert(rows != NULL && rows->row_count == batch->row_count);
	FOR_SELECTED(number, present, has_key[number] = true);
	for (int number = 0; number < batch->row_count; number++)
	{
		JoinRow    *row;

		if (has_key[number])
			continue;
		row = allocate(&table->kept, table->row_bytes);
		row->next = table->unkeyed;
		table->unkeyed = row;
		store_row(table, row, rows, number);
	}
	table->row_count += batch->row_count - present->count;
}

/* Hash the keys of a batch of inner rows; returns those without a NULL, in numbers. */
Selection
join_table_hash_inner(JoinTable *table, VectorContext *context, uint16 *numbers)
{
	Selection	present = context->batch->selection;

	table->groups->keys = table->inner_keys;
	group_table_hash_present(table->groups, context, &present, numbers, table->keeps_all);
	return present;
}

/* Add a batch of rows, whose values live in the memory of collected rows; rows is NULL where only keys are kept. */
void
join_table_add(JoinTable *table, VectorContext *context, const DatumBatch *rows)
{
	uint16		numbers[BATCH_ROWS_MAX];
	const Selection present = join_table_hash_inner(table, context, numbers);
	const TupleBatch *batch = context->batch;
	const bool	keeps_one = table->keeps_one;
	int			left_out = 0;

	Assert(rows == NULL || rows->row_count == batch->row_count);
	group_table_find(table->groups, &present);
	FOR_SELECTED(number, &present,
				 GroupRows *group = (GroupRows *) (table->groups->row_groups[number] +
												   table->rows_offset);
				 JoinRow *row = &group->oldest;
				 if (group->newest != NULL && keeps_one)
				 {
					 left_out++;
					 continue;
				 }
				 if (group->newest != NULL)
					 row = allocate(&table->kept, table->row_bytes);
				 row->next = group->newest;
				 group->newest = row;
				 if (rows != NULL)
					 store_row(table, row, rows, number);
				 if (keeps_one && rows != NULL)
					 copy_references(table, row));
	table->row_count += present.count - left_out;
	if (table->keeps_all && present.count < batch->row_count)
		add_unkeyed(table, batch, &present, rows);
	Assert(table->row_count >= table->groups->group_count || !table->keeps_one);
}

/* Hash the keys of a batch of outer rows; returns those without a NULL, in numbers. */
Selection
join_table_hash_outer(JoinTable *table, VectorContext *context, uint16 *numbers)
{
	Selection	present = context->batch->selection;

	table->groups->keys = table->outer_keys;
	group_table_hash_present(table->groups, context, &present, numbers, table->keeps_outer);
	return present;
}

/* Can't the keys of all outer rows be computed by vectors, as they raise an error, for one? */
bool
join_table_outer_keys_fail(const JoinTable *table, VectorContext *context)
{
	for (int i = 0; i < table->groups->key_count; i++)
		if (!group_key_has_vector(&table->outer_keys[i], context))
			return true;
	return false;
}

/*
 * The newest inner row of the keys of each hashed outer row; those of rows without one stay
 * as they are.  Rows leave the selection, into numbers.
 */
void
join_table_probe(JoinTable *table, Selection *present, uint16 *numbers, JoinRow **rows)
{
	Assert(table->groups->keys == table->outer_keys);
	group_table_look_up(table->groups, present, numbers);
	FOR_SELECTED(row, present,
				 char *group = table->groups->row_groups[row];
				 GroupRows *found;
				 if (group == NULL)
					 continue;
				 found = (GroupRows *) (group + table->rows_offset);
				 Assert(found->newest != NULL);
				 found->is_matched |= table->keeps_all;
				 rows[row] = found->newest);
}

static GroupRows *
group_rows(const JoinTable *table, uint32 number)
{
	return (GroupRows *) (group_table_get(table->groups, number) + table->rows_offset);
}

/* For another pass over the outer rows. */
void
join_table_forget_matches(JoinTable *table)
{
	for (uint32 i = 0; i < table->groups->group_count; i++)
		group_rows(table, i)->is_matched = false;
}

/* The next row of the walk, or NULL. */
JoinRow *
join_table_walk(const JoinTable *table, JoinTableWalk *walk)
{
	JoinRow    *row;

	while (walk->row == NULL && walk->group_next < table->groups->group_count)
	{
		const GroupRows *group = group_rows(table, walk->group_next++);

		if (!walk->only_unmatched || !group->is_matched)
			walk->row = group->newest;
	}
	if (walk->row == NULL && !walk->has_unkeyed)
	{
		walk->has_unkeyed = true;
		walk->row = table->unkeyed;
	}
	row = walk->row;
	if (row != NULL)
		walk->row = row->next;
	return row;
}
