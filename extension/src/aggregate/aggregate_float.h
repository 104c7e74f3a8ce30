/*
 * aggregate_float.h
 *	  The transition state of float8_accum, of which avg and variances are made.
 */
#ifndef BATCHEXEC_AGGREGATE_FLOAT_H
#define BATCHEXEC_AGGREGATE_FLOAT_H

#include "aggregate.h"

/* The formulas are those of Youngs and Cramer. */
typedef struct FloatAverageState
{
	float8		count;
	float8		sum;
	float8		square_sum;		/* of the differences from the mean */
} FloatAverageState;

extern void average_floats(const Aggregate *aggregate, void *state,
						   const Vector *vector, const Selection *selection);
extern void average_floats_groups(const Aggregate *aggregate, char **groups,
								  const Vector *vector, const Selection *selection);
extern Datum finish_average_floats_partial(const Aggregate *aggregate,
										   const void *state, bool *is_null);

#endif
