/*
 * expr_text.c
 *	  Compile functions of text to vector expressions.
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/formatting.h"

#include "collation.h"
#include "expr.h"

/* Do the bytes of a text tell where its characters begin? */
static bool
characters_are_known(void)
{
	return pg_database_encoding_max_length() == 1 || GetDatabaseEncoding() == PG_UTF8;
}

static VectorExpr *
compile_change_of_case(VectorContext *context, VectorOperation operation, VectorExpr *operand,
					   Oid collation)
{
	VectorExpr	draft = {
		.function = kernel_change_case,
		.kind = VALUE_TEXT,
		.type = TEXTOID,
		.operation = operation,
		.left = operand,
		.collation = collation,
	};
	bool		found;

	if (!OidIsValid(collation) || !case_maps_ascii(operation, collation))
		return NULL;
	return vector_intern(context, &draft, &found);
}

/* A pattern in lower case, as ILIKE compares it. */
static VectorExpr *
compile_lower_pattern(VectorContext *context, const Const *pattern, Oid collation)
{
	struct varlena *text = PG_DETOAST_DATUM_PACKED(pattern->constvalue);
	char	   *lower = str_tolower(VARDATA_ANY(text), VARSIZE_ANY_EXHDR(text), collation);

	return vector_compile(context, (const Expr *)
						  makeConst(TEXTOID, -1, collation, -1,
									PointerGetDatum(cstring_to_text(lower)), false, false));
}

/* ILIKE compares both sides in lower case, but goes by single characters in single-byte encodings. */
static VectorExpr *
compile_like(VectorContext *context, const Expr *source, VectorOperation operation,
			 VectorExpr *left, VectorExpr *right)
{
	const Oid	collation = exprInputCollation((const Node *) source);
	const Const *constant = vector_constant(right);
	const bool	ignores_case = operation == OPERATION_ILIKE || operation == OPERATION_NOT_ILIKE;
	VectorExpr	draft;
	void	   *pattern;
	bool		found;

	if (left->kind != VALUE_TEXT || constant == NULL || !collation_is_deterministic(collation))
		return NULL;
	if (ignores_case)
	{
		if (pg_database_encoding_max_length() == 1)
			return NULL;
		left = compile_change_of_case(context, OPERATION_LOWER, left, collation);
		if (left == NULL)
			return NULL;
		right = compile_lower_pattern(context, constant, collation);
		constant = vector_constant(right);
		operation = operation == OPERATION_ILIKE ? OPERATION_LIKE : OPERATION_NOT_LIKE;
	}
	pattern = PG_DETOAST_DATUM_PACKED(constant->constvalue);
	if (!like_pattern_is_simple(VARDATA_ANY(pattern), VARSIZE_ANY_EXHDR(pattern)))
		return NULL;
	draft = vector_draft(source, VALUE_INTEGER, kernel_like);
	draft.operation = operation;
	draft.left = left;
	draft.right = right;
	return vector_intern(context, &draft, &found);
}

static VectorFunction
function_of(VectorOperation operation)
{
	switch (operation)
	{
		case OPERATION_LENGTH:
			return kernel_length;
		case OPERATION_CONCATENATE:
			return kernel_concatenate;
		default:
			return kernel_substring;
	}
}

VectorExpr *
vector_compile_text(VectorContext *context, const Expr *source, VectorOperation operation,
					VectorExpr *const *operands, int count)
{
	VectorExpr	draft;
	bool		found;

	if (operands[0]->kind != VALUE_TEXT)
		return NULL;
	switch (operation)
	{
		case OPERATION_LIKE:
		case OPERATION_NOT_LIKE:
		case OPERATION_ILIKE:
		case OPERATION_NOT_ILIKE:
			return compile_like(context, source, operation, operands[0], operands[1]);
		case OPERATION_UPPER:
		case OPERATION_LOWER:
			return compile_change_of_case(context, operation, operands[0],
										  exprInputCollation((const Node *) source));
		case OPERATION_CONCATENATE:
			if (operands[1]->kind != VALUE_TEXT)
				return NULL;
			break;
		default:
			if (!characters_are_known())
				return NULL;
			break;
	}
	draft = vector_draft(source, operation == OPERATION_LENGTH ? VALUE_INTEGER : VALUE_TEXT,
						 function_of(operation));
	draft.operation = operation;
	draft.left = operands[0];
	/* left(text, count) has no start. */
	draft.right = operation == OPERATION_LEFT || count < 2 ? NULL : operands[1];
	draft.condition = operation == OPERATION_LEFT ? operands[1] : count == 3 ? operands[2] : NULL;
	return vector_intern(context, &draft, &found);
}
