/*
 * agg_state.h
 *	  A running BatchAgg.
 */
#ifndef BATCHEXEC_AGG_STATE_H
#define BATCHEXEC_AGG_STATE_H

#include "aggregate.h"
#include "batch_limits.h"
#include "compaction.h"
#include "group.h"
#include "kept_rows.h"
#include "node.h"

/* What an aggregation computes of one of its tables. */
typedef struct AggInput
{
	GroupKey   *keys;
	Aggregate **aggregates;
	RowArguments by_row;		/* arguments that are evaluated by row in any case, for all rows */
	RowEvaluation evaluation;
	bool		replays_errors;
	KeptRows	kept;			/* its rows in files */
	Compaction	compaction;		/* of its batches */
	bool		may_wait;		/* its rows, for those of later batches */
} AggInput;

typedef struct AggFiles AggFiles;

typedef struct BatchAggState
{
	BatchNode	node;			/* must be first */
	bool		returns_parts;	/* of groups, rather than write rows to files */
	bool		has_distinct;	/* aggregates of DISTINCT arguments */
	bool		keeps_values;	/* aggregates whose states grow with the rows */
	AggInput   *inputs;			/* of each of the node's, which share the states */
	AggInput   *waiting;		/* that has rows which wait for others, or NULL */
	int			aggregate_count;
	int			key_count;
	int			grouping_count; /* GROUPING() results */
	const List *groupings;		/* of each, its value in each set */
	MemoryContext memory;		/* of values that the states point to */
	char	   *plain_states;	/* not grouped: the states, one after another */
	Size		state_bytes;
	int			set_count;		/* grouping sets; 0: not grouped */
	GroupTable **tables;		/* of each set */
	char	  **row_groups[GROUPING_SETS_MAX];	/* of each table; of a row that goes to a file: NULL */
	int			first_set;		/* that rows are taken into: of those in a file, the only one */
	int			end_set;		/* behind the last one */
	Size		memory_limit_bytes;
	GroupOrder *order;			/* that groups are returned in, or NULL: that of their first rows */
	char	  **ordered_groups;
	int			set_next;		/* set, and group in it, to emit next */
	uint32		group_next;
	bool		is_filled;		/* groups or states are ready to be emitted */
	bool		input_is_done;

	/* where the groups, or their distinct values, don't fit in memory */
	AggFiles   *files;			/* of rows; NULL: none */
	int			files_read;		/* in all, rescans included */
	int64		file_blocks;	/* at once, at most */
} BatchAggState;

extern void agg_reset_states(BatchAggState *state);
extern Aggregate *agg_next_distinct(const BatchAggState *state, int *number);

/* agg_files.c */
extern bool agg_files_are_possible(const BatchAggState *state);
extern void agg_files_plan(BatchAggState *state);
extern void agg_files_begin(BatchAggState *state);
extern bool agg_files_are_written(const BatchAggState *state);
extern void agg_files_write(BatchAggState *state, int input, int set,
							const Selection *selection);
extern int64 agg_files_block_count(const BatchAggState *state);
extern bool agg_files_next(BatchAggState *state);
extern bool agg_files_are_read(const BatchAggState *state);
extern bool agg_files_next_batch(BatchAggState *state);
extern void agg_files_begin_sort(BatchAggState *state);
extern void agg_files_add_sorted(BatchAggState *state, TupleTableSlot *slot);
extern void agg_files_end_sort(BatchAggState *state);
extern bool agg_files_are_sorted(const BatchAggState *state);
extern bool agg_files_next_sorted(BatchAggState *state, TupleTableSlot *slot);
extern void agg_files_end(BatchAggState *state);

/* agg_waiting.c */
extern void agg_waiting_begin(BatchAggState *state);
extern void agg_waiting_forget(BatchAggState *state);
extern bool agg_rows_wait(BatchAggState *state, AggInput *input);

/* agg_memory.c */
extern bool agg_exceeds_memory(const BatchAggState *state, uint64 entries);
extern void agg_use_files(BatchAggState *state);
extern void agg_finish_distinct(BatchAggState *state);

#endif
