/*
 * expr.h
 *	  Expressions over the columns of a batch.
 *
 * A vector expression never raises an error and has no side effect.  Where a
 * row would overflow, divide by zero or hold a value of no fast format, the
 * evaluation returns NULL for the whole batch; the caller then evaluates row
 * by row with the executor's own expression code, which raises the error if
 * and only if that row is reached.
 */
#ifndef BATCHEXEC_EXPR_H
#define BATCHEXEC_EXPR_H

#include "nodes/execnodes.h"
#include "nodes/primnodes.h"

#include "batch.h"

typedef enum VectorOperation
{
	OPERATION_EQ, OPERATION_NE, OPERATION_LT, OPERATION_LE, OPERATION_GT,
	OPERATION_GE,				/* comparisons */
	OPERATION_ADD, OPERATION_SUBTRACT, OPERATION_MULTIPLY, OPERATION_DIVIDE,
	OPERATION_MODULO,			/* arithmetic */
	OPERATION_NEGATE, OPERATION_ABSOLUTE, OPERATION_COPY, OPERATION_TO_FLOAT,
	OPERATION_TO_NUMERIC, OPERATION_DATE_TO_TIMESTAMP,	/* of one argument */
	OPERATION_TO_INTEGER, OPERATION_TO_FLOAT4, OPERATION_TO_BOOL, OPERATION_TO_DATE,
	OPERATION_ROUND, OPERATION_ROUND_DOWN, OPERATION_CEIL, OPERATION_FLOOR,
	OPERATION_LIKE, OPERATION_NOT_LIKE, OPERATION_ILIKE, OPERATION_NOT_ILIKE,
	OPERATION_EXTRACT, OPERATION_TRUNCATE,	/* of a date or timestamp */
	OPERATION_DATE_ADD, OPERATION_DATE_SUBTRACT, OPERATION_DATE_DIFFERENCE,
	OPERATION_ADD_INTERVAL, OPERATION_SUBTRACT_INTERVAL,
	OPERATION_LENGTH, OPERATION_UPPER, OPERATION_LOWER, OPERATION_SUBSTRING,
	OPERATION_LEFT, OPERATION_CONCATENATE
} VectorOperation;

/* Of a date or timestamp: to be extracted, or to be truncated to. */
typedef enum DateField
{
	FIELD_YEAR, FIELD_QUARTER, FIELD_MONTH, FIELD_WEEK, FIELD_DAY, FIELD_DOW,
	FIELD_ISODOW, FIELD_DOY,	/* up to here: of dates, too */
	FIELD_HOUR, FIELD_MINUTE, FIELD_SECOND
} DateField;

/* Integers from lowest up to highest; none where lowest is above, unless wraps. */
typedef struct IntegerRange
{
	int64		lowest;
	int64		highest;
	bool		wraps;			/* from the largest integer on to the smallest */
} IntegerRange;

typedef struct VectorContext
{
	TupleBatch *batch;
	ExprContext *econtext;		/* for runtime constants and the row path */
	PlanState  *planstate;
	int			scanrelid;
	bool		is_trial;		/* only see whether there is a vector form */
	const Expr *case_value;		/* of the CASE whose conditions are compiled */
	struct expression_table_hash *expressions;	/* all, each once */
	List	   *parameters;		/* those that are read at each (re)scan */
	MemoryContext parameter_memory; /* of their values; reset at a rescan */
} VectorContext;

typedef struct InListTable InListTable;

typedef struct VectorExpr VectorExpr;

typedef bool (*VectorFunction) (VectorExpr *expression, VectorContext *context,
								const Selection *selection);

/* May an operand be computed for those rows alone that the other one does not decide? */
typedef enum Narrowing
{
	NARROWING_UNKNOWN,			/* before the first batch */
	NARROWING_IS_USELESS,		/* it costs less than picking out the rows, or others use it */
	NARROWING_PAYS
} Narrowing;

/* What an expression makes of the entries of a dictionary. */
typedef struct DictionaryResults DictionaryResults;

struct VectorExpr
{
	VectorFunction function;	/* fills result for the selected rows */
	ValueKind	kind;
	Oid			type;
	VectorOperation operation;
	BatchColumn *column;
	VectorExpr *left;
	VectorExpr *right;
	VectorExpr *condition;		/* CASE: left where it is true, else right; or a third operand */
	bool		is_constant;
	bool		is_null_constant;
	const void *numeric;		/* constant: as it is stored, with all its decimals */
	ExprState  *constant_state; /* parameters, read again at a rescan */
	bool		is_negated;		/* IS NOT NULL, <> ALL, IS NOT TRUE, IS DISTINCT FROM */
	BoolTestType bool_test;		/* IS TRUE, IS FALSE or IS UNKNOWN */
	bool		is_bpchar;		/* trailing spaces do not count */
	bool		is_for_comparison;	/* a date that need be no timestamp */
	bool		is_shared;		/* several expressions use it */
	BoolExprType bool_operation;
	Narrowing	narrowing;		/* AND, OR: of the right operand */
	DateField	field;			/* follows from leaf */
	Oid			collation;		/* of upper and lower */
	const Expr *leaf;			/* constant, parameter, IN list, interval or field that it is of */
	/* From here on: what a trial has not. */
	Vector		result;			/* unused where column is set */
	bool		knows_encoded;	/* encoded has been looked for */
	BatchColumn *encoded;		/* the one column of texts that it is of; NULL: it is not, or may not be evaluated so */
	DictionaryResults *entries; /* NULL: no dictionary has been met */
	Datum	   *list;			/* IN: its values */
	int			list_count;
	bool		list_has_null;
	InListTable *list_table;	/* NULL: a short list */
	char	   *texts;			/* texts that it makes for a batch */
	Size		texts_size;
	Vector		scratch_left;	/* numeric: operands at one scale */
	Vector		scratch_right;
};

/* expr.c */
extern VectorExpr *vector_compile(VectorContext *context, const Expr *source);
extern VectorExpr *vector_compile_function(VectorContext *context, const Expr *source,
										   Oid function, List *arguments);
extern VectorExpr vector_draft(const Expr *source, ValueKind kind, VectorFunction function);
extern bool vector_form_exists(const Expr *source, int scanrelid);
extern const Vector *vector_evaluate(VectorExpr *expression,
									 VectorContext *context,
									 const Selection *selection);
extern void vector_forget(VectorExpr *expression);
extern bool vector_may_raise(const VectorExpr *expression);
extern void vector_reset_parameters(VectorContext *context);
extern bool value_kind_of_type(Oid type, ValueKind *kind);
extern VectorExpr *vector_column(VectorContext *context, AttrNumber attno,
								 Oid type, ValueKind kind);
extern Datum vector_word_from_datum(Oid type, Datum value);
extern const Const *vector_constant(const VectorExpr *expression);

/* expr_boolean.c */
extern VectorExpr *vector_compile_bool(VectorContext *context, const BoolExpr *source);
extern VectorExpr *vector_compile_null_test(VectorContext *context, const NullTest *source);
extern VectorExpr *vector_compile_boolean_test(VectorContext *context,
											   const BooleanTest *source);
extern VectorExpr *vector_compile_distinct(VectorContext *context,
										   const DistinctExpr *source);

/* expr_choice.c */
extern VectorExpr *vector_compile_case(VectorContext *context,
									   const CaseExpr *source);
extern VectorExpr *vector_compile_coalesce(VectorContext *context,
										   const CoalesceExpr *source);
extern VectorExpr *vector_compile_nullif(VectorContext *context,
										 const NullIfExpr *source);

/* expr_date.c */
extern VectorExpr *vector_compile_date_field(VectorContext *context,
											 const Expr *source,
											 VectorOperation operation,
											 VectorExpr *name,
											 VectorExpr *operand);

extern VectorExpr *vector_compile_interval(VectorContext *context, const Expr *source,
										   VectorOperation operation, List *arguments);

/* expr_text.c */
extern VectorExpr *vector_compile_text(VectorContext *context, const Expr *source,
									   VectorOperation operation,
									   VectorExpr *const *operands, int count);

/* expr_number.c */
extern VectorExpr *vector_compile_number(VectorContext *context, const Expr *source,
										 VectorOperation operation,
										 VectorExpr *const *operands, int count);

/* expr_table.c */
extern VectorExpr *vector_intern(VectorContext *context,
								 const VectorExpr *draft, bool *found);

/* function_table.c */
extern bool function_lookup(Oid function, VectorOperation *operation);
extern bool expression_is_plain(Node *expression);
extern bool operation_is_comparison(VectorOperation operation);

/* kernels/ */
extern bool kernel_compare(VectorExpr *expression, VectorContext *context,
						   const Selection *selection);
extern bool kernel_compare_text(VectorExpr *expression, VectorContext *context,
								const Selection *selection);
extern bool kernel_arithmetic(VectorExpr *expression, VectorContext *context,
							  const Selection *selection);
extern bool kernel_convert(VectorExpr *expression, VectorContext *context,
						   const Selection *selection);
extern bool kernel_extract(VectorExpr *expression, VectorContext *context,
						   const Selection *selection);
extern bool kernel_truncate(VectorExpr *expression, VectorContext *context,
							const Selection *selection);
extern bool kernel_date_arithmetic(VectorExpr *expression, VectorContext *context,
								   const Selection *selection);
extern bool kernel_add_interval(VectorExpr *expression, VectorContext *context,
								const Selection *selection);
extern bool kernel_narrow(VectorExpr *expression, VectorContext *context,
						  const Selection *selection);
extern bool kernel_round(VectorExpr *expression, VectorContext *context,
						 const Selection *selection);
extern bool kernel_change_case(VectorExpr *expression, VectorContext *context,
							   const Selection *selection);
extern bool kernel_substring(VectorExpr *expression, VectorContext *context,
							 const Selection *selection);
extern bool kernel_concatenate(VectorExpr *expression, VectorContext *context,
							   const Selection *selection);
extern bool kernel_boolean_test(VectorExpr *expression, VectorContext *context,
								const Selection *selection);
extern bool kernel_distinct(VectorExpr *expression, VectorContext *context,
							const Selection *selection);
extern bool kernel_length(VectorExpr *expression, VectorContext *context,
						  const Selection *selection);
extern bool kernel_like(VectorExpr *expression, VectorContext *context,
						const Selection *selection);
extern bool kernel_boolean(VectorExpr *expression, VectorContext *context,
						   const Selection *selection);
extern bool kernel_null_test(VectorExpr *expression, VectorContext *context,
							 const Selection *selection);
extern bool kernel_choose(VectorExpr *expression, VectorContext *context,
						  const Selection *selection);
extern bool kernel_in_list(VectorExpr *expression, VectorContext *context,
						   const Selection *selection);
extern void in_list_hash(VectorExpr *expression);
extern void select_range(const Vector *vector, IntegerRange range,
						 Selection *selection, uint16 *rows);
extern bool numeric_bound(const VectorExpr *constant, int scale,
						  VectorOperation *operation, int64 *bound);
extern bool numeric_align_scales(VectorExpr *expression, const Vector **left,
								 const Vector **right,
								 const Selection *selection);
extern bool date_field_lookup(const char *name, int bytes, DateField *field);
extern bool like_pattern_is_simple(const char *pattern, int bytes);
extern bool case_maps_ascii(VectorOperation operation, Oid collation);

/*
 * The executor's form of an expression, for evaluating it by row.  One that has
 * a vector form, too, is rarely evaluated so, and is made at its first use: with
 * jit on, making it costs more than a batched scan of many pages.
 */
typedef struct RowExpression
{
	VectorContext *context;
	Expr	   *source;			/* or a list of clauses, all of which must be true */
	ExprState  *state;			/* NULL: not made yet */
} RowExpression;

/* Several of them, evaluated together. */
typedef struct RowExpressions
{
	VectorContext *context;
	List	   *sources;		/* Exprs */
	ProjectionInfo *projection; /* NULL: not made yet */
	ExprContext *econtext;		/* their own: a FILTER that goes by row resets the node's for each row */
} RowExpressions;

/* dictionary.c */
typedef enum DictionaryState
{
	DICTIONARY_IS_NEW,			/* too few rows have asked for it */
	DICTIONARY_IS_DUE,			/* its entries are to be evaluated now */
	DICTIONARY_IS_KNOWN,		/* they have been */
	DICTIONARY_IS_USELESS		/* they can't all be */
} DictionaryState;

/* Of the dictionary that somebody has met last. */
typedef struct DictionaryUse
{
	uint64		id;				/* 0: none was met */
	int			count;
	int			rows;			/* that have asked for it before it was due */
	int			useless_count;	/* dictionaries in a row, up to this one, whose entries could not all be evaluated */
	DictionaryState state;
} DictionaryUse;

extern DictionaryState dictionary_meet(DictionaryUse *use, const Dictionary *dictionary,
									   int rows);
extern void dictionary_note(DictionaryUse *use, bool usable);
extern bool dictionary_evaluate(VectorExpr *expression, VectorContext *context,
								const Selection *selection);

/* row_expression.c */
extern bool row_expression_may_join(const RowExpression *expression);
extern void row_expressions_start_batch(RowExpressions *expressions);
extern TupleTableSlot *row_expressions_evaluate(RowExpressions *expressions, int row);
extern void row_expression_begin(RowExpression *expression,
								 VectorContext *context, Expr *source,
								 bool has_vector_form);
extern Datum row_expression_evaluate(RowExpression *expression, bool *is_null);

/* qual.c */
typedef struct BatchQual
{
	VectorContext *context;
	VectorExpr **vectors;		/* of each clause; NULL: by row */
	RowExpression *rows;		/* of each clause */
	int			clause_count;
	int			vector_count;	/* clauses before the first one by row */
	RowExpression rest;			/* all clauses from that one on, evaluated together */
	bool		has_rest;		/* there are several of these */
} BatchQual;

extern BatchQual *qual_compile(VectorContext *context, List *clauses);
extern int	qual_apply_vectors(BatchQual *qual, TupleBatch *batch);
extern bool qual_row_passes(BatchQual *qual, TupleBatch *batch, int from, int row);
extern void qual_apply(BatchQual *qual, TupleBatch *batch);
extern int	qual_count_raising(const BatchQual *qual);

#endif
