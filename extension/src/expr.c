/*
 * expr.c
 *	  Compile executor expressions to vector expressions.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/array.h"
#include "utils/date.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "collation.h"
#include "expr.h"
#include "numeric_vector.h"

static VectorExpr *compile(VectorContext *context, const Expr *source);

/* The kind of vector that holds values of a type; false if none does. */
bool
value_kind_of_type(Oid type, ValueKind *kind)
{
	switch (type)
	{
		case BOOLOID:
		case CHAROID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case OIDOID:
		case DATEOID:
		case TIMEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			*kind = VALUE_INTEGER;
			return true;
		case FLOAT4OID:
		case FLOAT8OID:
			*kind = VALUE_FLOAT;
			return true;
		case NUMERICOID:
			*kind = VALUE_NUMERIC;
			return true;
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
			*kind = VALUE_TEXT;
			return true;
		default:
			return false;
	}
}

/* A native Datum as the word that vectors of its kind hold (not numeric). */
Datum
vector_word_from_datum(Oid type, Datum value)
{
	switch (type)
	{
		case BOOLOID:
			return Int64GetDatum(DatumGetBool(value) ? 1 : 0);
		case CHAROID:
			return Int64GetDatum((int64) (int8) DatumGetChar(value));
		case INT2OID:
			return Int64GetDatum((int64) DatumGetInt16(value));
		case INT4OID:
		case DATEOID:
			return Int64GetDatum((int64) DatumGetInt32(value));
		case OIDOID:
			return Int64GetDatum((int64) DatumGetObjectId(value));
		case FLOAT4OID:
			return Float8GetDatum((float8) DatumGetFloat4(value));
		default:
			return value;
	}
}

static VectorExpr *
make_expression(const Expr *source, ValueKind kind)
{
	VectorExpr *expression = palloc0(sizeof(VectorExpr));

	expression->source = source;
	expression->type = exprType((const Node *) source);
	expression->collation = exprInputCollation((const Node *) source);
	expression->kind = kind;
	return expression;
}

/* As make_expression, with room for the result. */
static VectorExpr *
make_computed(const Expr *source, ValueKind kind, VectorFunction function)
{
	VectorExpr *expression = make_expression(source, kind);

	expression->function = function;
	vector_allocate(&expression->result);
	return expression;
}

/* A column as an expression: of its own kind, or opaque, or by pointer. */
VectorExpr *
vector_column(VectorContext *context, AttrNumber attno, Oid type, ValueKind kind)
{
	VectorExpr *expression = palloc0(sizeof(VectorExpr));

	expression->type = type;
	expression->kind = kind;
	expression->column = batch_add_column(context->batch, attno, type, kind);
	return expression;
}

static VectorExpr *
compile_var(VectorContext *context, const Var *var)
{
	ValueKind	kind;

	if (var->varno != context->scanrelid || var->varattno <= 0 ||
		var->varlevelsup != 0 || !value_kind_of_type(var->vartype, &kind))
		return NULL;
	return vector_column(context, var->varattno, var->vartype, kind);
}

/* Fill a constant's vector with one value for all rows. */
static bool
broadcast(VectorExpr *expression, Datum value, bool is_null)
{
	Vector	   *result = &expression->result;
	int64		scaled = 0;

	expression->is_null_constant = is_null;
	result->has_nulls = is_null;
	result->usable = true;
	if (is_null)
		value = (Datum) 0;
	else if (expression->kind == VALUE_NUMERIC)
	{
		if (!numeric_decode(DatumGetPointer(value), &scaled, &result->scale))
			return false;
		value = Int64GetDatum(scaled);
	}
	else if (expression->kind == VALUE_TEXT)
		value = PointerGetDatum(PG_DETOAST_DATUM_PACKED(value));
	else
		value = vector_word_from_datum(expression->type, value);
	for (int row = 0; row < BATCH_ROWS_MAX; row++)
	{
		result->values[row] = value;
		result->nulls[row] = is_null;
	}
	return true;
}

static VectorExpr *
compile_const(const Const *constant)
{
	VectorExpr *expression;
	ValueKind	kind;

	if (!value_kind_of_type(constant->consttype, &kind))
		return NULL;
	expression = make_computed((const Expr *) constant, kind, NULL);
	expression->is_constant = true;
	if (!broadcast(expression, constant->constvalue, constant->constisnull))
		return NULL;
	return expression;
}

/* Read a parameter, when the first batch needs it after a (re)scan. */
static bool
read_parameter(VectorExpr *expression, VectorContext *context,
			   const Selection *selection)
{
	bool		is_null;
	Datum		value;
	MemoryContext caller;

	if (expression->result.generation != 0)
		return expression->result.usable;
	if (selection->count == 0)
		return true;
	caller = MemoryContextSwitchTo(context->econtext->ecxt_per_query_memory);
	value = ExecEvalExpr(expression->constant_state, context->econtext, &is_null);
	expression->result.usable = broadcast(expression, value, is_null);
	expression->result.generation = 1;
	MemoryContextSwitchTo(caller);
	return expression->result.usable;
}

static VectorExpr *
compile_param(VectorContext *context, const Param *param)
{
	VectorExpr *expression;
	ValueKind	kind;

	if ((param->paramkind != PARAM_EXTERN && param->paramkind != PARAM_EXEC) ||
		!value_kind_of_type(param->paramtype, &kind))
		return NULL;
	expression = make_computed((const Expr *) param, kind, read_parameter);
	expression->is_constant = true;
	expression->constant_state = ExecInitExpr((Expr *) param, context->planstate);
	return expression;
}

void
vector_reset_constants(VectorContext *context)
{
	ListCell   *cell;

	foreach(cell, context->expressions)
	{
		VectorExpr *expression = lfirst(cell);

		if (expression->constant_state != NULL)
			expression->result.generation = 0;
	}
}

static VectorExpr *
convert_to(VectorExpr *operand, const Expr *source, ValueKind kind,
		   VectorOperation operation)
{
	VectorExpr *expression;

	if (operation == OPERATION_COPY && operand->column != NULL)
	{
		/* The words of both types are the same. */
		expression = make_expression(source, kind);
		expression->column = operand->column;
		return expression;
	}
	expression = make_computed(source, kind, kernel_convert);
	expression->operation = operation;
	expression->left = operand;
	return expression;
}

/* date against timestamp: compare as timestamps. */
static void
match_date_with_timestamp(VectorExpr *left, VectorExpr **date, const Expr *source)
{
	if (left->type == TIMESTAMPOID && (*date)->type == DATEOID)
		*date = convert_to(*date, source, VALUE_INTEGER,
						   OPERATION_DATE_TO_TIMESTAMP);
}

/* a < b as b > a. */
static VectorOperation
commute(VectorOperation operation)
{
	switch (operation)
	{
		case OPERATION_LT:
			return OPERATION_GT;
		case OPERATION_LE:
			return OPERATION_GE;
		case OPERATION_GT:
			return OPERATION_LT;
		case OPERATION_GE:
			return OPERATION_LE;
		default:
			return operation;
	}
}

/*
 * A date column against a finite timestamp constant is the date against the
 * constant's day: on or before noon of a day is on or before that day.
 */
static void
compare_as_dates(VectorOperation *operation, const VectorExpr *left,
				 VectorExpr **right)
{
	const Const *constant = (const Const *) (*right)->source;
	Timestamp	timestamp;
	int64		day;

	if (left->type != DATEOID || (*right)->type != TIMESTAMPOID ||
		!IsA(constant, Const) || constant->constisnull ||
		*operation <= OPERATION_NE)
		return;
	timestamp = DatumGetTimestamp(constant->constvalue);
	if (TIMESTAMP_NOT_FINITE(timestamp))
		return;
	day = timestamp / USECS_PER_DAY - (timestamp % USECS_PER_DAY < 0);
	if (day * USECS_PER_DAY != timestamp)
	{
		if (*operation == OPERATION_LT)
			*operation = OPERATION_LE;
		else if (*operation == OPERATION_GE)
			*operation = OPERATION_GT;
	}
	*right = compile_const(makeConst(DATEOID, -1, InvalidOid, sizeof(DateADT),
									 DateADTGetDatum((DateADT) day), false, true));
}

static VectorExpr *
compile_comparison(const Expr *source, VectorOperation operation,
				   VectorExpr *left, VectorExpr *right)
{
	VectorExpr *expression;
	Oid			collation = exprInputCollation((const Node *) source);

	if (left->kind != right->kind)
		return NULL;
	if (left->is_constant && !right->is_constant)
	{
		VectorExpr *swapped = left;

		left = right;
		right = swapped;
		operation = commute(operation);
	}
	compare_as_dates(&operation, left, &right);
	if (left->kind == VALUE_TEXT)
	{
		if (operation <= OPERATION_NE ? !collation_is_deterministic(collation) :
			!collation_is_c(collation))
			return NULL;
	}
	match_date_with_timestamp(left, &right, source);
	match_date_with_timestamp(right, &left, source);
	expression = make_computed(source, VALUE_INTEGER,
							   left->kind == VALUE_TEXT ? kernel_compare_text : kernel_compare);
	expression->operation = operation;
	expression->left = left;
	expression->right = right;
	expression->is_bpchar = (left->type == BPCHAROID && right->type == BPCHAROID);
	vector_allocate(&expression->scratch_left);
	vector_allocate(&expression->scratch_right);
	return expression;
}

static VectorExpr *
compile_like(const Expr *source, VectorOperation operation, VectorExpr *left,
			 VectorExpr *right)
{
	VectorExpr *expression;
	void	   *pattern;

	if (left->kind != VALUE_TEXT || !IsA(right->source, Const) ||
		right->is_null_constant ||
		!collation_is_deterministic(exprInputCollation((const Node *) source)))
		return NULL;
	pattern = DatumGetPointer(right->result.values[0]);
	if (!like_pattern_is_simple(VARDATA_ANY(pattern), VARSIZE_ANY_EXHDR(pattern)))
		return NULL;
	expression = make_computed(source, VALUE_INTEGER, kernel_like);
	expression->operation = operation;
	expression->left = left;
	expression->right = right;
	return expression;
}

static VectorExpr *
compile_arithmetic(const Expr *source, VectorOperation operation,
				   VectorExpr *left, VectorExpr *right)
{
	VectorExpr *expression;

	if (left->kind != right->kind || left->kind == VALUE_TEXT)
		return NULL;
	expression = make_computed(source, left->kind, kernel_arithmetic);
	expression->operation = operation;
	expression->left = left;
	expression->right = right;
	vector_allocate(&expression->scratch_left);
	vector_allocate(&expression->scratch_right);
	return expression;
}

static VectorExpr *
compile_function(VectorContext *context, const Expr *source, Oid function,
				 List *arguments)
{
	VectorOperation operation;
	VectorExpr *left;
	VectorExpr *right;
	ValueKind	kind;

	if (!function_lookup(function, &operation) ||
		!value_kind_of_type(exprType((const Node *) source), &kind))
		return NULL;
	left = compile(context, linitial(arguments));
	if (left == NULL)
		return NULL;
	if (list_length(arguments) == 1)
		return convert_to(left, source, kind, operation);
	if (list_length(arguments) != 2)
		return NULL;
	right = compile(context, lsecond(arguments));
	if (right == NULL)
		return NULL;
	if (operation_is_comparison(operation))
		return compile_comparison(source, operation, left, right);
	if (operation == OPERATION_LIKE || operation == OPERATION_NOT_LIKE)
		return compile_like(source, operation, left, right);
	return compile_arithmetic(source, operation, left, right);
}

/* A chain of AND or OR as a tree of pairs. */
static VectorExpr *
compile_bool(VectorContext *context, const BoolExpr *source)
{
	VectorExpr *result = NULL;
	ListCell   *cell;

	foreach(cell, source->args)
	{
		VectorExpr *operand = compile(context, lfirst(cell));
		VectorExpr *pair;

		if (operand == NULL)
			return NULL;
		if (result == NULL && source->boolop != NOT_EXPR)
		{
			result = operand;
			continue;
		}
		pair = make_computed((const Expr *) source, VALUE_INTEGER, kernel_boolean);
		pair->bool_operation = source->boolop;
		pair->left = result != NULL ? result : operand;
		pair->right = result != NULL ? operand : NULL;
		result = pair;
	}
	return result;
}

static VectorExpr *
compile_null_test(VectorContext *context, const NullTest *source)
{
	VectorExpr *operand = NULL;
	VectorExpr *expression;

	if (source->argisrow)
		return NULL;
	if (IsA(source->arg, Var))
	{
		const Var  *var = (const Var *) source->arg;

		if (var->varno == context->scanrelid && var->varattno > 0 &&
			var->varlevelsup == 0)
			operand = vector_column(context, var->varattno, var->vartype,
									VALUE_OPAQUE);
	}
	else
		operand = compile(context, source->arg);
	if (operand == NULL)
		return NULL;
	expression = make_computed((const Expr *) source, VALUE_INTEGER,
							   kernel_null_test);
	expression->left = operand;
	expression->is_negated = (source->nulltesttype == IS_NOT_NULL);
	return expression;
}

/* Copy the elements of an IN list; numeric and text lists go by row. */
static bool
read_in_list(VectorExpr *expression, const Const *array_constant, Oid element_type)
{
	ArrayType  *array = DatumGetArrayTypeP(array_constant->constvalue);
	int16		length;
	bool		by_value;
	char		alignment;
	Datum	   *elements;
	bool	   *nulls;
	int			count;

	get_typlenbyvalalign(element_type, &length, &by_value, &alignment);
	deconstruct_array(array, element_type, length, by_value, alignment,
					  &elements, &nulls, &count);
	expression->list = palloc(sizeof(int64) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		if (nulls[i])
			expression->list_has_null = true;
		else
		{
			Datum		element = elements[i];

			if (expression->left->kind != VALUE_TEXT)
				element = vector_word_from_datum(element_type, element);
			else
				element = PointerGetDatum(PG_DETOAST_DATUM_PACKED(element));
			expression->list[expression->list_count++] = DatumGetInt64(element);
		}
	}
	return true;
}

static VectorExpr *
compile_in_list(VectorContext *context, const ScalarArrayOpExpr *source)
{
	VectorExpr *operand;
	VectorExpr *expression;
	VectorOperation operation;
	const Const *array;
	Oid			element_type;
	ValueKind	element_kind;

	if (!IsA(lsecond(source->args), Const) ||
		!function_lookup(get_opcode(source->opno), &operation) ||
		operation != (source->useOr ? OPERATION_EQ : OPERATION_NE))
		return NULL;
	array = lsecond_node(Const, source->args);
	element_type = get_element_type(array->consttype);
	operand = compile(context, linitial(source->args));
	if (operand == NULL || array->constisnull || operand->type != element_type ||
		!value_kind_of_type(element_type, &element_kind) ||
		(operand->kind != VALUE_INTEGER && operand->kind != VALUE_TEXT) ||
		(operand->kind == VALUE_TEXT &&
		 !collation_is_deterministic(source->inputcollid)))
		return NULL;
	expression = make_computed((const Expr *) source, VALUE_INTEGER,
							   kernel_in_list);
	expression->left = operand;
	expression->is_negated = !source->useOr;
	expression->is_bpchar = (operand->type == BPCHAROID);
	read_in_list(expression, array, element_type);
	return expression;
}

static VectorExpr *
compile_relabel(VectorContext *context, const RelabelType *source)
{
	VectorExpr *operand = compile(context, source->arg);
	VectorExpr *expression;
	ValueKind	kind;

	/* Binary-compatible types of one kind share their words. */
	if (operand == NULL || !value_kind_of_type(source->resulttype, &kind) ||
		kind != operand->kind)
		return NULL;
	if (kind == VALUE_INTEGER && operand->type != source->resulttype)
		return NULL;			/* int4 and oid differ in sign */
	expression = convert_to(operand, (const Expr *) source, kind, OPERATION_COPY);
	return expression;
}

static VectorExpr *
compile_new(VectorContext *context, const Expr *source)
{
	switch (nodeTag(source))
	{
		case T_Var:
			return compile_var(context, (const Var *) source);
		case T_Const:
			return compile_const((const Const *) source);
		case T_Param:
			return compile_param(context, (const Param *) source);
		case T_OpExpr:
			{
				const OpExpr *operator = (const OpExpr *) source;

				return compile_function(context, source, operator->opfuncid,
										operator->args);
			}
		case T_FuncExpr:
			{
				const FuncExpr *function = (const FuncExpr *) source;

				return compile_function(context, source, function->funcid,
										function->args);
			}
		case T_BoolExpr:
			return compile_bool(context, (const BoolExpr *) source);
		case T_NullTest:
			return compile_null_test(context, (const NullTest *) source);
		case T_ScalarArrayOpExpr:
			return compile_in_list(context, (const ScalarArrayOpExpr *) source);
		case T_RelabelType:
			return compile_relabel(context, (const RelabelType *) source);
		default:
			return NULL;
	}
}

/* Compile, or find the same expression compiled before. */
static VectorExpr *
compile(VectorContext *context, const Expr *source)
{
	VectorExpr *expression;
	ListCell   *cell;

	foreach(cell, context->expressions)
	{
		expression = lfirst(cell);
		if (equal(expression->source, source))
			return expression;
	}
	expression = compile_new(context, source);
	if (expression != NULL)
	{
		expression->source = source;
		context->expressions = lappend(context->expressions, expression);
	}
	return expression;
}

/*
 * Compile an expression over the scanned table; NULL if some part of it has
 * no vector form.  Parameters keep their place in the plan state.
 */
VectorExpr *
vector_compile(VectorContext *context, const Expr *source)
{
	return compile(context, source);
}

/*
 * Evaluate for the selected rows.  NULL means that this batch must be
 * evaluated by row.  Results are kept for the batch: later selections of the
 * same batch are always subsets of earlier ones.
 */
const Vector *
vector_evaluate(VectorExpr *expression, VectorContext *context,
				const Selection *selection)
{
	const Vector *vector;

	if (expression->column != NULL)
	{
		vector = batch_column(context->batch, expression->column, selection);
		return vector->usable ? vector : NULL;
	}
	if (expression->is_constant)
	{
		if (expression->function != NULL &&
			!expression->function(expression, context, selection))
			return NULL;
		return &expression->result;
	}
	if (expression->result.generation != context->batch->generation)
	{
		expression->result.has_mixed_scales = false;
		expression->result.usable = expression->function(expression, context,
														 selection);
		expression->result.generation = context->batch->generation;
	}
	return expression->result.usable ? &expression->result : NULL;
}
