/*
 * aggregate_collect.c
 *	  array_agg and string_agg, in the order of the rows.
 *
 * States keep all values of their groups, in memory that a rescan resets.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "nodes/nodeFuncs.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "aggregate.h"

/* Bytes of a string at first; it doubles where it gets longer. */
#define STRING_BYTES_FIRST	64

typedef struct ArrayState
{
	ArrayBuildState *array;		/* NULL: there was no row */
} ArrayState;

static void
collect_value(const Aggregate *aggregate, char *state_, const Vector *vector, int row)
{
	const Oid	type = aggregate->argument.type;
	const bool	is_null = vector->has_nulls && vector->nulls[row];
	ArrayState *state = (ArrayState *) state_;
	Datum		value = is_null ? (Datum) 0 : vector->values[row];

	if (state->array == NULL)
		state->array = initArrayResult(type, aggregate->memory, false);
	if (type == FLOAT4OID)
		value = Float4GetDatum((float4) DatumGetFloat8(value));
	(void) accumArrayResult(state->array, value, is_null, type, aggregate->memory);
}

static void
collect_values(const Aggregate *aggregate, void *state, const Vector *vector,
			   const Selection *selection)
{
	FOR_SELECTED(row, selection, collect_value(aggregate, state, vector, row));
}

static void
collect_values_groups(const Aggregate *aggregate, char **groups, const Vector *vector,
					  const Selection *selection)
{
	const int	offset = aggregate->state_offset;

	FOR_SELECTED(row, selection,
				 collect_value(aggregate, groups[row] + offset, vector, row));
}

static Datum
finish_array(const Aggregate *aggregate, const void *state_, bool *is_null)
{
	ArrayBuildState *array = ((const ArrayState *) state_)->array;
	int			lower_bound = 1;

	(void) aggregate;
	*is_null = array == NULL;
	if (*is_null)
		return (Datum) 0;
	return makeMdArrayResult(array, 1, &array->nelems, &lower_bound, CurrentMemoryContext, false);
}

/* NULLs are values, too. */
const AggregateOps array_ops = {
	.state_bytes = sizeof(ArrayState),
	.accumulate = collect_values,
	.accumulate_present = collect_values,
	.accumulate_present_groups = collect_values_groups,
	.accumulate_groups = collect_values_groups,
	.finish = finish_array,
	.keeps_values = true,
};

typedef struct StringState
{
	StringInfoData string;		/* data is NULL: there was no value */
} StringState;

/* The delimiter, which is a constant. */
static struct varlena *
delimiter_of(const Aggregate *aggregate)
{
	const Const *constant =
		castNode(Const, lsecond_node(TargetEntry, aggregate->aggref->args)->expr);

	return PG_DETOAST_DATUM_PACKED(constant->constvalue);
}

static void
append_text(StringInfo string, const struct varlena *text)
{
	appendBinaryStringInfo(string, VARDATA_ANY(text), VARSIZE_ANY_EXHDR(text));
}

static void
append_value(const Aggregate *aggregate, char *state_, Datum datum,
			 const struct varlena *delimiter)
{
	StringState *state = (StringState *) state_;
	struct varlena *value = PG_DETOAST_DATUM_PACKED(datum);

	if (state->string.data != NULL)
		append_text(&state->string, delimiter);
	else
	{
		state->string.data = MemoryContextAlloc(aggregate->memory, STRING_BYTES_FIRST);
		state->string.maxlen = STRING_BYTES_FIRST;
	}
	append_text(&state->string, value);
	if ((Pointer) value != DatumGetPointer(datum))
		pfree(value);
}

static void
append_values(const Aggregate *aggregate, void *state, const Vector *vector,
			  const Selection *selection)
{
	const struct varlena *delimiter = delimiter_of(aggregate);

	FOR_SELECTED(row, selection,
				 append_value(aggregate, state, vector->values[row], delimiter));
}

static void
append_values_groups(const Aggregate *aggregate, char **groups, const Vector *vector,
					 const Selection *selection)
{
	const struct varlena *delimiter = delimiter_of(aggregate);
	const int	offset = aggregate->state_offset;

	FOR_SELECTED(row, selection,
				 append_value(aggregate, groups[row] + offset, vector->values[row], delimiter));
}

static Datum
finish_string(const Aggregate *aggregate, const void *state_, bool *is_null)
{
	const StringInfoData *string = &((const StringState *) state_)->string;

	(void) aggregate;
	*is_null = string->data == NULL;
	return *is_null ? (Datum) 0 :
		PointerGetDatum(cstring_to_text_with_len(string->data, string->len));
}

const AggregateOps string_ops = {
	.state_bytes = sizeof(StringState),
	.accumulate = append_values,
	.accumulate_groups = append_values_groups,
	.finish = finish_string,
	.keeps_values = true,
};

/* Why array_agg or string_agg can't run over batches, or NULL. */
const char *
collect_obstacle(const Aggref *aggref, const AggregateOps *ops)
{
	const Expr *first = linitial_node(TargetEntry, aggref->args)->expr;
	const Const *delimiter;
	ValueKind	kind;

	if (aggref->aggdistinct != NIL)
		return "an aggregate that keeps all values has DISTINCT";
	if (aggref->aggsplit != AGGSPLIT_SIMPLE)
		return "an aggregate that keeps all values is computed in parts";
	if (!value_kind_of_type(exprType((const Node *) first), &kind))
		return "array_agg has no batched form for the type of its argument";
	if (ops == &array_ops)
		return NULL;
	delimiter = (const Const *) lsecond_node(TargetEntry, aggref->args)->expr;
	return IsA(delimiter, Const) && !delimiter->constisnull ? NULL :
		"the delimiter of string_agg is not a constant";
}
