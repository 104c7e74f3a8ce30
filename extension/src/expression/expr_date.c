/*
 * expr_date.c
 *	  Compile extract(), date_trunc() and sums with an interval to vector expressions.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "utils/timestamp.h"

#include "expr.h"
#include "server.h"

static bool
extracts(Oid type, DateField field)
{
	if (field == FIELD_WEEK)
		return false;
	return type == TIMESTAMPOID || (type == DATEOID && field <= FIELD_DOY);
}

static bool
truncates(Oid type, DateField field)
{
	return type == TIMESTAMPOID &&
		field != FIELD_DOW && field != FIELD_ISODOW && field != FIELD_DOY;
}

/* extract(field from operand) and date_trunc(field, operand). */
VectorExpr *
vector_compile_date_field(VectorContext *context, const Expr *source,
						  VectorOperation operation, VectorExpr *name,
						  VectorExpr *operand)
{
	const Const *constant = (const Const *) name->leaf;
	VectorExpr	draft = {.operation = operation, .left = operand};
	struct varlena *text;
	bool		found;

	if (constant == NULL || !IsA(constant, Const) || constant->constisnull)
		return NULL;
	text = PG_DETOAST_DATUM_PACKED(constant->constvalue);
	if (!date_field_lookup(VARDATA_ANY(text), VARSIZE_ANY_EXHDR(text), &draft.field))
		return NULL;
	if (operation == OPERATION_EXTRACT ? !extracts(operand->type, draft.field) :
		!truncates(operand->type, draft.field))
		return NULL;
	draft.function = operation == OPERATION_EXTRACT ? kernel_extract : kernel_truncate;
	draft.kind = operation == OPERATION_EXTRACT ? VALUE_NUMERIC : VALUE_INTEGER;
	draft.type = exprType((const Node *) source);
	draft.leaf = (const Expr *) constant;
	return vector_intern(context, &draft, &found);
}

/*
 * A date or timestamp and an interval.  With a time zone, days and months depend on the
 * session's; hours do not.
 */
VectorExpr *
vector_compile_interval(VectorContext *context, const Expr *source,
						VectorOperation operation, List *arguments)
{
	const Const *constant = lsecond(arguments);
	VectorExpr *operand = vector_compile(context, linitial(arguments));
	const Interval *interval;
	VectorExpr	draft;
	bool		found;

	if (operand == NULL || operand->kind != VALUE_INTEGER || !IsA(constant, Const) ||
		constant->constisnull)
		return NULL;
	interval = DatumGetIntervalP(constant->constvalue);
	if (INTERVAL_NOT_FINITE(interval))
		return NULL;
	if (operand->type == TIMESTAMPTZOID && (interval->month != 0 || interval->day != 0))
		return NULL;
	draft = vector_draft(source, VALUE_INTEGER, kernel_add_interval);
	draft.operation = operation;
	draft.left = operand;
	draft.leaf = (const Expr *) constant;
	return vector_intern(context, &draft, &found);
}
