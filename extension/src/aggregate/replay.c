/*
 * replay.c
 *	  The error that stock execution would have raised.
 *
 * A batch is evaluated an expression at a time, so where two expressions fail
 * for different rows, another error comes first than by row.  To raise the one
 * that stock raises, the batch is then evaluated again by row; only its first
 * error is of interest, as all of this ends in one.
 */
#include "postgres.h"

#include "executor/executor.h"

#include "aggregate.h"
#include "group.h"

bool
replay_is_needed(const RowEvaluation *evaluation)
{
	int			count = qual_count_raising(evaluation->qual);

	for (int i = 0; i < evaluation->key_count; i++)
		count += vector_may_raise(evaluation->keys[i].expression);
	for (int i = 0; i < evaluation->aggregate_count; i++)
	{
		const Aggregate *aggregate = evaluation->aggregates[i];

		if (OidIsValid(aggregate->argument.type))
			count += vector_may_raise(aggregate->argument.expression);
		if (OidIsValid(aggregate->second.type))
			count += vector_may_raise(aggregate->second.expression);
		if (aggregate->filter != NULL)
			count += qual_count_raising(aggregate->filter);
	}
	return count > 1;
}

static bool
clauses_hold(BatchQual *qual)
{
	for (int i = 0; i < qual->clause_count; i++)
	{
		bool		is_null;
		Datum		truth = row_expression_evaluate(&qual->rows[i], &is_null);

		if (is_null || !DatumGetBool(truth))
			return false;
	}
	return true;
}

void
replay_batch(const RowEvaluation *evaluation, TupleBatch *batch,
			 const Selection *selection, bool is_filtered)
{
	ExprContext *econtext = evaluation->qual->context->econtext;
	bool		is_null;

	for (int at = 0; at < selection->count; at++)
	{
		const int	row = selection->rows != NULL ? selection->rows[at] : at;

		ResetExprContext(econtext);
		econtext->ecxt_scantuple = batch->ops->materialise_row(batch, row);
		if (!is_filtered && !clauses_hold(evaluation->qual))
			continue;
		for (int i = 0; i < evaluation->key_count; i++)
			row_expression_evaluate(&evaluation->keys[i].row, &is_null);
		for (int i = 0; i < evaluation->aggregate_count; i++)
		{
			Aggregate  *aggregate = evaluation->aggregates[i];

			if (aggregate->filter != NULL && !clauses_hold(aggregate->filter))
				continue;
			if (OidIsValid(aggregate->argument.type))
				row_expression_evaluate(&aggregate->argument.row, &is_null);
			if (OidIsValid(aggregate->second.type))
				row_expression_evaluate(&aggregate->second.row, &is_null);
		}
	}
}
