/*
 * group.h
 *	  Hash table of groups.
 */
#ifndef BATCHEXEC_GROUP_H
#define BATCHEXEC_GROUP_H

#include "expr.h"
#include "hash_filter.h"

typedef struct GroupKey
{
	Oid			type;
	ValueKind	kind;			/* how keys are hashed and compared */
	bool		is_computed;	/* numeric: the expression gives scaled integers */
	bool		is_bpchar;
	bool		is_given;		/* the caller fills row_vector */
	VectorExpr *expression;		/* NULL: by row */
	RowExpression row;
	Vector		row_vector;
	const Vector *vector;		/* of the current batch */
	Datum	   *made_words;		/* storage for words, where they are made */
	const Datum *words;			/* of the current batch: see group_key.c */
	Datum	   *entry_words;	/* of a dictionary's entries; NULL: none has been due */
	DictionaryUse dictionary;	/* that one */
	int			value_at;		/* stored values before this key's; -1: none */
} GroupKey;

/*
 * Followed by a word for each key, by the values of keys whose word is not
 * the value itself, and by the aggregate states.
 */
typedef struct GroupHeader
{
	uint64		null_keys;		/* bit i: key i is NULL */
} GroupHeader;

/* Rows of other keys are told by the hash, without a look at the group. */
typedef struct GroupBucket
{
	uint32		hash;
	uint32		number;			/* of the group, from 1; 0: the bucket is empty */
} GroupBucket;

#define GROUP_KEYS_MAX	32
#define GROUP_KEY_WORDS(group_) ((Datum *) ((group_) + sizeof(GroupHeader)))

typedef struct GroupTable
{
	GroupKey   *keys;
	int			key_count;
	uint32		left_out;		/* bit i: key i is NULL in all groups, whatever the rows */
	bool		columns_stay;	/* the caller keeps what columns point to, as long as the groups */
	Size		group_bytes;
	MemoryContext memory;		/* of groups and the keys they point to */
	GroupBucket *buckets;
	uint32		bucket_count;	/* a power of two */
	uint32		group_count;
	uint32		null_number;	/* of a single NULL key's group, from 1; 0: it was not met */
	char	  **chunks;			/* of GROUPS_A_CHUNK groups each */
	uint32		chunk_count;
	uint32		chunks_allocated;
	HashFilter	filter;			/* of the groups' hashes, where keys without a group are looked up */
	uint32		filter_groups;	/* that it was made of */
	char	   *row_groups[BATCH_ROWS_MAX]; /* of the current batch */
	uint32		row_hashes[BATCH_ROWS_MAX];
} GroupTable;

#define GROUPS_A_CHUNK	256

/* Groups are numbered in the order of their first rows. */
static inline char *
group_table_get(const GroupTable *table, uint32 number)
{
	Assert(number / GROUPS_A_CHUNK < table->chunk_count);
	return table->chunks[number / GROUPS_A_CHUNK] +
		(number % GROUPS_A_CHUNK) * table->group_bytes;
}

/* Does a group have a copy of what a key's values in the batch point to?  Else it points there, too. */
static inline bool
group_copies_key(const GroupTable *table, const GroupKey *key)
{
	if (key->kind != VALUE_TEXT && key->kind != VALUE_NUMERIC)
		return false;
	return !table->columns_stay || key->expression == NULL || key->expression->column == NULL ||
		key->vector != &key->expression->column->vector;
}

extern GroupTable *group_table_create(MemoryContext memory, GroupKey *keys,
									  int key_count, Size state_bytes);
extern void group_key_compile(GroupKey *key, VectorContext *context,
							  Expr *source, int *value_count);
extern void group_table_reset(GroupTable *table);
extern void group_table_forget(GroupTable *table);
extern void group_table_evaluate(GroupTable *table, VectorContext *context,
								 const Selection *selection);
extern void group_table_hash(GroupTable *table, const Selection *selection);
extern void group_table_find(GroupTable *table, const Selection *selection);
extern void group_table_find_existing(GroupTable *table, const Selection *selection);
extern void group_table_add_new(GroupTable *table, VectorContext *context,
								Selection *selection, uint16 *numbers);
extern void group_table_add_empty(GroupTable *table);
extern void group_table_hash_present(GroupTable *table, VectorContext *context,
									 Selection *selection, uint16 *numbers, bool keeps_rows);
extern void group_table_look_up(GroupTable *table, Selection *selection, uint16 *numbers);
extern Size group_table_bytes(const GroupTable *table);

/* group_key.c */
extern const char *key_obstacle(const Expr *key, Oid equality, Oid collation);
extern bool group_key_has_vector(const GroupKey *key, VectorContext *context);
extern void group_key_evaluate(GroupKey *key, VectorContext *context,
							   const Selection *selection);
extern void group_key_evaluate_some(GroupKey *key, VectorContext *context,
									const Selection *some, const Selection *all);
extern void group_keys_make_words(GroupTable *table, const Selection *selection);
extern void group_keys_hash(GroupTable *table, const Selection *selection);
extern bool group_keys_match(const GroupTable *table, const char *group, int row);
extern void group_keys_store(GroupTable *table, char *group, int row);
extern Datum group_key_datum(const GroupTable *table, char *group, int key);
extern Size group_header_bytes(const GroupKey *keys, int key_count);

/* group_order.c */
typedef struct GroupOrder GroupOrder;

extern GroupOrder *group_order_create(const List *keys, const List *operators,
									  const List *collations, const List *nulls_first);
extern char **group_order_sort(GroupOrder *order, const GroupTable *table);

#endif
