/*
 * replay.h
 *	  The error that stock execution would have raised.
 */
#ifndef BATCHEXEC_REPLAY_H
#define BATCHEXEC_REPLAY_H

#include "aggregate.h"
#include "group.h"

/* Everything that an aggregation evaluates for a row, in stock's order. */
typedef struct RowEvaluation
{
	BatchQual  *qual;
	GroupKey   *keys;
	int			key_count;
	Aggregate **aggregates;
	int			aggregate_count;
} RowEvaluation;

/* Can more than one of the expressions fail? */
extern bool replay_is_needed(const RowEvaluation *evaluation);

/*
 * After an error within a batch: evaluate these rows one by one, and raise what
 * is met first.  Returns where no row raises an error.
 */
extern void replay_batch(const RowEvaluation *evaluation, TupleBatch *batch,
						 const Selection *selection, bool is_filtered);

#endif
