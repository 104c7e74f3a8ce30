/*
 * group.c
 *	  Hash table of groups: linear probing over hashes and numbers of fixed-size groups.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "group.h"
#include "server.h"

#define BUCKETS_FIRST		1024
/* Bits of the filter for each bucket: one in 8 to 16 keys without a group passes. */
#define FILTER_BITS_A_BUCKET	4
/* Buckets in use before the table doubles: half of them, so that a key without a group is found out soon. */
#define IS_FULL(table_) \
	((table_)->group_count >= (table_)->bucket_count / 2)

/* Make an empty table; memory is reset with the table. */
GroupTable *
group_table_create(MemoryContext memory, GroupKey *keys, int key_count,
				   Size state_bytes)
{
	GroupTable *table = palloc0(sizeof(GroupTable));

	Assert(key_count >= 0 && key_count <= GROUP_KEYS_MAX);
	table->memory = memory;
	table->keys = keys;
	table->key_count = key_count;
	table->group_bytes = group_header_bytes(keys, key_count) + state_bytes;
	return table;
}

/* Bytes of a group before its aggregate states. */
Size
group_header_bytes(const GroupKey *keys, int key_count)
{
	int			words = key_count;

	for (int i = 0; i < key_count; i++)
		words += (keys[i].value_at >= 0);
	return sizeof(GroupHeader) + sizeof(Datum) * words;
}

/* Forget all groups, and free them. */
void
group_table_reset(GroupTable *table)
{
	MemoryContextReset(table->memory);
	group_table_forget(table);
}

/* Forget all groups of a table whose memory has been freed. */
void
group_table_forget(GroupTable *table)
{
	table->bucket_count = 0;
	table->buckets = NULL;
	table->group_count = 0;
	table->null_number = 0;
	table->chunks = NULL;
	table->chunk_count = table->chunks_allocated = 0;
	table->filter = (HashFilter) {.words = NULL};
	table->filter_groups = 0;
}

Size
group_table_bytes(const GroupTable *table)
{
	return MemoryContextMemAllocated(table->memory, true);
}

static void
grow_buckets(GroupTable *table)
{
	const uint32 bucket_count = Max(table->bucket_count * 2, BUCKETS_FIRST);
	const uint32 mask = bucket_count - 1;
	GroupBucket *buckets;

	Assert((bucket_count & mask) == 0);
	Assert(bucket_count > table->bucket_count);
	buckets = MemoryContextAllocExtended(table->memory,
										 sizeof(GroupBucket) * bucket_count,
										 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (uint32 i = 0; i < table->bucket_count; i++)
	{
		uint32		at = table->buckets[i].hash & mask;

		if (table->buckets[i].number == 0)
			continue;
		while (buckets[at].number != 0)
			at = (at + 1) & mask;
		buckets[at] = table->buckets[i];
	}
	if (table->buckets != NULL)
		pfree(table->buckets);
	table->buckets = buckets;
	table->bucket_count = bucket_count;
}

static void
add_chunk(GroupTable *table)
{
	Assert(table->group_count == table->chunk_count * GROUPS_A_CHUNK);
	if (table->chunk_count == table->chunks_allocated)
	{
		uint32		allocated = Max(table->chunks_allocated * 2, 16);
		char	  **chunks = MemoryContextAlloc(table->memory,
												sizeof(char *) * allocated);

		if (table->chunks != NULL)
		{
			memcpy(chunks, table->chunks, sizeof(char *) * table->chunk_count);
			pfree(table->chunks);
		}
		table->chunks = chunks;
		table->chunks_allocated = allocated;
	}
	table->chunks[table->chunk_count++] =
		MemoryContextAllocZero(table->memory,
							   table->group_bytes * GROUPS_A_CHUNK);
}

static void
add_group(GroupTable *table, int row)
{
	if (table->group_count % GROUPS_A_CHUNK == 0)
		add_chunk(table);
	Assert(table->group_count / GROUPS_A_CHUNK < table->chunk_count);
	group_keys_store(table, group_table_get(table, table->group_count++), row);
}

/* The group that a bucket in use is of. */
static inline char *
bucket_group(const GroupTable *table, GroupBucket bucket)
{
	Assert(bucket.number >= 1 && bucket.number <= table->group_count);
	return group_table_get(table, bucket.number - 1);
}

/* The number, from 1, of a row's group, made where there is none. */
static uint32
find_number(GroupTable *table, uint32 hash, int row)
{
	const uint32 mask = table->bucket_count - 1;
	uint32		at = hash & mask;
	GroupBucket bucket;

	Assert(table->bucket_count > 0 && table->group_count < table->bucket_count);
	while ((bucket = table->buckets[at]).number != 0)
	{
		if (bucket.hash == hash &&
			group_keys_match(table, bucket_group(table, bucket), row))
			return bucket.number;
		at = (at + 1) & mask;
	}
	add_group(table, row);
	bucket = (GroupBucket) {hash, table->group_count};
	table->buckets[at] = bucket;
	if (IS_FULL(table))
		grow_buckets(table);
	return bucket.number;
}

static inline char *
find_group(GroupTable *table, uint32 hash, int row)
{
	return group_table_get(table, find_number(table, hash, row) - 1);
}

/* As find_group, for a single integer key that is not NULL. */
static inline char *
find_integer_group(GroupTable *table, uint32 hash, int row, Datum word)
{
	const GroupBucket bucket = table->buckets[hash & (table->bucket_count - 1)];

	if (likely(bucket.number != 0 && bucket.hash == hash))
	{
		char	   *group = bucket_group(table, bucket);

		if (likely(*GROUP_KEY_WORDS(group) == word &&
				   ((GroupHeader *) group)->null_keys == 0))
			return group;
	}
	return find_group(table, hash, row);
}

/*
 * As find_integer_group, where the key may be NULL.  Without a branch on that,
 * which would be mispredicted for many rows.
 */
static inline char *
find_nullable_group(GroupTable *table, uint32 hash, int row, Datum word, bool is_null)
{
	const uint32 null_mask = -(uint32) is_null;
	uint32		number = (table->null_number & null_mask) |
		(table->buckets[hash & (table->bucket_count - 1)].number & ~null_mask);

	if (likely(number != 0))
	{
		char	   *group = group_table_get(table, number - 1);

		if (likely(*GROUP_KEY_WORDS(group) == word &&
				   ((GroupHeader *) group)->null_keys == is_null))
			return group;
	}
	number = find_number(table, hash, row);
	if (is_null)
		table->null_number = number;
	return group_table_get(table, number - 1);
}

/* Ask for buckets, then for groups, a batch ahead of their use. */
static void
prefetch_groups(const GroupTable *table, const Selection *selection)
{
	const uint32 *hashes = table->row_hashes;
	const uint32 mask = table->bucket_count - 1;

	Assert(table->bucket_count > 0);
	if (table->group_count <= BUCKETS_FIRST)
		return;
	FOR_SELECTED(row, selection,
				 __builtin_prefetch(&table->buckets[hashes[row] & mask]));
	FOR_SELECTED(row, selection,
				 const GroupBucket bucket = table->buckets[hashes[row] & mask];
				 if (bucket.number != 0 && bucket.hash == hashes[row])
				 __builtin_prefetch(bucket_group(table, bucket)));
}

static inline bool
has_one_integer_key(const GroupTable *table)
{
	return table->key_count == 1 && table->left_out == 0 &&
		table->keys[0].kind == VALUE_INTEGER;
}

/* Evaluate the keys of the selected rows: once for all tables of the same keys. */
void
group_table_evaluate(GroupTable *table, VectorContext *context, const Selection *selection)
{
	for (int i = 0; i < table->key_count; i++)
		group_key_evaluate(&table->keys[i], context, selection);
	group_keys_make_words(table, selection);
}

/* Hash the keys, whose words have been made; there are buckets from now on. */
void
group_table_hash(GroupTable *table, const Selection *selection)
{
	Assert(selection_is_valid(selection, BATCH_ROWS_MAX));
	group_keys_hash(table, selection);
	if (table->bucket_count == 0)
		grow_buckets(table);
}

/* Find the groups of the hashed rows, into row_groups, and make those that are new. */
void
group_table_find(GroupTable *table, const Selection *selection)
{
	const uint32 *hashes = table->row_hashes;

	prefetch_groups(table, selection);
	if (has_one_integer_key(table))
	{
		const Datum *words = table->keys[0].words;
		const bool *nulls = table->keys[0].vector->has_nulls ?
			table->keys[0].vector->nulls : NULL;

		if (nulls != NULL)
			FOR_SELECTED(row, selection,
						 table->row_groups[row] =
						 find_nullable_group(table, hashes[row], row, words[row], nulls[row]));
		else
			FOR_SELECTED(row, selection,
						 table->row_groups[row] =
						 find_integer_group(table, hashes[row], row, words[row]));
	}
	else
		FOR_SELECTED(row, selection,
					 table->row_groups[row] = find_group(table, hashes[row], row));
}

/* The group of a row, or NULL. */
static inline char *
existing_group(const GroupTable *table, uint32 hash, int row)
{
	const uint32 mask = table->bucket_count - 1;
	GroupBucket bucket;

	for (uint32 at = hash & mask; (bucket = table->buckets[at]).number != 0;
		 at = (at + 1) & mask)
		if (bucket.hash == hash &&
			group_keys_match(table, bucket_group(table, bucket), row))
			return bucket_group(table, bucket);
	return NULL;
}

/* As existing_group, for a single integer key; no key of the table is NULL. */
static inline char *
existing_integer_group(const GroupTable *table, uint32 hash, Datum word)
{
	const uint32 mask = table->bucket_count - 1;
	GroupBucket bucket;

	for (uint32 at = hash & mask; (bucket = table->buckets[at]).number != 0;
		 at = (at + 1) & mask)
		if (bucket.hash == hash)
		{
			char	   *group = bucket_group(table, bucket);

			if (*GROUP_KEY_WORDS(group) == word)
				return group;
		}
	return NULL;
}

/* As group_table_find, without making groups: that of a row may be NULL. */
void
group_table_find_existing(GroupTable *table, const Selection *selection)
{
	const uint32 *hashes = table->row_hashes;

	prefetch_groups(table, selection);
	FOR_SELECTED(row, selection,
				 table->row_groups[row] = existing_group(table, hashes[row], row));
}

/* Set a bit for the hash of each group. */
static void
make_filter(GroupTable *table)
{
	HashFilter	filter = hash_filter_create(table->memory, (uint64) table->bucket_count *
											FILTER_BITS_A_BUCKET);

	for (uint32 i = 0; i < table->bucket_count; i++)
		if (table->buckets[i].number != 0)
			hash_filter_add(&filter, table->buckets[i].hash);
	Assert(filter.mask >= 63);
	if (table->filter.words != NULL)
		pfree(table->filter.words);
	table->filter = filter;
	table->filter_groups = table->group_count;
}

/*
 * Most rows without a group leave the selection, into numbers.  The filter has a
 * sixteenth of the buckets' size, so it stays in the processor's cache where these
 * do not, and it takes no branch.
 */
static void
filter_rows(GroupTable *table, Selection *selection, uint16 *numbers)
{
	const uint32 *hashes = table->row_hashes;
	HashFilter *filter = &table->filter;
	int			count = 0;

	/* A right join's table may hold rows with NULL keys alone. */
	if (table->group_count == 0)
	{
		selection->count = 0;
		return;
	}
	if (table->filter_groups != table->group_count)
		make_filter(table);
	else if (hash_filter_is_useless(filter))
		return;
	FOR_SELECTED(row, selection,
				 numbers[count] = row;
				 count += hash_filter_passes(filter, hashes[row]));
	Assert(count <= selection->count);
	hash_filter_count(filter, selection->count, count);
	selection->count = count;
	selection->rows = numbers;
}

/*
 * Evaluate and hash the keys, where a NULL equals nothing: rows with one leave the
 * selection, into numbers.  Keys behind a NULL that may raise an error are evaluated as core does.
 * keeps_rows: the rows that leave may be asked for later.
 */
void
group_table_hash_present(GroupTable *table, VectorContext *context,
						 Selection *selection, uint16 *numbers, bool keeps_rows)
{
	const Selection all = *selection;

	Assert(selection_is_valid(selection, BATCH_ROWS_MAX));

	for (int i = 0; i < table->key_count; i++)
	{
		GroupKey   *key = &table->keys[i];

		if (!keeps_rows)
			group_key_evaluate(key, context, selection);
		else if (JOIN_EVALUATES_KEYS_BEHIND_NULL || i == 0 || !vector_may_raise(key->expression))
			group_key_evaluate(key, context, &all);
		else
			group_key_evaluate_some(key, context, selection, &all);
		*selection = selection_without_nulls(selection, key->vector, numbers);
		Assert(key->vector != NULL);
	}
	group_keys_make_words(table, selection);
	group_table_hash(table, selection);
}

/*
 * As group_table_find, of rows with no key that is NULL, but without making groups.  A row without a
 * group leaves the selection, into numbers, or its group is NULL.
 */
void
group_table_look_up(GroupTable *table, Selection *selection, uint16 *numbers)
{
	const uint32 *hashes = table->row_hashes;

	filter_rows(table, selection, numbers);
	prefetch_groups(table, selection);
	if (has_one_integer_key(table))
	{
		const Datum *words = table->keys[0].words;

		FOR_SELECTED(row, selection,
					 table->row_groups[row] =
					 existing_integer_group(table, hashes[row], words[row]));
	}
	else
		FOR_SELECTED(row, selection,
					 table->row_groups[row] = existing_group(table, hashes[row], row));
}

/*
 * Add the keys of the selected rows.  Rows with a NULL, and those whose keys the
 * table holds already, leave the selection, into numbers.
 */
void
group_table_add_new(GroupTable *table, VectorContext *context,
					Selection *selection, uint16 *numbers)
{
	const uint32 *hashes = table->row_hashes;
	uint32		before;
	int			count = 0;

	group_table_hash_present(table, context, selection, numbers, false);
	prefetch_groups(table, selection);
	before = table->group_count;
	if (has_one_integer_key(table))
	{
		const Datum *words = table->keys[0].words;

		FOR_SELECTED(row, selection,
					 (void) find_integer_group(table, hashes[row], row, words[row]);
					 numbers[count] = row;
					 count = table->group_count - before);
	}
	else
		FOR_SELECTED(row, selection,
					 (void) find_group(table, hashes[row], row);
					 numbers[count] = row;
					 count = table->group_count - before);
	Assert(count >= 0 && count <= selection->count);
	selection->count = count;
	selection->rows = numbers;
}

/* The only group of a table without keys, where no row has made it. */
void
group_table_add_empty(GroupTable *table)
{
	Assert(table->key_count == 0 || table->left_out != 0);
	if (table->group_count == 0)
		add_group(table, 0);
}
