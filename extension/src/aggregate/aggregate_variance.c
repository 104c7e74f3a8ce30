/*
 * aggregate_variance.c
 *	  Variances and standard deviations of integers and floats.
 *
 * The states add up what core's do.  Core's own functions compute the result from
 * them, so that digits and bits are equal to core's.
 */
#include "postgres.h"

#include "nodes/execnodes.h"
#include "utils/fmgrprotos.h"

#include "aggregate.h"
#include "aggregate_float.h"
#include "aggregate_numeric.h"
#include "numeric_vector.h"

/* As an aggregation does. */
Datum
aggregate_call_final(PGFunction function, Datum argument, bool *is_null)
{
	LOCAL_FCINFO(call, 1);
	AggState   *caller = makeNode(AggState);
	Datum		result;

	InitFunctionCallInfoData(*call, NULL, 1, InvalidOid, (Node *) caller, NULL);
	call->args[0].value = argument;
	call->args[0].isnull = false;
	result = function(call);
	*is_null = call->isnull;
	return result;
}

/* Of int2 and int4: a square takes 62 bits, so that 128 are enough. */
typedef struct IntegerSquaresState
{
	int64		count;
	int128		sum;
	int128		square_sum;
} IntegerSquaresState;

DEFINE_ACCUMULATE(integer_squares, IntegerSquaresState,
				  const int64 value = DatumGetInt64(values[row]);
				  state->count++;
				  state->sum += value;
				  state->square_sum += value * value)

static Datum
finish_squares_partial(const Aggregate *aggregate, const void *state_, bool *is_null)
{
	const IntegerSquaresState *state = state_;

	(void) aggregate;
	*is_null = (state->count == 0);
	if (*is_null)
		return (Datum) 0;
	return integer_state_serialize_squares(state->count, state->sum, state->square_sum);
}

static Datum
finish_squares(const Aggregate *aggregate, const void *state, PGFunction function, bool *is_null)
{
	const Datum serialised = finish_squares_partial(aggregate, state, is_null);

	if (*is_null)
		return (Datum) 0;
	return aggregate_call_final(function,
					  aggregate_call_final(numeric_poly_deserialize, serialised, is_null), is_null);
}

/* The state of float8_accum, which avg has, too. */
static Datum
finish_floats(const Aggregate *aggregate, const void *state, PGFunction function, bool *is_null)
{
	return aggregate_call_final(function,
					  finish_average_floats_partial(aggregate, state, is_null), is_null);
}

#define DEFINE_VARIANCE(name_) \
static Datum \
finish_integer_##name_(const Aggregate *aggregate, const void *state, bool *is_null) \
{ \
	return finish_squares(aggregate, state, numeric_poly_##name_, is_null); \
} \
const AggregateOps name_##_integer_ops = { \
	.state_bytes = sizeof(IntegerSquaresState), \
	.accumulate = integer_squares, \
	.accumulate_groups = integer_squares_groups, \
	.finish = finish_integer_##name_, \
	.finish_partial = finish_squares_partial, \
	.takes_any_order = true, \
}; \
static Datum \
finish_float_##name_(const Aggregate *aggregate, const void *state, bool *is_null) \
{ \
	return finish_floats(aggregate, state, float8_##name_, is_null); \
} \
const AggregateOps name_##_float_ops = { \
	.state_bytes = sizeof(FloatAverageState), \
	.accumulate = average_floats, \
	.accumulate_groups = average_floats_groups, \
	.finish = finish_float_##name_, \
	.finish_partial = finish_average_floats_partial, \
}

DEFINE_VARIANCE(var_pop);
DEFINE_VARIANCE(var_samp);
DEFINE_VARIANCE(stddev_pop);
DEFINE_VARIANCE(stddev_samp);
