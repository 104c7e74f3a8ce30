/*
 * join_state.h
 *	  A running BatchJoin.
 */
#ifndef BATCHEXEC_JOIN_STATE_H
#define BATCHEXEC_JOIN_STATE_H

#include "join.h"
#include "join_batch.h"
#include "node.h"
#include "relay.h"

typedef struct BatchJoinState
{
	BatchNode	node;			/* must be first */
	JoinType	type;
	BatchNode  *outer;
	JoinBatch	pairs;
	VectorContext outer_context;	/* of keys over outer rows */
	VectorContext inner_context;
	VectorContext pair_context; /* of the clauses */
	BatchQual  *clauses;
	bool		inner_keys_vary;	/* with a parameter */
	bool		columns_are_planned;

	/* the inner side */
	BatchNode  *inner;			/* whose batches are taken; NULL: its rows are */
	BatchColumn **inner_columns;	/* of its batches, for each column of a row */
	DatumBatch *inner_rows;		/* read, but not yet in the table */
	TupleBatch *inner_batch;	/* the same */
	JoinTable  *table;
	MemoryContext memory;
	Size		memory_limit_bytes;
	Size		peak_bytes;
	bool		is_filled;		/* the inner side has been read, or a spill does */
	bool		inner_is_done;

	/* the outer side */
	bool		has_outer;		/* a batch of it is current */
	bool		outer_is_fresh; /* and has not been looked up */
	bool		is_finished;	/* there are no more pairs */
	bool		returns_unmatched;	/* inner rows, behind all pairs */
	JoinRow    *matches[BATCH_ROWS_MAX];	/* of each outer row the newest */
	int			outer_at;		/* among the selected rows */
	bool		is_within_row;	/* match is the next of the row at outer_at */
	JoinRow    *match;

	/* pairs as rows */
	bool		has_rows;
	int			row_next;

	/* a stock hash join, where the inner rows exceed the memory */
	PlanState  *spill;
	MemoryContext spill_row_memory;
	RelaySource inner_source;
	RelaySource outer_source;
	JoinTableWalk walk;
	TupleTableSlot *inner_slot;
	DatumBatch *spill_rows;
	int			spill_outer_at;
} BatchJoinState;

/* join_inner.c */
extern void join_inner_begin(BatchJoinState *state, Plan *plan, EState *estate, int eflags);
extern bool join_inner_read(BatchJoinState *state);

/* join_spill.c */
extern void join_spill_begin(BatchJoinState *state);
extern bool join_spill_next_batch(BatchJoinState *state);
extern void join_spill_rescan(BatchJoinState *state, bool inner_has_changed);
extern void join_spill_end(BatchJoinState *state);

#endif
