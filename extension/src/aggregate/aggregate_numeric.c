/*
 * aggregate_numeric.c
 *	  sum and avg of numeric: scaled integers in 128 bits while they fit, and
 *	  core's functions for what does not.  Digits are equal to core's.
 */
#include "postgres.h"

#include "fmgr.h"
#include "libpq/pqformat.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

#include "aggregate.h"
#include "aggregate_numeric.h"
#include "numeric_vector.h"
#include "server.h"

typedef struct NumericState
{
	int64		count;			/* all values, special ones included */
	int128		sum;			/* times 10^-scale, of the values that fit */
	Numeric		large_sum;		/* of finite values that don't, or NULL */
	int64		nan_count;
	int64		plus_infinity_count;
	int64		minus_infinity_count;
	int16		scale;			/* of sum */
	int16		display_scale;	/* largest one of the values */
} NumericState;

/* Special values in their stored headers; infinities exist since 14. */
#define HEADER_SPECIAL_MASK 0xF000
#define HEADER_NAN			0xC000
#define HEADER_PLUS_INFINITY 0xD000
#define HEADER_MINUS_INFINITY 0xF000

static void
add_large(const Aggregate *aggregate, NumericState *state, Datum value)
{
	MemoryContext caller = MemoryContextSwitchTo(aggregate->memory);
	Numeric		sum = DatumGetNumericCopy(value);

	if (state->large_sum != NULL)
	{
		Numeric		larger = DatumGetNumeric(DirectFunctionCall2(numeric_add,
																 NumericGetDatum(state->large_sum),
																 NumericGetDatum(sum)));

		pfree(state->large_sum);
		pfree(sum);
		sum = larger;
	}
	state->large_sum = sum;
	MemoryContextSwitchTo(caller);
}

/* Move the 128-bit sum to the large one. */
static void
flush_sum(const Aggregate *aggregate, NumericState *state)
{
	Numeric		sum = numeric_from_int128(state->sum, state->scale,
										  state->display_scale);

	add_large(aggregate, state, NumericGetDatum(sum));
	state->sum = 0;
}

/* Bring the sum to a scale that holds values of this one. */
static void
raise_scale(const Aggregate *aggregate, NumericState *state, int scale)
{
	if (!int128_multiply_by_power(&state->sum, scale - state->scale))
		flush_sum(aggregate, state);
	state->scale = scale;
}

/* Add value / 10^scale. */
static void
add_scaled(const Aggregate *aggregate, NumericState *state, int64 value,
		   int scale, int display_scale)
{
	int128		term = value;
	int128		sum;

	if (scale > state->scale)
		raise_scale(aggregate, state, scale);
	else if (!int128_multiply_by_power(&term, state->scale - scale))
	{
		/* A sum of many digits after the point: start another at this scale. */
		flush_sum(aggregate, state);
		state->scale = scale;
	}
	if (__builtin_add_overflow(state->sum, term, &sum))
	{
		int			scale_before = state->scale;

		flush_sum(aggregate, state);
		state->scale = scale_before;
		sum = term;
	}
	state->sum = sum;
	state->display_scale = Max(state->display_scale, display_scale);
}

/* Add a stored numeric of any form. */
static void
add_datum(const Aggregate *aggregate, NumericState *state, Datum datum)
{
	struct varlena *value = PG_DETOAST_DATUM_PACKED(datum);
	int64		scaled;
	int			scale;
	uint16		header;

	state->count++;
	if (numeric_decode(value, &scaled, &scale))
	{
		add_scaled(aggregate, state, scaled, scale, scale);
		return;
	}
	memcpy(&header, VARDATA_ANY(value), sizeof(header));
	switch (header & HEADER_SPECIAL_MASK)
	{
		case HEADER_NAN:
			state->nan_count++;
			break;
		case HEADER_PLUS_INFINITY:
			state->plus_infinity_count++;
			break;
		case HEADER_MINUS_INFINITY:
			state->minus_infinity_count++;
			break;
		default:
			add_large(aggregate, state, PointerGetDatum(value));
	}
}

/* Add one value of a vector, with the common case first. */
static inline void
add_value(const Aggregate *aggregate, NumericState *state,
		  const Vector *vector, int row)
{
	if (likely(vector->scale == state->scale && !vector->has_mixed_scales &&
			   state->display_scale >= vector->scale))
	{
		int128		sum;

		if (likely(!__builtin_add_overflow(state->sum,
										   (int128) DatumGetInt64(vector->values[row]),
										   &sum)))
		{
			state->sum = sum;
			state->count++;
			return;
		}
	}
	state->count++;
	add_scaled(aggregate, state, DatumGetInt64(vector->values[row]),
			   vector->scale,
			   vector->has_mixed_scales ? vector->scales[row] : vector->scale);
}

/*
 * All of a batch into one state: 291 values of 64 bits can't overflow 128, so
 * they are summed first.
 */
static void
sum_numerics(const Aggregate *aggregate, void *state_, const Vector *vector,
			 const Selection *selection)
{
	NumericState *state = state_;
	int128		sum = 0;

	if (vector->holds_pointers)
	{
		FOR_SELECTED(row, selection,
					 add_datum(aggregate, state, vector->values[row]));
		return;
	}
	if (vector->has_mixed_scales || selection->count == 0 ||
		vector->scale != state->scale || state->display_scale < vector->scale)
	{
		FOR_SELECTED(row, selection, add_value(aggregate, state, vector, row));
		return;
	}
	FOR_SELECTED(row, selection, sum += DatumGetInt64(vector->values[row]));
	if (__builtin_add_overflow(state->sum, sum, &sum))
	{
		FOR_SELECTED(row, selection, add_value(aggregate, state, vector, row));
		return;
	}
	state->sum = sum;
	state->count += selection->count;
}

static void
sum_numerics_groups(const Aggregate *aggregate, char **groups,
					const Vector *vector, const Selection *selection)
{
	const int	offset = aggregate->state_offset;

	if (vector->holds_pointers)
		FOR_SELECTED(row, selection,
					 add_datum(aggregate, (NumericState *) (groups[row] + offset),
							   vector->values[row]));
	else
		FOR_SELECTED(row, selection,
					 add_value(aggregate, (NumericState *) (groups[row] + offset),
							   vector, row));
}

static Numeric
special_numeric(const char *name)
{
	return DatumGetNumeric(DirectFunctionCall3(numeric_in, CStringGetDatum(name),
											   ObjectIdGetDatum(InvalidOid),
											   Int32GetDatum(-1)));
}

/* The sum of the finite values. */
static Numeric
finite_sum(const NumericState *state)
{
	Numeric		sum = numeric_from_int128(state->sum, state->scale,
										  state->display_scale);

	if (state->large_sum == NULL)
		return sum;
	return DatumGetNumeric(DirectFunctionCall2(numeric_add,
											   NumericGetDatum(state->large_sum),
											   NumericGetDatum(sum)));
}

/* NaN and infinities decide a result, as numeric_sum has it. */
static Numeric
special_result(const NumericState *state)
{
	if (state->nan_count > 0 ||
		(state->plus_infinity_count > 0 && state->minus_infinity_count > 0))
		return special_numeric("NaN");
	if (state->plus_infinity_count > 0)
		return special_numeric("Infinity");
	if (state->minus_infinity_count > 0)
		return special_numeric("-Infinity");
	return NULL;
}

static Datum
finish_sum(const Aggregate *aggregate, const void *state_, bool *is_null)
{
	const NumericState *state = state_;
	Numeric		special;

	(void) aggregate;
	*is_null = (state->count == 0);
	if (*is_null)
		return (Datum) 0;
	special = special_result(state);
	return NumericGetDatum(special != NULL ? special : finite_sum(state));
}

static Datum
finish_average(const Aggregate *aggregate, const void *state_, bool *is_null)
{
	const NumericState *state = state_;
	Numeric		special;

	(void) aggregate;
	*is_null = (state->count == 0);
	if (*is_null)
		return (Datum) 0;
	special = special_result(state);
	if (special != NULL)
		return NumericGetDatum(special);
	return DirectFunctionCall2(numeric_div, NumericGetDatum(finite_sum(state)),
							   NumericGetDatum(int64_to_numeric(state->count)));
}

/* Append a finite numeric as core's states hold it. */
static void
append_numeric(StringInfo buffer, Numeric value)
{
	bytea	   *sent = DatumGetByteaP(DirectFunctionCall1(numeric_send,
														  NumericGetDatum(value)));
	StringInfoData fields;
	int			digit_count;

	if (NUMERIC_STATE_IS_AS_SENT)
	{
		appendBinaryStringInfo(buffer, VARDATA(sent), VARSIZE(sent) - VARHDRSZ);
		return;
	}
	initStringInfo(&fields);
	appendBinaryStringInfo(&fields, VARDATA(sent), VARSIZE(sent) - VARHDRSZ);
	digit_count = (int16) pq_getmsgint(&fields, sizeof(int16));
	pq_sendint32(buffer, digit_count);
	for (int field = 0; field < 3; field++)	/* weight, sign, display scale */
	{
		int			word = pq_getmsgint(&fields, sizeof(int16));

		pq_sendint32(buffer, field == 0 ? (int16) word : word);
	}
	for (int i = 0; i < digit_count; i++)
		pq_sendint16(buffer, pq_getmsgint(&fields, sizeof(int16)));
	pfree(fields.data);
}

/* Append a sum of integers as core's states hold it. */
static void
append_sum(StringInfo buffer, int128 sum)
{
	if (INTEGER_STATE_IS_NUMERIC)
	{
		append_numeric(buffer, numeric_from_int128(sum, 0, 0));
		return;
	}
	pq_sendint64(buffer, (uint64) (sum >> 64));
	pq_sendint64(buffer, (uint64) sum);
}

Datum
integer_state_serialize(int64 count, int128 sum)
{
	StringInfoData buffer;

	pq_begintypsend(&buffer);
	pq_sendint64(&buffer, count);
	append_sum(&buffer, sum);
	return PointerGetDatum(pq_endtypsend(&buffer));
}

Datum
integer_state_serialize_squares(int64 count, int128 sum, int128 square_sum)
{
	StringInfoData buffer;

	pq_begintypsend(&buffer);
	pq_sendint64(&buffer, count);
	append_sum(&buffer, sum);
	append_sum(&buffer, square_sum);
	return PointerGetDatum(pq_endtypsend(&buffer));
}

/* For numeric_avg_deserialize. */
static Datum
finish_partial(const Aggregate *aggregate, const void *state_, bool *is_null)
{
	const NumericState *state = state_;
	StringInfoData buffer;

	(void) aggregate;
	*is_null = (state->count == 0);
	if (*is_null)
		return (Datum) 0;
	pq_begintypsend(&buffer);
	/* Core counts special values apart from the others. */
	pq_sendint64(&buffer, state->count - state->nan_count -
				 state->plus_infinity_count - state->minus_infinity_count);
	append_numeric(&buffer, finite_sum(state));
	pq_sendint32(&buffer, state->display_scale);
	pq_sendint64(&buffer, state->count);
	pq_sendint64(&buffer, state->nan_count);
	pq_sendint64(&buffer, state->plus_infinity_count);
	pq_sendint64(&buffer, state->minus_infinity_count);
	return PointerGetDatum(pq_endtypsend(&buffer));
}

const AggregateOps sum_numeric_ops = {
	.state_bytes = sizeof(NumericState),
	.accumulate = sum_numerics,
	.accumulate_groups = sum_numerics_groups,
	.finish = finish_sum,
	.finish_partial = finish_partial,
	.takes_any_order = true,
};

const AggregateOps average_numeric_ops = {
	.state_bytes = sizeof(NumericState),
	.accumulate = sum_numerics,
	.accumulate_groups = sum_numerics_groups,
	.finish = finish_average,
	.finish_partial = finish_partial,
	.takes_any_order = true,
};
