/*
 * agg_waiting.c
 *	  Rows of sparse batches that wait for others, to be grouped together.
 */
#include "postgres.h"

#include "agg_state.h"

/* Rows of groups may wait for others, if none of those raises an error before they are taken. */
void
agg_waiting_begin(BatchAggState *state)
{
	const BatchNode *child = state->node.child;

	for (int i = 0; i < state->node.input_count; i++)
	{
		AggInput   *input = &state->inputs[i];
		const BatchInput *table = &state->node.inputs[i];

		input->may_wait = input->kept.batch != NULL && !input->replays_errors &&
			(child != NULL ? !child->subtree_may_raise :
			 table->source->foreign_scan == NULL && qual_count_raising(table->qual) == 0);
		if (input->may_wait)
			compaction_begin(&input->compaction, &input->kept);
	}
}

/* Let go of rows that wait for others. */
void
agg_waiting_forget(BatchAggState *state)
{
	state->waiting = NULL;
	for (int i = 0; i < state->node.input_count; i++)
		if (state->inputs[i].may_wait)
			compaction_forget(&state->inputs[i].compaction);
}

/* Have the selected rows of a batch wait for others, if they may and are few. */
bool
agg_rows_wait(BatchAggState *state, AggInput *input)
{
	if (!input->may_wait || agg_files_are_read(state) ||
		!compaction_take(&input->compaction, state->node.css.ss.ps.state, state->node.counters))
		return false;
	state->waiting = input;
	return true;
}
