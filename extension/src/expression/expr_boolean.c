/*
 * expr_boolean.c
 *	  Compile AND, OR, NOT, and tests of NULL, of truth and of distinctness to vector
 *	  expressions.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"

#include "expr.h"

/* A chain of AND or OR as a tree of pairs. */
VectorExpr *
vector_compile_bool(VectorContext *context, const BoolExpr *source)
{
	VectorExpr *result = NULL;
	bool		found;
	ListCell   *cell;

	foreach(cell, source->args)
	{
		VectorExpr *operand = vector_compile(context, lfirst(cell));
		VectorExpr	pair;

		if (operand == NULL)
			return NULL;
		if (result == NULL && source->boolop != NOT_EXPR)
		{
			result = operand;
			continue;
		}
		pair = vector_draft((const Expr *) source, VALUE_INTEGER, kernel_boolean);
		pair.bool_operation = source->boolop;
		pair.left = result != NULL ? result : operand;
		pair.right = result != NULL ? operand : NULL;
		result = vector_intern(context, &pair, &found);
	}
	return result;
}

/* An operand of which only is asked whether it is NULL. */
static VectorExpr *
compile_opaque(VectorContext *context, const Expr *source)
{
	const Var  *var = (const Var *) source;

	if (!IsA(source, Var))
		return vector_compile(context, source);
	if (var->varno != context->scanrelid || var->varattno <= 0 || var->varlevelsup != 0)
		return NULL;
	return vector_column(context, var->varattno, var->vartype, VALUE_OPAQUE);
}

VectorExpr *
vector_compile_null_test(VectorContext *context, const NullTest *source)
{
	VectorExpr *operand = source->argisrow ? NULL : compile_opaque(context, source->arg);
	VectorExpr	draft;
	bool		found;

	if (operand == NULL)
		return NULL;
	draft = vector_draft((const Expr *) source, VALUE_INTEGER, kernel_null_test);
	draft.left = operand;
	draft.is_negated = (source->nulltesttype == IS_NOT_NULL);
	return vector_intern(context, &draft, &found);
}

/* IS TRUE, IS FALSE and IS UNKNOWN, and their negations. */
VectorExpr *
vector_compile_boolean_test(VectorContext *context, const BooleanTest *source)
{
	VectorExpr *operand = vector_compile(context, source->arg);
	VectorExpr	draft;
	bool		found;

	if (operand == NULL)
		return NULL;
	draft = vector_draft((const Expr *) source, VALUE_INTEGER, kernel_boolean_test);
	draft.left = operand;
	switch (source->booltesttype)
	{
		case IS_NOT_TRUE:
		case IS_NOT_FALSE:
		case IS_NOT_UNKNOWN:
			draft.is_negated = true;
			break;
		default:
			break;
	}
	draft.bool_test = source->booltesttype == IS_TRUE || source->booltesttype == IS_NOT_TRUE ? IS_TRUE :
		source->booltesttype == IS_FALSE || source->booltesttype == IS_NOT_FALSE ? IS_FALSE :
		IS_UNKNOWN;
	return vector_intern(context, &draft, &found);
}

/* IS DISTINCT FROM: the node holds the operator of equality. */
VectorExpr *
vector_compile_distinct(VectorContext *context, const DistinctExpr *source)
{
	VectorExpr *equality = vector_compile_function(context, (const Expr *) source,
												   source->opfuncid, source->args);
	VectorExpr	draft = vector_draft((const Expr *) source, VALUE_INTEGER, kernel_distinct);
	bool		found;

	if (equality == NULL || equality->operation != OPERATION_EQ)
		return NULL;
	draft.condition = equality;
	draft.left = equality->left;
	draft.right = equality->right;
	return vector_intern(context, &draft, &found);
}
