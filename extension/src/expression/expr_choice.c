/*
 * expr_choice.c
 *	  Compile CASE, COALESCE and NULLIF to vector expressions.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"

#include "expr.h"

/* One operand where a condition is true, and the other elsewhere. */
static VectorExpr *
compile_choice(VectorContext *context, const Expr *source, VectorExpr *condition,
			   VectorExpr *left, VectorExpr *right)
{
	VectorExpr	draft = {.function = kernel_choose};
	bool		found;

	if (condition == NULL || left == NULL || right == NULL ||
		left->kind != right->kind ||
		!value_kind_of_type(exprType((const Node *) source), &draft.kind) ||
		draft.kind != left->kind)
		return NULL;
	draft.type = exprType((const Node *) source);
	draft.condition = condition;
	draft.left = left;
	draft.right = right;
	return vector_intern(context, &draft, &found);
}

/* CASE WHEN … as a chain of choices.  Of CASE value WHEN …, each condition compares the value. */
VectorExpr *
vector_compile_case(VectorContext *context, const CaseExpr *source)
{
	const Expr *outer_value = context->case_value;
	VectorExpr *result;

	if (source->defresult == NULL)
		return NULL;
	result = vector_compile(context, source->defresult);
	for (int i = list_length(source->args) - 1; i >= 0 && result != NULL; i--)
	{
		const CaseWhen *when = list_nth_node(CaseWhen, source->args, i);
		VectorExpr *taken = vector_compile(context, when->result);
		VectorExpr *condition;

		context->case_value = source->arg;
		condition = vector_compile(context, when->expr);
		context->case_value = outer_value;
		result = compile_choice(context, (const Expr *) source, condition, taken, result);
	}
	return result;
}

/* NULL where both are equal, else the first.  The node holds the operator of equality. */
VectorExpr *
vector_compile_nullif(VectorContext *context, const NullIfExpr *source)
{
	Expr	   *first = linitial(source->args);
	OpExpr	   *equality = makeNode(OpExpr);

	memcpy(equality, source, sizeof(OpExpr));
	NodeSetTag(equality, T_OpExpr);
	equality->opresulttype = BOOLOID;
	return compile_choice(context, (const Expr *) source,
						  vector_compile(context, (const Expr *) equality),
						  vector_compile(context, (const Expr *)
										 makeNullConst(exprType((Node *) first), -1,
													   exprCollation((Node *) first))),
						  vector_compile(context, first));
}

VectorExpr *
vector_compile_coalesce(VectorContext *context, const CoalesceExpr *source)
{
	VectorExpr *result = vector_compile(context, llast(source->args));
	bool		found;

	for (int i = list_length(source->args) - 2; i >= 0 && result != NULL; i--)
	{
		VectorExpr *operand = vector_compile(context, list_nth(source->args, i));
		VectorExpr	test = {
			.function = kernel_null_test,
			.kind = VALUE_INTEGER,
			.type = BOOLOID,
			.left = operand,
			.is_negated = true,
		};

		if (operand == NULL)
			return NULL;
		result = compile_choice(context, (const Expr *) source,
								vector_intern(context, &test, &found), operand, result);
	}
	return result;
}
