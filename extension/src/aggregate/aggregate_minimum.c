/*
 * aggregate_minimum.c
 *	  min and max, bool_and and bool_or.
 *
 * As in core, of equal values the later one stays: numerics may be equal and
 * differ in display scale, floats in the sign of zero.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

#include "aggregate.h"

typedef struct MinimumState
{
	Datum		value;
	bool		has_value;
} MinimumState;

DEFINE_ACCUMULATE(minimum_integers, MinimumState,
				  if (!state->has_value ||
					  DatumGetInt64(values[row]) < DatumGetInt64(state->value))
				  state->value = values[row];
				  state->has_value = true)
DEFINE_ACCUMULATE(maximum_integers, MinimumState,
				  if (!state->has_value ||
					  DatumGetInt64(values[row]) > DatumGetInt64(state->value))
				  state->value = values[row];
				  state->has_value = true)

/* NaN is above all other floats. */
static inline bool
float_is_less(float8 a, float8 b)
{
	return !isnan(a) && (isnan(b) || a < b);
}

DEFINE_ACCUMULATE(minimum_floats, MinimumState,
				  if (!state->has_value ||
					  !float_is_less(DatumGetFloat8(state->value), DatumGetFloat8(values[row])))
				  state->value = values[row];
				  state->has_value = true)
DEFINE_ACCUMULATE(maximum_floats, MinimumState,
				  if (!state->has_value ||
					  !float_is_less(DatumGetFloat8(values[row]), DatumGetFloat8(state->value)))
				  state->value = values[row];
				  state->has_value = true)

#define DEFINE_MINIMUM_OR_MAXIMUM(kind_) \
static void \
accumulate_##kind_(const Aggregate *aggregate, void *state, \
				   const Vector *vector, const Selection *selection) \
{ \
	if (aggregate->is_minimum) \
		minimum_##kind_(aggregate, state, vector, selection); \
	else \
		maximum_##kind_(aggregate, state, vector, selection); \
} \
static void \
accumulate_##kind_##_groups(const Aggregate *aggregate, char **groups, \
							const Vector *vector, const Selection *selection) \
{ \
	if (aggregate->is_minimum) \
		minimum_##kind_##_groups(aggregate, groups, vector, selection); \
	else \
		maximum_##kind_##_groups(aggregate, groups, vector, selection); \
}

DEFINE_MINIMUM_OR_MAXIMUM(integers)
DEFINE_MINIMUM_OR_MAXIMUM(floats)

/* Words of integers are their Datums; those of float4 are doubles. */
static Datum
finish_minimum(const Aggregate *aggregate, const void *state, bool *is_null)
{
	const MinimumState *minimum = state;

	*is_null = !minimum->has_value;
	if (aggregate->argument.type == FLOAT4OID)
		return Float4GetDatum((float4) DatumGetFloat8(minimum->value));
	return minimum->value;
}

const AggregateOps minimum_integer_ops = {
	.state_bytes = sizeof(MinimumState),
	.accumulate = accumulate_integers,
	.accumulate_groups = accumulate_integers_groups,
	.finish = finish_minimum,
	.finish_partial = finish_minimum,
	.takes_any_order = true,
};

const AggregateOps minimum_float_ops = {
	.state_bytes = sizeof(MinimumState),
	.accumulate = accumulate_floats,
	.accumulate_groups = accumulate_floats_groups,
	.finish = finish_minimum,
	.finish_partial = finish_minimum,
};

/* Order of two inline varlenas, as core's comparison function has it. */
static int
compare_varlenas(const Aggregate *aggregate, const void *a, const void *b)
{
	const char *a_data = VARDATA_ANY(a);
	const char *b_data = VARDATA_ANY(b);
	int			a_bytes = VARSIZE_ANY_EXHDR(a);
	int			b_bytes = VARSIZE_ANY_EXHDR(b);
	int			order;

	if (aggregate->argument.type == NUMERICOID)
		return DatumGetInt32(DirectFunctionCall2(numeric_cmp, PointerGetDatum(a),
												 PointerGetDatum(b)));
	if (aggregate->aggref->aggfnoid == F_MIN_BPCHAR ||
		aggregate->aggref->aggfnoid == F_MAX_BPCHAR)
	{
		while (a_bytes > 0 && a_data[a_bytes - 1] == ' ')
			a_bytes--;
		while (b_bytes > 0 && b_data[b_bytes - 1] == ' ')
			b_bytes--;
	}
	order = memcmp(a_data, b_data, Min(a_bytes, b_bytes));
	return order != 0 ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static void
keep_varlena(const Aggregate *aggregate, MinimumState *state, Datum datum)
{
	struct varlena *value = PG_DETOAST_DATUM_PACKED(datum);
	struct varlena *kept = (struct varlena *) DatumGetPointer(state->value);
	Size		bytes;

	if (state->has_value)
	{
		int			order = compare_varlenas(aggregate, kept, value);

		if (aggregate->is_minimum ? order < 0 : order > 0)
		{
			if ((Pointer) value != DatumGetPointer(datum))
				pfree(value);
			return;
		}
		pfree(kept);
	}
	bytes = VARSIZE_ANY(value);
	kept = MemoryContextAlloc(aggregate->memory, bytes);
	memcpy(kept, value, bytes);
	state->value = PointerGetDatum(kept);
	state->has_value = true;
	if ((Pointer) value != DatumGetPointer(datum))
		pfree(value);
}

DEFINE_ACCUMULATE(keep_varlenas, MinimumState,
				  keep_varlena(aggregate, state, values[row]))

/* The kept value lives in memory that a rescan resets: hand out a copy. */
static Datum
finish_varlena(const Aggregate *aggregate, const void *state, bool *is_null)
{
	const MinimumState *minimum = state;
	Size		bytes;
	void	   *copy;

	(void) aggregate;
	*is_null = !minimum->has_value;
	if (*is_null)
		return (Datum) 0;
	bytes = VARSIZE_ANY(DatumGetPointer(minimum->value));
	copy = palloc(bytes);
	memcpy(copy, DatumGetPointer(minimum->value), bytes);
	return PointerGetDatum(copy);
}

const AggregateOps minimum_varlena_ops = {
	.state_bytes = sizeof(MinimumState),
	.accumulate = keep_varlenas,
	.accumulate_groups = keep_varlenas_groups,
	.finish = finish_varlena,
	.finish_partial = finish_varlena,
	.takes_pointers = true,
};
