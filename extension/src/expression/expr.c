/*
 * expr.c
 *	  Compile executor expressions to vector expressions.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/array.h"
#include "utils/date.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "collation.h"
#include "expr.h"
#include "batch_limits.h"
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

/* What an expression is, before it is looked up: without operands. */
VectorExpr
vector_draft(const Expr *source, ValueKind kind, VectorFunction function)
{
	return (VectorExpr) {
		.function = function,
		.kind = kind,
		.type = exprType((const Node *) source),
	};
}

/* The constant that an expression is; NULL: it is none, or of NULL. */
const Const *
vector_constant(const VectorExpr *expression)
{
	const Const *constant = (const Const *) expression->leaf;

	return expression->is_constant && constant != NULL && IsA(constant, Const) &&
		!constant->constisnull ? constant : NULL;
}

static VectorExpr *
intern(VectorContext *context, const VectorExpr *draft)
{
	bool		found;

	return vector_intern(context, draft, &found);
}

/* A column as an expression: of its own kind, or opaque, or by pointer. */
VectorExpr *
vector_column(VectorContext *context, AttrNumber attno, Oid type, ValueKind kind)
{
	const VectorExpr draft = {
		.type = type,
		.kind = kind,
		.column = context->is_trial ? NULL :
			batch_add_column(context->batch, attno, type, kind),
	};

	return intern(context, &draft);
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
		expression->numeric = DatumGetPointer(value);
		if (!numeric_decode(expression->numeric, &scaled, &result->scale))
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
compile_const(VectorContext *context, const Const *constant)
{
	VectorExpr *expression;
	VectorExpr	draft;
	ValueKind	kind;
	int64		scaled;
	int			scale;
	bool		found;

	if (!value_kind_of_type(constant->consttype, &kind) ||
		(kind == VALUE_NUMERIC && !constant->constisnull &&
		 !numeric_decode(DatumGetPointer(constant->constvalue), &scaled, &scale)))
		return NULL;
	draft = vector_draft((const Expr *) constant, kind, NULL);
	draft.is_constant = true;
	draft.leaf = (const Expr *) constant;
	expression = vector_intern(context, &draft, &found);
	if (!found && !context->is_trial)
		(void) broadcast(expression, constant->constvalue, constant->constisnull);
	return expression;
}

/*
 * Read a parameter, when the first batch needs it after a (re)scan.  What its
 * value takes is freed at the next rescan.
 */
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
	caller = MemoryContextSwitchTo(context->parameter_memory);
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
	VectorExpr	draft;
	ValueKind	kind;
	bool		found;

	if ((param->paramkind != PARAM_EXTERN && param->paramkind != PARAM_EXEC) ||
		!value_kind_of_type(param->paramtype, &kind))
		return NULL;
	draft = vector_draft((const Expr *) param, kind, read_parameter);
	draft.is_constant = true;
	draft.leaf = (const Expr *) param;
	expression = vector_intern(context, &draft, &found);
	if (!found && !context->is_trial)
	{
		expression->constant_state = ExecInitExpr((Expr *) param, context->planstate);
		context->parameters = lappend(context->parameters, expression);
	}
	return expression;
}

/* Have parameters read again, as for a rescan. */
void
vector_reset_parameters(VectorContext *context)
{
	ListCell   *cell;

	foreach(cell, context->parameters)
		((VectorExpr *) lfirst(cell))->result.generation = 0;
	MemoryContextReset(context->parameter_memory);
}

static VectorExpr *
convert_to(VectorContext *context, VectorExpr *operand, Oid type, ValueKind kind,
		   VectorOperation operation, bool is_for_comparison)
{
	VectorExpr	draft = {.kind = kind, .type = type};

	/* Where the words of both types are the same, so is the column. */
	if (operation == OPERATION_COPY && operand->column != NULL)
		draft.column = operand->column;
	else
	{
		draft.function = kernel_convert;
		draft.operation = operation;
		draft.left = operand;
		draft.is_for_comparison = is_for_comparison;
	}
	return intern(context, &draft);
}

/* date against timestamp: compare as timestamps. */
static void
match_date_with_timestamp(VectorContext *context, const VectorExpr *left,
						  VectorExpr **date)
{
	if (left->type == TIMESTAMPOID && (*date)->type == DATEOID)
		*date = convert_to(context, *date, TIMESTAMPOID, VALUE_INTEGER,
						   OPERATION_DATE_TO_TIMESTAMP, true);
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
compare_as_dates(VectorContext *context, VectorOperation *operation,
				 const VectorExpr *left, VectorExpr **right)
{
	const Const *constant = (const Const *) (*right)->leaf;
	Timestamp	timestamp;
	int64		day;

	if (left->type != DATEOID || (*right)->type != TIMESTAMPOID ||
		constant == NULL || !IsA(constant, Const) || constant->constisnull ||
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
	*right = compile_const(context,
						   makeConst(DATEOID, -1, InvalidOid, sizeof(DateADT),
									 DateADTGetDatum((DateADT) day), false, true));
}

static VectorExpr *
compile_comparison(VectorContext *context, const Expr *source,
				   VectorOperation operation, VectorExpr *left,
				   VectorExpr *right)
{
	VectorExpr	draft;
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
	compare_as_dates(context, &operation, left, &right);
	if (left->kind == VALUE_TEXT)
	{
		if (operation <= OPERATION_NE ? !collation_is_deterministic(collation) :
			!collation_is_c(collation))
			return NULL;
	}
	match_date_with_timestamp(context, left, &right);
	match_date_with_timestamp(context, right, &left);
	draft = vector_draft(source, VALUE_INTEGER,
					 left->kind == VALUE_TEXT ? kernel_compare_text : kernel_compare);
	draft.operation = operation;
	draft.left = left;
	draft.right = right;
	draft.is_bpchar = (left->type == BPCHAROID && right->type == BPCHAROID);
	return intern(context, &draft);
}

static VectorExpr *
compile_pair(VectorContext *context, const Expr *source, VectorOperation operation,
			 VectorFunction function, VectorExpr *left, VectorExpr *right)
{
	VectorExpr	draft = vector_draft(source, left->kind, function);

	draft.operation = operation;
	draft.left = left;
	draft.right = right;
	return intern(context, &draft);
}

static VectorExpr *
compile_arithmetic(VectorContext *context, const Expr *source,
				   VectorOperation operation, VectorExpr *left,
				   VectorExpr *right)
{
	if (left->kind != right->kind || left->kind == VALUE_TEXT)
		return NULL;
	return compile_pair(context, source, operation, kernel_arithmetic, left, right);
}

/* Arguments of a function that has a vector form, at most. */
#define ARGUMENTS_MAX	3

static VectorExpr *
compile_operation(VectorContext *context, const Expr *source, VectorOperation operation,
				  VectorExpr *const *operands, int count)
{
	const Oid	type = exprType((const Node *) source);
	ValueKind	kind;

	if (operation_is_comparison(operation))
		return compile_comparison(context, source, operation, operands[0], operands[1]);
	switch (operation)
	{
		case OPERATION_LIKE:
		case OPERATION_NOT_LIKE:
		case OPERATION_ILIKE:
		case OPERATION_NOT_ILIKE:
		case OPERATION_LENGTH:
		case OPERATION_UPPER:
		case OPERATION_LOWER:
		case OPERATION_SUBSTRING:
		case OPERATION_LEFT:
		case OPERATION_CONCATENATE:
			return vector_compile_text(context, source, operation, operands, count);
		case OPERATION_EXTRACT:
		case OPERATION_TRUNCATE:
			return vector_compile_date_field(context, source, operation, operands[0],
											 operands[1]);
		case OPERATION_TO_INTEGER:
		case OPERATION_TO_FLOAT4:
		case OPERATION_TO_BOOL:
		case OPERATION_TO_DATE:
		case OPERATION_ROUND:
		case OPERATION_ROUND_DOWN:
		case OPERATION_CEIL:
		case OPERATION_FLOOR:
			return vector_compile_number(context, source, operation, operands, count);
		case OPERATION_DATE_ADD:
		case OPERATION_DATE_SUBTRACT:
		case OPERATION_DATE_DIFFERENCE:
			return compile_pair(context, source, operation, kernel_date_arithmetic,
								operands[0], operands[1]);
		default:
			break;
	}
	if (count == 2)
		return compile_arithmetic(context, source, operation, operands[0], operands[1]);
	/* From a numeric to a float there is a kernel of its own. */
	if (operands[0]->kind == VALUE_NUMERIC && operation == OPERATION_TO_FLOAT)
		return vector_compile_number(context, source, operation, operands, count);
	if (!value_kind_of_type(type, &kind))
		return NULL;
	return convert_to(context, operands[0], type, kind, operation, false);
}

/* The call of a function, or of an operator's. */
VectorExpr *
vector_compile_function(VectorContext *context, const Expr *source, Oid function,
						List *arguments)
{
	VectorExpr *operands[ARGUMENTS_MAX];
	VectorOperation operation;
	ValueKind	kind;
	ListCell   *cell;

	if (!function_lookup(function, &operation) || arguments == NIL ||
		list_length(arguments) > ARGUMENTS_MAX ||
		!value_kind_of_type(exprType((const Node *) source), &kind))
		return NULL;
	if (operation == OPERATION_ADD_INTERVAL || operation == OPERATION_SUBTRACT_INTERVAL)
		return vector_compile_interval(context, source, operation, arguments);
	foreach(cell, arguments)
	{
		VectorExpr *operand = compile(context, lfirst(cell));

		if (operand == NULL)
			return NULL;
		operands[foreach_current_index(cell)] = operand;
	}
	return compile_operation(context, source, operation, operands, list_length(arguments));
}

/* Copy the elements of an IN list; numeric lists go by row. */
static void
read_in_list(VectorExpr *expression, ArrayType *array, Oid element_type)
{
	int16		length;
	bool		by_value;
	char		alignment;
	Datum	   *elements;
	bool	   *nulls;
	int			count;

	get_typlenbyvalalign(element_type, &length, &by_value, &alignment);
	deconstruct_array(array, element_type, length, by_value, alignment,
					  &elements, &nulls, &count);
	expression->list = elements;
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (nulls[i])
			expression->list_has_null = true;
		else
			expression->list[expression->list_count++] =
				expression->left->kind == VALUE_TEXT ?
				PointerGetDatum(PG_DETOAST_DATUM_PACKED(elements[i])) :
				vector_word_from_datum(element_type, elements[i]);
	}
	pfree(nulls);
	in_list_hash(expression);
}

static VectorExpr *
compile_in_list(VectorContext *context, const ScalarArrayOpExpr *source)
{
	VectorExpr *operand;
	VectorExpr *expression;
	VectorExpr	draft;
	VectorOperation operation;
	const Const *constant;
	ArrayType  *array;
	Oid			element_type;
	ValueKind	element_kind;
	bool		found;

	if (!IsA(lsecond(source->args), Const) ||
		!function_lookup(get_opcode(source->opno), &operation) ||
		operation != (source->useOr ? OPERATION_EQ : OPERATION_NE))
		return NULL;
	constant = lsecond_node(Const, source->args);
	element_type = get_element_type(constant->consttype);
	operand = compile(context, linitial(source->args));
	if (operand == NULL || constant->constisnull || operand->type != element_type ||
		!value_kind_of_type(element_type, &element_kind) ||
		(operand->kind != VALUE_INTEGER && operand->kind != VALUE_TEXT) ||
		(operand->kind == VALUE_TEXT &&
		 !collation_is_deterministic(source->inputcollid)))
		return NULL;
	array = DatumGetArrayTypeP(constant->constvalue);
	if (ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)) > IN_LIST_VALUES_MAX)
		return NULL;
	draft = vector_draft((const Expr *) source, VALUE_INTEGER, kernel_in_list);
	draft.left = operand;
	draft.leaf = (const Expr *) constant;
	draft.is_negated = !source->useOr;
	draft.is_bpchar = (operand->type == BPCHAROID);
	expression = vector_intern(context, &draft, &found);
	if (!found && !context->is_trial)
		read_in_list(expression, array, element_type);
	return expression;
}

static VectorExpr *
compile_relabel(VectorContext *context, const RelabelType *source)
{
	VectorExpr *operand = compile(context, source->arg);
	ValueKind	kind;

	/* Binary-compatible types of one kind share their words. */
	if (operand == NULL || !value_kind_of_type(source->resulttype, &kind) ||
		kind != operand->kind)
		return NULL;
	if (kind == VALUE_INTEGER && operand->type != source->resulttype)
		return NULL;			/* int4 and oid differ in sign */
	return convert_to(context, operand, source->resulttype, kind, OPERATION_COPY,
					  false);
}

/* Compile, or find the same expression compiled before. */
static VectorExpr *
compile(VectorContext *context, const Expr *source)
{
	CHECK_FOR_INTERRUPTS();
	check_stack_depth();
	switch (nodeTag(source))
	{
		case T_Var:
			return compile_var(context, (const Var *) source);
		case T_Const:
			return compile_const(context, (const Const *) source);
		case T_Param:
			return compile_param(context, (const Param *) source);
		case T_OpExpr:
			{
				const OpExpr *operator = (const OpExpr *) source;

				return vector_compile_function(context, source, operator->opfuncid,
											   operator->args);
			}
		case T_FuncExpr:
			{
				const FuncExpr *function = (const FuncExpr *) source;

				return vector_compile_function(context, source, function->funcid,
											   function->args);
			}
		case T_BoolExpr:
			return vector_compile_bool(context, (const BoolExpr *) source);
		case T_NullTest:
			return vector_compile_null_test(context, (const NullTest *) source);
		case T_BooleanTest:
			return vector_compile_boolean_test(context, (const BooleanTest *) source);
		case T_DistinctExpr:
			return vector_compile_distinct(context, (const DistinctExpr *) source);
		case T_NullIfExpr:
			return vector_compile_nullif(context, (const NullIfExpr *) source);
		case T_CaseTestExpr:
			return context->case_value != NULL ? compile(context, context->case_value) : NULL;
		case T_ScalarArrayOpExpr:
			return compile_in_list(context, (const ScalarArrayOpExpr *) source);
		case T_CaseExpr:
			return vector_compile_case(context, (const CaseExpr *) source);
		case T_CoalesceExpr:
			return vector_compile_coalesce(context, (const CoalesceExpr *) source);
		case T_RelabelType:
			return compile_relabel(context, (const RelabelType *) source);
		default:
			return NULL;
	}
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

/* Would an expression over a table compile?  For the planner: makes no vectors. */
bool
vector_form_exists(const Expr *source, int scanrelid)
{
	VectorContext trial = {.scanrelid = scanrelid, .is_trial = true};

	return compile(&trial, source) != NULL;
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
		expression->result.usable = dictionary_evaluate(expression, context, selection) ||
			expression->function(expression, context, selection);
		expression->result.generation = context->batch->generation;
	}
	return expression->result.usable ? &expression->result : NULL;
}

/* Have what an expression computes be computed anew for whoever asks next. */
void
vector_forget(VectorExpr *expression)
{
	if (expression == NULL || expression->is_constant)
		return;
	expression->result.generation = 0;
	vector_forget(expression->condition);
	vector_forget(expression->left);
	vector_forget(expression->right);
}

/* Can an expression raise an error?  Arithmetic can, and, as nothing is known of it, NULL: what has no vector form. */
bool
vector_may_raise(const VectorExpr *expression)
{
	if (expression == NULL)
		return true;
	return expression->function == kernel_arithmetic ||
		expression->function == kernel_convert ||
		expression->function == kernel_truncate ||
		expression->function == kernel_narrow ||
		expression->function == kernel_date_arithmetic ||
		expression->function == kernel_add_interval ||
		expression->function == kernel_substring ||
		(expression->condition != NULL && vector_may_raise(expression->condition)) ||
		(expression->left != NULL && vector_may_raise(expression->left)) ||
		(expression->right != NULL && vector_may_raise(expression->right));
}
