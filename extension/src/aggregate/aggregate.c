/*
 * aggregate.c
 *	  Which aggregates run over batches, and how a batch reaches their states.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "aggregate.h"
#include "collation.h"
#include "explain.h"
#include "group.h"
#include "permission.h"

typedef struct AggregateEntry
{
	Oid			function;
	const AggregateOps *ops;
} AggregateEntry;

/* An aggregate of each type that has a batched form of it. */
#define VARIANCE(name_, ops_) \
	{F_##name_##_INT2, &ops_##_integer_ops}, {F_##name_##_INT4, &ops_##_integer_ops}, \
	{F_##name_##_FLOAT4, &ops_##_float_ops}, {F_##name_##_FLOAT8, &ops_##_float_ops}

static const AggregateEntry aggregates[] = {
	{F_COUNT_, &count_ops}, {F_COUNT_ANY, &count_ops},
	{F_SUM_INT2, &sum_integer_ops}, {F_SUM_INT4, &sum_integer_ops},
	{F_SUM_INT8, &sum_int8_ops}, {F_SUM_NUMERIC, &sum_numeric_ops},
	{F_SUM_FLOAT4, &sum_float_ops}, {F_SUM_FLOAT8, &sum_float_ops},
	{F_AVG_INT2, &average_integer_ops}, {F_AVG_INT4, &average_integer_ops},
	{F_AVG_INT8, &average_int8_ops}, {F_AVG_NUMERIC, &average_numeric_ops},
	{F_AVG_FLOAT4, &average_float_ops}, {F_AVG_FLOAT8, &average_float_ops},
	VARIANCE(VAR_POP, var_pop), VARIANCE(VAR_SAMP, var_samp),
	VARIANCE(VARIANCE, var_samp), VARIANCE(STDDEV_POP, stddev_pop),
	VARIANCE(STDDEV_SAMP, stddev_samp), VARIANCE(STDDEV, stddev_samp),
	{F_CORR, &corr_ops}, {F_COVAR_POP, &covar_pop_ops}, {F_COVAR_SAMP, &covar_samp_ops},
	{F_REGR_AVGX, &regr_avgx_ops}, {F_REGR_AVGY, &regr_avgy_ops},
	{F_REGR_INTERCEPT, &regr_intercept_ops}, {F_REGR_R2, &regr_r2_ops},
	{F_REGR_SLOPE, &regr_slope_ops}, {F_REGR_SXX, &regr_sxx_ops},
	{F_REGR_SXY, &regr_sxy_ops}, {F_REGR_SYY, &regr_syy_ops},
	{F_ARRAY_AGG_ANYNONARRAY, &array_ops}, {F_STRING_AGG_TEXT_TEXT, &string_ops},
	{F_MIN_INT2, &minimum_integer_ops}, {F_MAX_INT2, &minimum_integer_ops},
	{F_MIN_INT4, &minimum_integer_ops}, {F_MAX_INT4, &minimum_integer_ops},
	{F_MIN_INT8, &minimum_integer_ops}, {F_MAX_INT8, &minimum_integer_ops},
	{F_MIN_OID, &minimum_integer_ops}, {F_MAX_OID, &minimum_integer_ops},
	{F_MIN_DATE, &minimum_integer_ops}, {F_MAX_DATE, &minimum_integer_ops},
	{F_MIN_TIME, &minimum_integer_ops}, {F_MAX_TIME, &minimum_integer_ops},
	{F_MIN_TIMESTAMP, &minimum_integer_ops},
	{F_MAX_TIMESTAMP, &minimum_integer_ops},
	{F_MIN_TIMESTAMPTZ, &minimum_integer_ops},
	{F_MAX_TIMESTAMPTZ, &minimum_integer_ops},
	{F_BOOL_AND, &minimum_integer_ops}, {F_EVERY, &minimum_integer_ops},
	{F_BOOL_OR, &minimum_integer_ops},
	{F_MIN_FLOAT4, &minimum_float_ops}, {F_MAX_FLOAT4, &minimum_float_ops},
	{F_MIN_FLOAT8, &minimum_float_ops}, {F_MAX_FLOAT8, &minimum_float_ops},
	{F_MIN_NUMERIC, &minimum_varlena_ops},
	{F_MAX_NUMERIC, &minimum_varlena_ops},
	{F_MIN_TEXT, &minimum_varlena_ops}, {F_MAX_TEXT, &minimum_varlena_ops},
	{F_MIN_BPCHAR, &minimum_varlena_ops}, {F_MAX_BPCHAR, &minimum_varlena_ops},
};

static bool
is_minimum(Oid function)
{
	switch (function)
	{
		case F_MIN_INT2:
		case F_MIN_INT4:
		case F_MIN_INT8:
		case F_MIN_OID:
		case F_MIN_DATE:
		case F_MIN_TIME:
		case F_MIN_TIMESTAMP:
		case F_MIN_TIMESTAMPTZ:
		case F_MIN_FLOAT4:
		case F_MIN_FLOAT8:
		case F_MIN_NUMERIC:
		case F_MIN_TEXT:
		case F_MIN_BPCHAR:
		case F_BOOL_AND:
		case F_EVERY:
			return true;
		default:
			return false;
	}
}

/* Of each built-in function its entry and one more, or 0; filled at the first look-up. */
static uint8 entries[FirstGenbkiObjectId];
static bool entries_are_filled = false;

StaticAssertDecl(lengthof(aggregates) < PG_UINT8_MAX, "too many aggregates");

static void
fill_entries(void)
{
	for (size_t i = 0; i < lengthof(aggregates); i++)
		entries[aggregates[i].function] = i + 1;
	entries_are_filled = true;
}

const AggregateOps *
aggregate_lookup(Oid function)
{
	if (!entries_are_filled)
		fill_entries();
	if (function >= FirstGenbkiObjectId || entries[function] == 0)
		return NULL;
	return aggregates[entries[function] - 1].ops;
}

/* Why an aggregate can't run over batches, or NULL. */
const char *
aggregate_obstacle(const Aggref *aggref)
{
	const AggregateOps *ops = aggregate_lookup(aggref->aggfnoid);

	if (ops == NULL)
		return explain_awaits_reasons() ?
			psprintf("%s has no batched form", get_func_name(aggref->aggfnoid)) :
			"an aggregate has no batched form";
	if (aggref->aggorder != NIL)
		return "an aggregate has an ORDER BY";
	if (aggref->aggkind != AGGKIND_NORMAL || aggref->aggvariadic ||
		aggref->agglevelsup != 0)
		return "an aggregate is not a plain one";
	if (!expression_is_plain((Node *) aggref->args) ||
		!expression_is_plain((Node *) aggref->aggfilter))
	{
		if (contain_volatile_functions((Node *) aggref->args) ||
			contain_volatile_functions((Node *) aggref->aggfilter))
			return "an aggregate's argument is volatile";
		if (contain_subplans((Node *) aggref->args) ||
			contain_subplans((Node *) aggref->aggfilter))
			return "an aggregate's argument holds a subquery";
	}
	if (ops == &minimum_varlena_ops &&
		aggref->aggfnoid != F_MIN_NUMERIC && aggref->aggfnoid != F_MAX_NUMERIC &&
		!collation_is_c(aggref->inputcollid))
		return "min and max of text are batched for the C collation only";
	if (ops->keeps_values)
		return collect_obstacle(aggref, ops);
	return aggref->aggdistinct != NIL ? distinct_obstacle(aggref, ops) : NULL;
}

/* Is an aggregate's result the same whatever the order of its rows? */
bool
aggregate_takes_any_order(const Aggref *aggref)
{
	const AggregateOps *ops = aggregate_lookup(aggref->aggfnoid);

	/* Equal texts are the same; equal numerics may differ in their display scale. */
	return ops != NULL &&
		(ops->takes_any_order || aggref->aggfnoid == F_MIN_TEXT ||
		 aggref->aggfnoid == F_MAX_TEXT);
}

/* Do an aggregate's states grow with the rows, in their order? */
bool
aggregate_keeps_values(const Aggref *aggref)
{
	const AggregateOps *ops = aggregate_lookup(aggref->aggfnoid);

	return ops != NULL && ops->keeps_values;
}

/* Does a state take an argument's values as they are stored? */
static bool
takes_pointers(const AggregateOps *ops, const Expr *argument)
{
	return ops->takes_pointers ||
		(ops->keeps_values && exprType((const Node *) argument) == NUMERICOID);
}

/* The vector form of an argument, where it has one. */
static VectorExpr *
compile_argument(VectorContext *context, const Aggregate *aggregate,
				 Expr *argument)
{
	const Var  *var = (const Var *) argument;
	bool		is_plain_column = IsA(argument, Var) && var->varattno > 0 &&
		var->varno == context->scanrelid;

	if (aggregate->ops == &count_ops && is_plain_column)
		return vector_column(context, var->varattno, var->vartype, VALUE_OPAQUE);
	if (takes_pointers(aggregate->ops, argument))
		return is_plain_column ?
			vector_column(context, var->varattno, var->vartype, VALUE_TEXT) : NULL;
	return vector_compile(context, argument);
}

static void
begin_argument(VectorContext *context, const Aggregate *aggregate,
			   AggregateArgument *argument, Expr *source)
{
	argument->type = exprType((Node *) source);
	argument->kind = VALUE_OPAQUE;
	(void) value_kind_of_type(argument->type, &argument->kind);
	argument->expression = compile_argument(context, aggregate, source);
	row_expression_begin(&argument->row, context, source, argument->expression != NULL);
	vector_allocate(&argument->row_vector);
}

/* Compile an aggregate over the scanned table. */
Aggregate *
aggregate_compile(VectorContext *context, const Aggref *aggref)
{
	Aggregate  *aggregate = palloc0(sizeof(Aggregate));

	permission_check_function(aggref->aggfnoid, OBJECT_AGGREGATE);
	aggregate->ops = aggregate_lookup(aggref->aggfnoid);
	Assert(aggregate->ops != NULL);
	aggregate->aggref = aggref;
	aggregate->is_partial = DO_AGGSPLIT_SKIPFINAL(aggref->aggsplit);
	aggregate->is_minimum = is_minimum(aggref->aggfnoid);
	if (aggref->args != NIL)
		begin_argument(context, aggregate, &aggregate->argument,
					   linitial_node(TargetEntry, aggref->args)->expr);
	if (list_length(aggref->args) > 1 && !aggregate->ops->keeps_values)
		begin_argument(context, aggregate, &aggregate->second,
					   lsecond_node(TargetEntry, aggref->args)->expr);
	if (aggref->aggfilter != NULL)
		aggregate->filter = qual_compile(context, list_make1(aggref->aggfilter));
	if (aggref->aggdistinct != NIL)
		distinct_compile(aggregate, context);
	return aggregate;
}

static void
add_to_row_arguments(RowArguments *together, AggregateArgument *argument)
{
	if (!OidIsValid(argument->type) || argument->expression != NULL || !row_expression_may_join(&argument->row))
		return;
	together->arguments[together->count++] = argument;
	together->expressions.sources = lappend(together->expressions.sources, argument->row.source);
}

/* The arguments that are evaluated by row in any case, for all rows. */
RowArguments
row_arguments_of(VectorContext *context, Aggregate *const *aggregates, int count)
{
	RowArguments together = {
		.arguments = palloc(sizeof(AggregateArgument *) * (2 * count + 1)),
		.expressions.context = context,
	};

	for (int i = 0; i < count; i++)
	{
		Aggregate  *aggregate = aggregates[i];

		if (aggregate->filter != NULL || aggregate->distinct_keys != NULL)
			continue;
		add_to_row_arguments(&together, &aggregate->argument);
		add_to_row_arguments(&together, &aggregate->second);
	}
	return together;
}

/* Begin a batch of values of an argument that is evaluated by row. */
static void
start_row_vector(AggregateArgument *argument, const TupleBatch *batch)
{
	Vector	   *result = &argument->row_vector;

	result->has_nulls = false;
	result->holds_pointers = (argument->kind == VALUE_NUMERIC || argument->kind == VALUE_TEXT);
	result->generation = batch->generation;
}

static inline void
store_row_value(AggregateArgument *argument, int row, Datum value, bool is_null)
{
	Vector	   *result = &argument->row_vector;

	result->nulls[row] = is_null;
	result->has_nulls |= is_null;
	result->values[row] = (is_null || argument->kind == VALUE_OPAQUE) ? (Datum) 0 :
		vector_word_from_datum(argument->type, value);
}

/* Evaluate the arguments together, where there are several; errors are raised here as core raises them. */
void
row_arguments_evaluate(RowArguments *together)
{
	const TupleBatch *batch = together->expressions.context->batch;

	if (together->count < 2)
		return;
	row_expressions_start_batch(&together->expressions);
	for (int i = 0; i < together->count; i++)
		start_row_vector(together->arguments[i], batch);
	FOR_SELECTED(row, &batch->selection,
				 const TupleTableSlot *values = row_expressions_evaluate(&together->expressions, row);
				 for (int i = 0; i < together->count; i++)
				 store_row_value(together->arguments[i], row, values->tts_values[i], values->tts_isnull[i]));
}

/* An argument by row: it may have been evaluated along with others. */
static const Vector *
evaluate_by_row(AggregateArgument *argument, VectorContext *context,
				const Selection *selection)
{
	TupleBatch *batch = context->batch;

	if (argument->row_vector.generation == batch->generation)
		return &argument->row_vector;
	start_row_vector(argument, batch);
	FOR_SELECTED(row, selection,
				 bool is_null;
				 Datum value;
				 context->econtext->ecxt_scantuple = batch->ops->materialise_row(batch, row);
				 value = row_expression_evaluate(&argument->row, &is_null);
				 store_row_value(argument, row, value, is_null));
	return &argument->row_vector;
}

/* The batch's selection, narrowed by the aggregate's FILTER. */
static Selection
filter_selection(Aggregate *aggregate, VectorContext *context, uint16 *rows)
{
	TupleBatch *batch = context->batch;
	Selection	before = batch->selection;
	uint16		rows_before[BATCH_ROWS_MAX];
	Selection	result;

	if (before.rows != NULL)
		memcpy(rows_before, before.rows, sizeof(uint16) * before.count);
	Assert(selection_is_valid(&before, batch->row_count));
	qual_apply(aggregate->filter, batch);
	result = batch->selection;
	if (result.rows != NULL)
	{
		memcpy(rows, result.rows, sizeof(uint16) * result.count);
		result.rows = rows;
	}
	batch->selection = before;
	if (before.rows != NULL)
		memcpy(batch->selected_rows, rows_before, sizeof(uint16) * before.count);
	return result;
}

/* The vector of an argument, or NULL where it has to be evaluated by row. */
static const Vector *
evaluate_vector(const AggregateArgument *argument, VectorContext *context,
				const Selection *selection)
{
	return argument->expression == NULL ? NULL :
		vector_evaluate(argument->expression, context, selection);
}

/* Take rows some of which may be NULL; false where the aggregate has no such form. */
static bool
accumulate_present(const Aggregate *aggregate, void *state, char **groups,
				   const Vector *vector, const Selection *selection)
{
	const AggregateOps *ops = aggregate->ops;

	if (groups == NULL && ops->accumulate_present != NULL)
		ops->accumulate_present(aggregate, state, vector, selection);
	else if (groups != NULL && ops->accumulate_present_groups != NULL)
		ops->accumulate_present_groups(aggregate, groups, vector, selection);
	else
		return false;
	return true;
}

/* Take rows into one state, or, where groups is set, into the states of their groups. */
static void
accumulate_rows(const Aggregate *aggregate, void *state, char **groups,
				const Vector *vector, const Vector *second, Selection selection)
{
	const AggregateOps *ops = aggregate->ops;
	uint16		rows[BATCH_ROWS_MAX];

	if (vector != NULL && vector->has_nulls &&
		accumulate_present(aggregate, state, groups, vector, &selection))
		return;
	if (vector != NULL)
		selection = selection_without_nulls(&selection, vector, rows);
	if (second != NULL)
		selection = selection_without_nulls(&selection, second, rows);
	Assert(selection_is_valid(&selection, BATCH_ROWS_MAX));
	Assert(vector == NULL || vector->usable);
	if (second != NULL)
		ops->accumulate_pairs(aggregate, state, groups, vector, second, &selection);
	else if (groups != NULL)
		ops->accumulate_groups(aggregate, groups, vector, &selection);
	else
		ops->accumulate(aggregate, state, vector, &selection);
}

/* As aggregate_accumulate, of values that their groups have not met yet. */
static void
accumulate_distinct(Aggregate *aggregate, VectorContext *context, void *state,
					char **groups)
{
	Selection	selection = context->batch->selection;
	uint16		rows[BATCH_ROWS_MAX];
	const Vector *vector;

	/* A vector is evaluated once a batch, for all rows that anything may ask for. */
	if (aggregate->distinct_keys->expression != NULL)
		(void) vector_evaluate(aggregate->distinct_keys->expression, context, &selection);
	if (aggregate->filter != NULL)
		selection = filter_selection(aggregate, context, rows);
	if (selection.count == 0)
		return;
	if (distinct_files_are_written(aggregate))
	{
		distinct_files_write(aggregate, context, groups, &selection, rows);
		return;
	}
	vector = distinct_select(aggregate, context, groups, &selection, rows);
	if (groups != NULL)
		aggregate->ops->accumulate_groups(aggregate, groups, vector, &selection);
	else
		aggregate->ops->accumulate(aggregate, state, vector, &selection);
}

/* Of the selected rows, those that have a group. */
static Selection
select_rows_with_group(const Selection *selection, char **groups, uint16 *rows)
{
	int			count = 0;

	FOR_SELECTED(row, selection,
				 rows[count] = row;
				 count += groups[row] != NULL);
	Assert(count <= selection->count);
	return (Selection) {.count = count, .rows = rows};
}

/* Take rows into the states of their groups in each set. */
static void
accumulate_sets(const Aggregate *aggregate, const RowGroups *groups, const Vector *vector,
				const Vector *second, const Selection *selection)
{
	uint16		rows[BATCH_ROWS_MAX];

	for (int i = 0; i < groups->set_count; i++)
		accumulate_rows(aggregate, NULL, groups->of_sets[i], vector, second,
						groups->may_be_missing && groups->set_count > 1 ?
						select_rows_with_group(selection, groups->of_sets[i], rows) : *selection);
}

/*
 * Take the selected rows of the batch into one state, or, where there are
 * groups, into the states of these.
 */
void
aggregate_accumulate(Aggregate *aggregate, VectorContext *context, void *state,
					 const RowGroups *groups)
{
	Selection	selection = context->batch->selection;
	const Vector *vector;
	const Vector *second;
	uint16		rows[BATCH_ROWS_MAX];

	if (aggregate->distinct_keys != NULL)
	{
		accumulate_distinct(aggregate, context, state,
							groups->set_count > 0 ? groups->of_sets[0] : NULL);
		return;
	}
	vector = evaluate_vector(&aggregate->argument, context, &selection);
	second = evaluate_vector(&aggregate->second, context, &selection);
	if (aggregate->filter != NULL)
		selection = filter_selection(aggregate, context, rows);
	if (selection.count == 0)
		return;
	if (OidIsValid(aggregate->argument.type) && vector == NULL)
		vector = evaluate_by_row(&aggregate->argument, context, &selection);
	if (OidIsValid(aggregate->second.type) && second == NULL)
		second = evaluate_by_row(&aggregate->second, context, &selection);
	if (groups->set_count == 0)
		accumulate_rows(aggregate, state, NULL, vector, second, selection);
	else
		accumulate_sets(aggregate, groups, vector, second, &selection);
}

/* The result, or the partial result, of a state. */
Datum
aggregate_finish(const Aggregate *aggregate, const void *state, bool *is_null)
{
	Assert(!aggregate->is_partial || aggregate->ops->finish_partial != NULL);
	*is_null = false;
	return aggregate->is_partial ?
		aggregate->ops->finish_partial(aggregate, state, is_null) :
		aggregate->ops->finish(aggregate, state, is_null);
}
