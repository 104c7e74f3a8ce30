/*
 * function_table.c
 *	  The built-in functions that have a vector kernel.
 *
 * The kinds of the operands follow from the argument types, so a function
 * maps to an operation alone.
 */
#include "postgres.h"

#include "access/transam.h"
#include "nodes/nodeFuncs.h"
#include "utils/fmgroids.h"

#include "expr.h"
#include "walk.h"

typedef struct FunctionEntry
{
	Oid			function;
	VectorOperation operation;
} FunctionEntry;

#define COMPARISONS(prefix_) \
	{prefix_##EQ, OPERATION_EQ}, {prefix_##NE, OPERATION_NE}, \
	{prefix_##LT, OPERATION_LT}, {prefix_##LE, OPERATION_LE}, \
	{prefix_##GT, OPERATION_GT}, {prefix_##GE, OPERATION_GE}

#define COMPARISONS_WITH(prefix_, suffix_) \
	{prefix_##EQ##suffix_, OPERATION_EQ}, {prefix_##NE##suffix_, OPERATION_NE}, \
	{prefix_##LT##suffix_, OPERATION_LT}, {prefix_##LE##suffix_, OPERATION_LE}, \
	{prefix_##GT##suffix_, OPERATION_GT}, {prefix_##GE##suffix_, OPERATION_GE}

#define FOUR_ARITHMETIC(prefix_) \
	{prefix_##PL, OPERATION_ADD}, {prefix_##MI, OPERATION_SUBTRACT}, \
	{prefix_##MUL, OPERATION_MULTIPLY}, {prefix_##DIV, OPERATION_DIVIDE}

static const FunctionEntry functions[] = {
	COMPARISONS(F_INT2), COMPARISONS(F_INT4), COMPARISONS(F_INT8),
	COMPARISONS(F_INT24), COMPARISONS(F_INT42), COMPARISONS(F_INT28),
	COMPARISONS(F_INT82), COMPARISONS(F_INT48), COMPARISONS(F_INT84),
	COMPARISONS(F_FLOAT4), COMPARISONS(F_FLOAT8), COMPARISONS(F_FLOAT48),
	COMPARISONS(F_FLOAT84), COMPARISONS(F_NUMERIC_), COMPARISONS(F_DATE_),
	COMPARISONS(F_TIMESTAMP_), COMPARISONS(F_TIMESTAMPTZ_),
	COMPARISONS(F_TIME_), COMPARISONS(F_OID), COMPARISONS(F_BOOL),
	COMPARISONS_WITH(F_DATE_, _TIMESTAMP), COMPARISONS_WITH(F_TIMESTAMP_, _DATE),
	COMPARISONS(F_BPCHAR),
	{F_CHAREQ, OPERATION_EQ}, {F_CHARNE, OPERATION_NE},
	{F_TEXTEQ, OPERATION_EQ}, {F_TEXTNE, OPERATION_NE},
	{F_TEXT_LT, OPERATION_LT}, {F_TEXT_LE, OPERATION_LE},
	{F_TEXT_GT, OPERATION_GT}, {F_TEXT_GE, OPERATION_GE},
	{F_TEXTLIKE, OPERATION_LIKE}, {F_TEXTNLIKE, OPERATION_NOT_LIKE},
	{F_BPCHARLIKE, OPERATION_LIKE}, {F_BPCHARNLIKE, OPERATION_NOT_LIKE},
	FOUR_ARITHMETIC(F_INT2), FOUR_ARITHMETIC(F_INT4), FOUR_ARITHMETIC(F_INT8),
	FOUR_ARITHMETIC(F_INT24), FOUR_ARITHMETIC(F_INT42),
	FOUR_ARITHMETIC(F_INT28), FOUR_ARITHMETIC(F_INT82),
	FOUR_ARITHMETIC(F_INT48), FOUR_ARITHMETIC(F_INT84),
	FOUR_ARITHMETIC(F_FLOAT4), FOUR_ARITHMETIC(F_FLOAT8),
	FOUR_ARITHMETIC(F_FLOAT48), FOUR_ARITHMETIC(F_FLOAT84),
	{F_INT2MOD, OPERATION_MODULO}, {F_INT4MOD, OPERATION_MODULO},
	{F_INT8MOD, OPERATION_MODULO},
	{F_INT2UM, OPERATION_NEGATE}, {F_INT4UM, OPERATION_NEGATE},
	{F_INT8UM, OPERATION_NEGATE}, {F_FLOAT4UM, OPERATION_NEGATE},
	{F_FLOAT8UM, OPERATION_NEGATE}, {F_NUMERIC_UMINUS, OPERATION_NEGATE},
	{F_NUMERIC_ADD, OPERATION_ADD}, {F_NUMERIC_SUB, OPERATION_SUBTRACT},
	{F_NUMERIC_MUL, OPERATION_MULTIPLY},
	{F_EXTRACT_TEXT_DATE, OPERATION_EXTRACT},
	{F_EXTRACT_TEXT_TIMESTAMP, OPERATION_EXTRACT},
	{F_DATE_TRUNC_TEXT_TIMESTAMP, OPERATION_TRUNCATE},
	{F_DATE_PLI, OPERATION_DATE_ADD}, {F_DATE_MII, OPERATION_DATE_SUBTRACT},
	{F_DATE_MI, OPERATION_DATE_DIFFERENCE},
	{F_DATE_PL_INTERVAL, OPERATION_ADD_INTERVAL}, {F_DATE_MI_INTERVAL, OPERATION_SUBTRACT_INTERVAL},
	{F_TIMESTAMP_PL_INTERVAL, OPERATION_ADD_INTERVAL},
	{F_TIMESTAMP_MI_INTERVAL, OPERATION_SUBTRACT_INTERVAL},
	{F_TIMESTAMPTZ_PL_INTERVAL, OPERATION_ADD_INTERVAL},
	{F_TIMESTAMPTZ_MI_INTERVAL, OPERATION_SUBTRACT_INTERVAL},
	{F_TEXTICLIKE, OPERATION_ILIKE}, {F_TEXTICNLIKE, OPERATION_NOT_ILIKE},
	{F_UPPER_TEXT, OPERATION_UPPER}, {F_LOWER_TEXT, OPERATION_LOWER},
	{F_SUBSTRING_TEXT_INT4, OPERATION_SUBSTRING}, {F_SUBSTRING_TEXT_INT4_INT4, OPERATION_SUBSTRING},
	{F_SUBSTR_TEXT_INT4, OPERATION_SUBSTRING}, {F_SUBSTR_TEXT_INT4_INT4, OPERATION_SUBSTRING},
	{F_LEFT, OPERATION_LEFT}, {F_TEXTCAT, OPERATION_CONCATENATE},
	{F_LENGTH_TEXT, OPERATION_LENGTH}, {F_CHAR_LENGTH_TEXT, OPERATION_LENGTH},
	{F_CHARACTER_LENGTH_TEXT, OPERATION_LENGTH},
	{F_INT2ABS, OPERATION_ABSOLUTE}, {F_INT4ABS, OPERATION_ABSOLUTE},
	{F_INT8ABS, OPERATION_ABSOLUTE}, {F_FLOAT4ABS, OPERATION_ABSOLUTE},
	{F_FLOAT8ABS, OPERATION_ABSOLUTE}, {F_NUMERIC_ABS, OPERATION_ABSOLUTE},
	{F_ABS_INT2, OPERATION_ABSOLUTE}, {F_ABS_INT4, OPERATION_ABSOLUTE},
	{F_ABS_INT8, OPERATION_ABSOLUTE}, {F_ABS_FLOAT4, OPERATION_ABSOLUTE},
	{F_ABS_FLOAT8, OPERATION_ABSOLUTE}, {F_ABS_NUMERIC, OPERATION_ABSOLUTE},
	{F_ROUND_FLOAT8, OPERATION_ROUND}, {F_DROUND, OPERATION_ROUND},
	{F_TRUNC_FLOAT8, OPERATION_ROUND_DOWN}, {F_DTRUNC, OPERATION_ROUND_DOWN},
	{F_CEIL_FLOAT8, OPERATION_CEIL}, {F_CEILING_FLOAT8, OPERATION_CEIL},
	{F_FLOOR_FLOAT8, OPERATION_FLOOR},
	{F_ROUND_NUMERIC_INT4, OPERATION_ROUND}, {F_TRUNC_NUMERIC_INT4, OPERATION_ROUND_DOWN},
	{F_CEIL_NUMERIC, OPERATION_CEIL}, {F_CEILING_NUMERIC, OPERATION_CEIL},
	{F_FLOOR_NUMERIC, OPERATION_FLOOR},
	{F_INT2_INT4, OPERATION_TO_INTEGER}, {F_INT2_INT8, OPERATION_TO_INTEGER},
	{F_INT4_INT8, OPERATION_TO_INTEGER},
	{F_INT2_FLOAT4, OPERATION_TO_INTEGER}, {F_INT4_FLOAT4, OPERATION_TO_INTEGER},
	{F_INT8_FLOAT4, OPERATION_TO_INTEGER}, {F_INT2_FLOAT8, OPERATION_TO_INTEGER},
	{F_INT4_FLOAT8, OPERATION_TO_INTEGER}, {F_INT8_FLOAT8, OPERATION_TO_INTEGER},
	{F_INT2_NUMERIC, OPERATION_TO_INTEGER}, {F_INT4_NUMERIC, OPERATION_TO_INTEGER},
	{F_INT8_NUMERIC, OPERATION_TO_INTEGER}, {F_INT4_BOOL, OPERATION_COPY},
	{F_BOOL_INT4, OPERATION_TO_BOOL}, {F_DATE_TIMESTAMP, OPERATION_TO_DATE},
	{F_FLOAT4_FLOAT8, OPERATION_TO_FLOAT4}, {F_FLOAT4_INT2, OPERATION_TO_FLOAT4},
	{F_FLOAT4_INT4, OPERATION_TO_FLOAT4}, {F_FLOAT4_INT8, OPERATION_TO_FLOAT4},
	{F_FLOAT8_NUMERIC, OPERATION_TO_FLOAT},
	{F_INT4_INT2, OPERATION_COPY}, {F_INT8_INT2, OPERATION_COPY},
	{F_INT8_INT4, OPERATION_COPY}, {F_FLOAT8_FLOAT4, OPERATION_COPY},
	{F_FLOAT8_INT2, OPERATION_TO_FLOAT}, {F_FLOAT8_INT4, OPERATION_TO_FLOAT},
	{F_FLOAT8_INT8, OPERATION_TO_FLOAT},
	{F_NUMERIC_INT2, OPERATION_TO_NUMERIC}, {F_NUMERIC_INT4, OPERATION_TO_NUMERIC},
	{F_NUMERIC_INT8, OPERATION_TO_NUMERIC},
	{F_TIMESTAMP_DATE, OPERATION_DATE_TO_TIMESTAMP}
};

/* Of each built-in function its operation and one more, or 0; filled at the first look-up. */
static uint8 operations[FirstGenbkiObjectId];
static bool operations_are_filled = false;

static void
fill_operations(void)
{
	for (size_t i = 0; i < lengthof(functions); i++)
		operations[functions[i].function] = functions[i].operation + 1;
	operations_are_filled = true;
}

/* The operation of a built-in function; false where it has no kernel. */
bool
function_lookup(Oid function, VectorOperation *operation)
{
	if (!operations_are_filled)
		fill_operations();
	if (function >= FirstGenbkiObjectId || operations[function] == 0)
		return false;
	*operation = operations[function] - 1;
	return true;
}

bool
operation_is_comparison(VectorOperation operation)
{
	return operation <= OPERATION_GE;
}

/* Is a node anything but a column, a value, or one of the above over such? */
static bool
holds_other_node(Node *node, void *context)
{
	VectorOperation operation;

	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_Var:
		case T_Const:
		case T_Param:
			return false;
		case T_OpExpr:
			if (!function_lookup(((const OpExpr *) node)->opfuncid, &operation))
				return true;
			break;
		case T_FuncExpr:
			if (!function_lookup(((const FuncExpr *) node)->funcid, &operation))
				return true;
			break;
		case T_ScalarArrayOpExpr:
			if (!function_lookup(((const ScalarArrayOpExpr *) node)->opfuncid, &operation))
				return true;
			break;
		case T_BoolExpr:
		case T_BooleanTest:
		case T_NullTest:
		case T_RelabelType:
		case T_TargetEntry:
		case T_List:
			break;
		default:
			return true;
	}
	return walk_below(node, holds_other_node, context);
}

/*
 * Is an expression made of functions with a kernel alone?  None of them is volatile
 * or holds a subquery, and this takes less time than to look in the catalogs.
 */
bool
expression_is_plain(Node *expression)
{
	return !holds_other_node(expression, NULL);
}
