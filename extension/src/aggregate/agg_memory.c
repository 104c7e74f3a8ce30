/*
 * agg_memory.c
 *	  What a BatchAgg does where its groups exceed the memory for a hash table.
 *
 * Rows of groups that do not fit wait in files (agg_files.c), and so do distinct values that do not
 * (distinct_files.c).
 */
#include "postgres.h"

#include "agg_state.h"

/* Do groups, and values that may still become more, exceed the memory?  What one group keeps has to stay. */
bool
agg_exceeds_memory(const BatchAggState *state, uint64 entries)
{
	Size		bytes = state->set_count > 0 ? MemoryContextMemAllocated(state->memory, true) : 0;
	Aggregate  *aggregate;
	int			number = 0;

	while ((aggregate = agg_next_distinct(state, &number)) != NULL)
		if (!distinct_files_are_written(aggregate))
			bytes += group_table_bytes(aggregate->distinct);
	return entries > 1 && bytes > state->memory_limit_bytes;
}

/* Have rows of groups, and distinct values, that are not in memory go to files from now on. */
void
agg_use_files(BatchAggState *state)
{
	Aggregate  *aggregate;
	int			number = 0;

	if (agg_files_are_possible(state))
		agg_files_begin(state);
	while ((aggregate = agg_next_distinct(state, &number)) != NULL)
		if (!distinct_files_are_written(aggregate))
			distinct_files_begin(aggregate, state->memory_limit_bytes);
}

/* Take the distinct values that are in files into the states. */
void
agg_finish_distinct(BatchAggState *state)
{
	Aggregate  *aggregate;
	int			number = 0;
	int64		blocks = agg_files_block_count(state);

	while ((aggregate = agg_next_distinct(state, &number)) != NULL)
	{
		void	   *plain = state->set_count > 0 ? NULL :
			state->plain_states + aggregate->state_offset;

		state->files_read += distinct_files_finish(aggregate, &state->node.inputs[0].context,
												   plain, state->memory_limit_bytes, &blocks);
	}
	state->file_blocks = Max(state->file_blocks, blocks);
}
