/*
 * aggregate_float.c
 *	  sum and avg of floats, strictly in row order and with core's formulas,
 *	  so that results are equal to the bit.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/float.h"

#include "aggregate_float.h"

typedef struct FloatSumState
{
	int64		count;
	float8		sum;			/* of float4: a float4's value */
} FloatSumState;

static inline void
add_float8(FloatSumState *state, float8 value)
{
	float8		sum = state->sum + value;

	/* The first value is the first state: adding it to 0 would lose -0. */
	if (state->count++ == 0)
		sum = value;
	else if (unlikely(isinf(sum)) && !isinf(state->sum) && !isinf(value))
		float_overflow_error();
	state->sum = sum;
}

static inline void
add_float4(FloatSumState *state, float4 value)
{
	float4		sum = (float4) state->sum + value;

	if (state->count++ == 0)
		sum = value;
	else if (unlikely(isinf(sum)) && !isinf(state->sum) && !isinf(value))
		float_overflow_error();
	state->sum = sum;
}

DEFINE_ACCUMULATE(sum_float8, FloatSumState,
				  add_float8(state, DatumGetFloat8(values[row])))
DEFINE_ACCUMULATE(sum_float4, FloatSumState,
				  add_float4(state, (float4) DatumGetFloat8(values[row])))

static void
sum_floats(const Aggregate *aggregate, void *state, const Vector *vector,
		   const Selection *selection)
{
	if (aggregate->argument.type == FLOAT4OID)
		sum_float4(aggregate, state, vector, selection);
	else
		sum_float8(aggregate, state, vector, selection);
}

static void
sum_floats_groups(const Aggregate *aggregate, char **groups,
				  const Vector *vector, const Selection *selection)
{
	if (aggregate->argument.type == FLOAT4OID)
		sum_float4_groups(aggregate, groups, vector, selection);
	else
		sum_float8_groups(aggregate, groups, vector, selection);
}

static Datum
finish_sum(const Aggregate *aggregate, const void *state, bool *is_null)
{
	const FloatSumState *floats = state;

	*is_null = (floats->count == 0);
	return aggregate->argument.type == FLOAT4OID ?
		Float4GetDatum((float4) floats->sum) : Float8GetDatum(floats->sum);
}

const AggregateOps sum_float_ops = {
	.state_bytes = sizeof(FloatSumState),
	.accumulate = sum_floats,
	.accumulate_groups = sum_floats_groups,
	.finish = finish_sum,
	.finish_partial = finish_sum,
};

static inline void
accumulate_float(FloatAverageState *state, float8 value)
{
	float8		count_before = state->count;
	float8		sum_before = state->sum;

	state->count += 1.0;
	state->sum += value;
	if (count_before > 0.0)
	{
		float8		difference = value * state->count - state->sum;

		state->square_sum += difference * difference /
			(state->count * count_before);
		if (unlikely(isinf(state->sum) || isinf(state->square_sum)))
		{
			if (!isinf(sum_before) && !isinf(value))
				float_overflow_error();
			state->square_sum = get_float8_nan();
		}
	}
	else if (isnan(value) || isinf(value))
		state->square_sum = get_float8_nan();
}

DEFINE_ACCUMULATE(add_up_floats, FloatAverageState,
				  accumulate_float(state, DatumGetFloat8(values[row])))

void
average_floats(const Aggregate *aggregate, void *state, const Vector *vector,
			   const Selection *selection)
{
	add_up_floats(aggregate, state, vector, selection);
}

void
average_floats_groups(const Aggregate *aggregate, char **groups,
					  const Vector *vector, const Selection *selection)
{
	add_up_floats_groups(aggregate, groups, vector, selection);
}

static Datum
finish_average(const Aggregate *aggregate, const void *state, bool *is_null)
{
	const FloatAverageState *floats = state;

	(void) aggregate;
	*is_null = (floats->count == 0.0);
	return Float8GetDatum(*is_null ? 0.0 : floats->sum / floats->count);
}

Datum
finish_average_floats_partial(const Aggregate *aggregate, const void *state,
							  bool *is_null)
{
	const FloatAverageState *floats = state;
	Datum		elements[3];

	(void) aggregate;
	(void) is_null;
	elements[0] = Float8GetDatum(floats->count);
	elements[1] = Float8GetDatum(floats->sum);
	elements[2] = Float8GetDatum(floats->square_sum);
	return PointerGetDatum(construct_array(elements, 3, FLOAT8OID,
										   sizeof(float8), FLOAT8PASSBYVAL,
										   TYPALIGN_DOUBLE));
}

const AggregateOps average_float_ops = {
	.state_bytes = sizeof(FloatAverageState),
	.accumulate = average_floats,
	.accumulate_groups = average_floats_groups,
	.finish = finish_average,
	.finish_partial = finish_average_floats_partial,
};
