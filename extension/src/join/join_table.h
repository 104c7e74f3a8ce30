/*
 * join_table.h
 *	  The hash table of a join: its inner rows, by their keys.
 */
#ifndef BATCHEXEC_JOIN_TABLE_H
#define BATCHEXEC_JOIN_TABLE_H

#include "datum_vector.h"
#include "group.h"

/* Columns of an inner row: a bit each says whether it is NULL. */
#define JOIN_INNER_COLUMNS_MAX	64

typedef struct JoinRow
{
	struct JoinRow *next;		/* of the same keys, from the newest to the oldest */
	uint64		nulls;
	Datum		values[FLEXIBLE_ARRAY_MEMBER];
} JoinRow;

/* Memory that rows and their values are cut from. */
typedef struct JoinMemory
{
	MemoryContext context;
	char	   *chunk;
	Size		chunk_bytes_left;
} JoinMemory;

typedef struct JoinTable
{
	GroupTable *groups;			/* of each key its rows */
	GroupKey   *inner_keys;
	GroupKey   *outer_keys;
	JoinMemory	kept;			/* of groups, rows, and what they point to */
	JoinMemory	scratch;		/* of values of rows that may not be kept */
	JoinMemory *collected;		/* either: of values of rows that are not in the table yet */
	TupleDesc	descriptor;		/* of inner rows */
	Size		rows_offset;	/* of the rows in a group */
	Size		row_bytes;
	bool		keeps_all;		/* rows with a NULL key, and which keys are met */
	bool		keeps_outer;	/* outer rows without a match are returned */
	bool		keeps_one;		/* row of each key: that there is one is all that is asked */
	JoinRow    *unkeyed;		/* the rows with a NULL key */
	uint64		row_count;		/* that are kept */
} JoinTable;

/* Where a walk over all rows is. */
typedef struct JoinTableWalk
{
	uint32		group_next;
	JoinRow    *row;
	bool		has_unkeyed;	/* has come to the rows with a NULL key */
	bool		only_unmatched; /* of keys that no outer row has */
} JoinTableWalk;

extern JoinTable *join_table_create(MemoryContext memory, GroupKey *inner_keys,
									GroupKey *outer_keys, int key_count,
									TupleDesc descriptor);
extern void join_table_keep_one(JoinTable *table);
extern void join_table_reset(JoinTable *table);
extern void join_table_forget_collected(JoinTable *table);
extern Datum join_table_copy(void *table, Datum value, int length);
extern void *join_table_copy_bytes(JoinTable *table, const void *from, Size bytes);
extern Selection join_table_hash_inner(JoinTable *table, VectorContext *context,
									   uint16 *numbers);
extern void join_table_add(JoinTable *table, VectorContext *context,
						   const DatumBatch *rows);
extern void join_table_fetch(const JoinTable *table, const JoinRow *row, DatumBatch *rows);
extern Selection join_table_hash_outer(JoinTable *table, VectorContext *context,
									   uint16 *numbers);
extern bool join_table_outer_keys_fail(const JoinTable *table, VectorContext *context);
extern void join_table_probe(JoinTable *table, Selection *present, uint16 *numbers,
							 JoinRow **rows);
extern void join_table_forget_matches(JoinTable *table);
extern Size join_table_bytes(const JoinTable *table);
extern JoinRow *join_table_walk(const JoinTable *table, JoinTableWalk *walk);

#endif
