/*
 * join_state.h
 *	  A running BatchJoin.
 */
#ifndef BATCHEXEC_JOIN_STATE_H
#define BATCHEXEC_JOIN_STATE_H

#include "compaction.h"
#include "exact_rows.h"
#include "join.h"
#include "join_batch.h"
#include "join_rounds.h"
#include "node.h"

/* For EXPLAIN: the largest of all loops. */
typedef struct JoinFigures
{
	bool		has_read;		/* the inner side, in any loop */
	uint64		row_count;		/* of the inner side, as far as they are kept */
	Size		table_bytes;
	int			round_count;
	int64		file_blocks;
} JoinFigures;

typedef struct BatchJoinState
{
	BatchNode	node;			/* must be first */
	JoinType	type;
	BatchNode  *outer;
	BatchNode  *scan;			/* below it, or the same */
	KeptRows	kept;			/* outer rows in files */
	Compaction	compaction;		/* of outer batches */
	JoinBatch	pairs;
	VectorContext outer_context;	/* of keys over outer rows */
	VectorContext inner_context;
	VectorContext pair_context; /* of the clauses */
	BatchQual  *clauses;
	bool		inner_keys_vary;	/* with a parameter */
	bool		outer_keys_may_raise;	/* an error */
	bool		columns_are_planned;

	/* the inner side */
	BatchNode  *inner;			/* whose batches are taken; NULL: its rows are */
	BatchColumn **inner_columns;	/* of its batches, for each column of a row */
	DatumBatch *inner_rows;		/* read, but not yet in the table */
	TupleBatch *inner_batch;	/* the same */
	JoinTable  *table;
	MemoryContext memory;
	Size		memory_limit_bytes;
	JoinFigures figures;
	bool		is_filled;		/* the inner side has been read */

	/* the outer side */
	bool		has_outer;		/* a batch of it is current */
	bool		outer_is_fresh; /* and has not been looked up */
	bool		outer_is_held;	/* the node's batch comes behind the compacted one */
	bool		outer_has_ended;	/* and the compacted batch is the last one */
	bool		is_finished;	/* there are no more pairs */
	bool		returns_unmatched;	/* inner rows, behind all pairs */
	JoinRow    *matches[BATCH_ROWS_MAX];	/* of each outer row the newest */
	int			outer_at;		/* among the selected rows */
	bool		is_within_row;	/* match is the next of the row at outer_at */
	JoinRow    *match;
	ExactRows	outer_waiting;	/* rows of the outer batch */

	/* pairs as rows */
	bool		has_rows;
	int			row_next;
	ExactRows	waiting;		/* pairs */
	JoinTableWalk walk;

	JoinRounds *rounds;			/* where the inner rows exceed the memory */
} BatchJoinState;

/* join_inner.c */
extern void join_inner_begin(BatchJoinState *state, Plan *plan, EState *estate, int eflags);
extern void join_inner_flush(BatchJoinState *state);
extern void join_inner_read(BatchJoinState *state);

/* join_explain.c */
extern void join_note_figures(BatchJoinState *state);
extern void join_explain(CustomScanState *css, List *ancestors, ExplainState *es);

#endif
