/*
 * aggregate_regression.c
 *	  Correlation, covariance and linear regression of pairs of floats, strictly in
 *	  row order and with core's formulas, so that results are equal to the bit.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/float.h"
#include "utils/fmgrprotos.h"

#include "aggregate.h"
#include "server.h"

/* Of one of the two: the formulas are those of Youngs and Cramer. */
typedef struct Spread
{
	float8		sum;
	float8		square_sum;		/* of the differences from the mean */
	float8		common;			/* the one value of all rows; NaN: there are several, or it is not asked for */
} Spread;

/* The state of float8_regr_accum. */
typedef struct RegressionState
{
	float8		count;
	Spread		x;
	Spread		y;
	float8		product_sum;	/* of both differences from the means */
} RegressionState;

/* The first value decides whether the sums of differences can be finite at all. */
static inline void
start_spread(Spread *spread, float8 *product_sum, float8 value)
{
	if (isnan(value) || isinf(value))
		spread->square_sum = *product_sum = get_float8_nan();
	spread->common = REGRESSION_KNOWS_CONSTANTS ? value : get_float8_nan();
}

/* Take note of another value; returns whether there are several. */
static inline bool
spread_varies(Spread *spread, float8 value)
{
	if (!REGRESSION_KNOWS_CONSTANTS)
		return true;
	if (value != spread->common)
		spread->common = get_float8_nan();
	return isnan(spread->common);
}

/* Did finite values make a sum infinite? */
static inline bool
has_overflowed(const Spread *spread, float8 sum_before, float8 value)
{
	return (isinf(spread->sum) || isinf(spread->square_sum)) &&
		!isinf(sum_before) && !isinf(value);
}

static inline void
no_infinity(float8 *sum)
{
	if (isinf(*sum))
		*sum = get_float8_nan();
}

static void
check_sums(RegressionState *state, const RegressionState *before, float8 y, float8 x)
{
	if (has_overflowed(&state->x, before->x.sum, x) ||
		has_overflowed(&state->y, before->y.sum, y) ||
		(isinf(state->product_sum) && !isinf(before->x.sum) && !isinf(x) &&
		 !isinf(before->y.sum) && !isinf(y)))
		float_overflow_error();
	no_infinity(&state->x.square_sum);
	no_infinity(&state->y.square_sum);
	no_infinity(&state->product_sum);
}

static inline void
add_pair(RegressionState *state, float8 y, float8 x)
{
	const RegressionState before = *state;

	state->count += 1.0;
	state->x.sum += x;
	state->y.sum += y;
	if (before.count > 0.0)
	{
		const float8 difference_x = x * state->count - state->x.sum;
		const float8 difference_y = y * state->count - state->y.sum;
		const float8 scale = 1.0 / (state->count * before.count);

		const bool	x_varies = spread_varies(&state->x, x);
		const bool	y_varies = spread_varies(&state->y, y);

		if (x_varies)
			state->x.square_sum += difference_x * difference_x * scale;
		if (y_varies)
			state->y.square_sum += difference_y * difference_y * scale;
		if (x_varies && y_varies)
			state->product_sum += difference_x * difference_y * scale;
		if (unlikely(isinf(state->x.sum) || isinf(state->x.square_sum) ||
					 isinf(state->y.sum) || isinf(state->y.square_sum) ||
					 isinf(state->product_sum)))
			check_sums(state, &before, y, x);
	}
	else
	{
		start_spread(&state->x, &state->product_sum, x);
		start_spread(&state->y, &state->product_sum, y);
	}
}

/* The first argument is y, as SQL has it. */
static void
add_pairs(const Aggregate *aggregate, void *state, char **groups, const Vector *first,
		  const Vector *second, const Selection *selection)
{
	const Datum *y = first->values;
	const Datum *x = second->values;

	if (groups != NULL)
		FOR_SELECTED(row, selection,
					 add_pair((RegressionState *) (groups[row] + aggregate->state_offset),
							  DatumGetFloat8(y[row]), DatumGetFloat8(x[row])));
	else
		FOR_SELECTED(row, selection,
					 add_pair(state, DatumGetFloat8(y[row]), DatumGetFloat8(x[row])));
}

static Datum
finish_partial(const Aggregate *aggregate, const void *state_, bool *is_null)
{
	const RegressionState *state = state_;
	Datum		elements[] = {
		Float8GetDatum(state->count),
		Float8GetDatum(state->x.sum), Float8GetDatum(state->x.square_sum),
		Float8GetDatum(state->y.sum), Float8GetDatum(state->y.square_sum),
		Float8GetDatum(state->product_sum),
		Float8GetDatum(state->x.common), Float8GetDatum(state->y.common),
	};
	const int	count = lengthof(elements) - (REGRESSION_KNOWS_CONSTANTS ? 0 : 2);

	(void) aggregate;
	(void) is_null;
	return PointerGetDatum(construct_array(elements, count, FLOAT8OID,
										   sizeof(float8), FLOAT8PASSBYVAL,
										   TYPALIGN_DOUBLE));
}

#define DEFINE_REGRESSION(name_) \
static Datum \
finish_##name_(const Aggregate *aggregate, const void *state, bool *is_null) \
{ \
	return aggregate_call_final(float8_##name_, finish_partial(aggregate, state, is_null), \
								is_null); \
} \
const AggregateOps name_##_ops = { \
	.state_bytes = sizeof(RegressionState), \
	.accumulate_pairs = add_pairs, \
	.finish = finish_##name_, \
	.finish_partial = finish_partial, \
}

DEFINE_REGRESSION(corr);
DEFINE_REGRESSION(covar_pop);
DEFINE_REGRESSION(covar_samp);
DEFINE_REGRESSION(regr_avgx);
DEFINE_REGRESSION(regr_avgy);
DEFINE_REGRESSION(regr_intercept);
DEFINE_REGRESSION(regr_r2);
DEFINE_REGRESSION(regr_slope);
DEFINE_REGRESSION(regr_sxx);
DEFINE_REGRESSION(regr_sxy);
DEFINE_REGRESSION(regr_syy);
