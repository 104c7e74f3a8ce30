/*
 * join_rounds.h
 *	  A hash join in rounds, each over a part of the keys, whose inner rows fit
 *	  in memory.
 */
#ifndef BATCHEXEC_JOIN_ROUNDS_H
#define BATCHEXEC_JOIN_ROUNDS_H

#include "hash_filter.h"
#include "kept_rows.h"

/* The rows of some keys, in files. */
typedef struct JoinRound
{
	List	   *inner;			/* RowFiles */
	RowFile    *outer;			/* NULL: none yet */
	uint64		table_bytes;	/* that its inner rows take in the hash table, at a guess */
	int			level;			/* how often its rows have been divided */
} JoinRound;

typedef struct JoinRounds
{
	MemoryContext memory;		/* of all this */
	RowStore   *store;			/* of the files */
	RowFormat  *inner_format;
	RowFile   **parts;			/* of inner rows, by the bits of their hashes, until rounds are made */
	JoinRound **round_of_part;
	int			part_count;		/* a power of two */
	List	   *waiting;		/* JoinRounds to come */
	JoinRound  *first;			/* whose outer rows are not in a file */
	JoinRound  *current;
	uint64		outer_rows_left;	/* in the current round's file */
	HashFilter	filter;			/* of the hashes of inner rows in files */
	uint32		unkeyed_count;	/* inner rows with a NULL key so far */
	int			rounds_made;
	uint64		inner_row_count;
	uint64		key_bytes;		/* of copies that the hash table's groups make of their keys */

	/* an inner row that is written */
	Datum	   *values;
	bool	   *nulls;
} JoinRounds;

struct BatchJoinState;

extern void join_rounds_plan_outer(struct BatchJoinState *state);
extern void join_rounds_begin(struct BatchJoinState *state);
extern void join_rounds_write_inner(struct BatchJoinState *state);
extern void join_rounds_start(struct BatchJoinState *state);
extern bool join_rounds_next(struct BatchJoinState *state);
extern void join_rounds_write_outer(struct BatchJoinState *state, Selection *present,
									uint16 *numbers);
extern bool join_rounds_next_outer(struct BatchJoinState *state);
extern void join_rounds_end(struct BatchJoinState *state);

#endif
