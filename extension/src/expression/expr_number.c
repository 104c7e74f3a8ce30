/*
 * expr_number.c
 *	  Compile roundings, and casts that can fail, to vector expressions.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"

#include "expr.h"
#include "numeric_vector.h"

/* To how many decimals a numeric is rounded; false where that is not known, or no vector's scale. */
static bool
rounds_to_constant(const VectorExpr *digits)
{
	const Const *constant = vector_constant(digits);

	return constant != NULL && DatumGetInt32(constant->constvalue) >= 0 &&
		DatumGetInt32(constant->constvalue) <= POWER_OF_TEN_MAX;
}

static bool
casts(VectorOperation operation, const VectorExpr *operand)
{
	switch (operation)
	{
		case OPERATION_TO_FLOAT4:
			return operand->kind == VALUE_INTEGER || operand->kind == VALUE_FLOAT;
		case OPERATION_TO_FLOAT:
			return operand->kind == VALUE_NUMERIC;
		case OPERATION_TO_INTEGER:
			return operand->kind != VALUE_TEXT;
		default:
			return operand->kind == VALUE_INTEGER;
	}
}

/* Casts, and round, trunc, ceil and floor: of a float without digits, of a numeric with. */
VectorExpr *
vector_compile_number(VectorContext *context, const Expr *source, VectorOperation operation,
					  VectorExpr *const *operands, int count)
{
	const bool	is_cast = operation < OPERATION_ROUND;
	ValueKind	kind;
	VectorExpr	draft;
	bool		found;

	if (is_cast ? count != 1 || !casts(operation, operands[0]) :
		(operands[0]->kind != VALUE_FLOAT && operands[0]->kind != VALUE_NUMERIC) ||
		(count == 2 && !rounds_to_constant(operands[1])))
		return NULL;
	if (!value_kind_of_type(exprType((const Node *) source), &kind))
		return NULL;
	draft = vector_draft(source, kind, is_cast ? kernel_narrow : kernel_round);
	draft.operation = operation;
	draft.left = operands[0];
	draft.right = count == 2 ? operands[1] : NULL;
	return vector_intern(context, &draft, &found);
}
