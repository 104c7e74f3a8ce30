/*
 * aggregate_integer.c
 *	  count, and sum and avg of integers.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"

#include "aggregate.h"
#include "aggregate_numeric.h"
#include "numeric_vector.h"

static void
count_rows(const Aggregate *aggregate, void *state, const Vector *vector,
		   const Selection *selection)
{
	(void) aggregate;
	(void) vector;
	*(int64 *) state += selection->count;
}

/* How many of the selected rows hold a value. */
static int
present_count(const bool *nulls, const Selection *selection)
{
	/* Each byte of ones has a one, so that a product's highest byte is their sum. */
	const uint64 ones = PG_UINT64_MAX / 0xff;
	int			row = 0;
	int			missing = 0;

	if (selection->rows != NULL)
	{
		FOR_SELECTED(selected, selection, missing += nulls[selected]);
		return selection->count - missing;
	}
	for (; row + sizeof(uint64) <= selection->count; row += sizeof(uint64))
	{
		uint64		flags;

		memcpy(&flags, nulls + row, sizeof(flags));
		missing += (flags * ones) >> 56;
	}
	for (; row < selection->count; row++)
		missing += nulls[row];
	return selection->count - missing;
}

static void
count_present(const Aggregate *aggregate, void *state, const Vector *vector,
			  const Selection *selection)
{
	(void) aggregate;
	*(int64 *) state += present_count(vector->nulls, selection);
}

static void
count_rows_groups(const Aggregate *aggregate, char **groups,
				  const Vector *vector, const Selection *selection)
{
	const int	offset = aggregate->state_offset;

	(void) vector;
	FOR_SELECTED(row, selection, ++*(int64 *) (groups[row] + offset));
}

static void
count_present_groups(const Aggregate *aggregate, char **groups,
					 const Vector *vector, const Selection *selection)
{
	const int	offset = aggregate->state_offset;
	const bool *nulls = vector->nulls;

	FOR_SELECTED(row, selection,
				 *(int64 *) (groups[row] + offset) += !nulls[row]);
}

static Datum
finish_count(const Aggregate *aggregate, const void *state, bool *is_null)
{
	(void) aggregate;
	(void) is_null;
	return Int64GetDatum(*(const int64 *) state);
}

const AggregateOps count_ops = {
	.state_bytes = sizeof(int64),
	.accumulate = count_rows,
	.accumulate_present = count_present,
	.accumulate_groups = count_rows_groups,
	.accumulate_present_groups = count_present_groups,
	.finish = finish_count,
	.finish_partial = finish_count,
	.takes_any_order = true,
};

/* int2 and int4: core sums them in 64 bits, which wrap. */
typedef struct IntegerState
{
	int64		count;
	int64		sum;
} IntegerState;

DEFINE_ACCUMULATE(sum_integers, IntegerState,
				  state->count++;
				  state->sum = (int64) ((uint64) state->sum +
										(uint64) DatumGetInt64(values[row])))

/* The value of a NULL is masked out where it may be anything. */
static void
sum_integers_present(const Aggregate *aggregate, void *state_,
					 const Vector *vector, const Selection *selection)
{
	IntegerState *state = state_;
	const Datum *values = vector->values;
	const bool *nulls = vector->nulls;
	uint64		sum = (uint64) state->sum;

	(void) aggregate;
	if (vector->nulls_are_zero)
		FOR_SELECTED(row, selection, sum += (uint64) values[row]);
	else
		FOR_SELECTED(row, selection,
					 sum += (uint64) values[row] & ((uint64) nulls[row] - 1));
	state->sum = (int64) sum;
	state->count += present_count(nulls, selection);
}

static void
sum_integers_present_groups(const Aggregate *aggregate, char **groups,
							const Vector *vector, const Selection *selection)
{
	const int	offset = aggregate->state_offset;
	const Datum *values = vector->values;
	const bool *nulls = vector->nulls;

	FOR_SELECTED(row, selection,
				 IntegerState *state = (IntegerState *) (groups[row] + offset);
				 const uint64 present = (uint64) nulls[row] - 1;	/* all ones, or zero */
				 state->count -= (int64) present;
				 state->sum = (int64) ((uint64) state->sum + ((uint64) values[row] & present)));
}

static Datum
finish_sum(const Aggregate *aggregate, const void *state, bool *is_null)
{
	const IntegerState *integers = state;

	(void) aggregate;
	*is_null = (integers->count == 0);
	return Int64GetDatum(integers->sum);
}

static Datum
finish_average(const Aggregate *aggregate, const void *state, bool *is_null)
{
	const IntegerState *integers = state;

	(void) aggregate;
	*is_null = (integers->count == 0);
	if (*is_null)
		return (Datum) 0;
	return DirectFunctionCall2(numeric_div,
							   NumericGetDatum(int64_to_numeric(integers->sum)),
							   NumericGetDatum(int64_to_numeric(integers->count)));
}

/* avg(int2) and avg(int4) pass an int8[] of count and sum. */
static Datum
finish_average_partial(const Aggregate *aggregate, const void *state,
					   bool *is_null)
{
	const IntegerState *integers = state;
	Datum		elements[2];

	(void) aggregate;
	(void) is_null;
	elements[0] = Int64GetDatum(integers->count);
	elements[1] = Int64GetDatum(integers->sum);
	return PointerGetDatum(construct_array(elements, 2, INT8OID, sizeof(int64),
										   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

const AggregateOps sum_integer_ops = {
	.state_bytes = sizeof(IntegerState),
	.accumulate = sum_integers,
	.accumulate_present = sum_integers_present,
	.accumulate_groups = sum_integers_groups,
	.accumulate_present_groups = sum_integers_present_groups,
	.finish = finish_sum,
	.finish_partial = finish_sum,
	.takes_any_order = true,
};

const AggregateOps average_integer_ops = {
	.state_bytes = sizeof(IntegerState),
	.accumulate = sum_integers,
	.accumulate_present = sum_integers_present,
	.accumulate_groups = sum_integers_groups,
	.accumulate_present_groups = sum_integers_present_groups,
	.finish = finish_average,
	.finish_partial = finish_average_partial,
	.takes_any_order = true,
};

/* int8: summed in 128 bits, as core does, with a numeric result. */
typedef struct Int8State
{
	int64		count;
	int128		sum;
} Int8State;

DEFINE_ACCUMULATE(sum_int8, Int8State,
				  state->count++;
				  state->sum += DatumGetInt64(values[row]))

static Datum
finish_sum_int8(const Aggregate *aggregate, const void *state, bool *is_null)
{
	const Int8State *int8_state = state;

	(void) aggregate;
	*is_null = (int8_state->count == 0);
	if (*is_null)
		return (Datum) 0;
	return NumericGetDatum(numeric_from_int128(int8_state->sum, 0, 0));
}

static Datum
finish_average_int8(const Aggregate *aggregate, const void *state, bool *is_null)
{
	const Int8State *int8_state = state;
	Datum		sum = finish_sum_int8(aggregate, state, is_null);

	if (*is_null)
		return (Datum) 0;
	return DirectFunctionCall2(numeric_div, sum,
							   NumericGetDatum(int64_to_numeric(int8_state->count)));
}

static Datum
finish_int8_partial(const Aggregate *aggregate, const void *state, bool *is_null)
{
	const Int8State *int8_state = state;

	(void) aggregate;
	*is_null = (int8_state->count == 0);
	if (*is_null)
		return (Datum) 0;
	return integer_state_serialize(int8_state->count, int8_state->sum);
}

const AggregateOps sum_int8_ops = {
	.state_bytes = sizeof(Int8State),
	.accumulate = sum_int8,
	.accumulate_groups = sum_int8_groups,
	.finish = finish_sum_int8,
	.finish_partial = finish_int8_partial,
	.takes_any_order = true,
};

const AggregateOps average_int8_ops = {
	.state_bytes = sizeof(Int8State),
	.accumulate = sum_int8,
	.accumulate_groups = sum_int8_groups,
	.finish = finish_average_int8,
	.finish_partial = finish_int8_partial,
	.takes_any_order = true,
};
