/*
 * aggregate.h
 *	  The aggregates that run over batches, and their transition states.
 */
#ifndef BATCHEXEC_AGGREGATE_H
#define BATCHEXEC_AGGREGATE_H

#include "nodes/primnodes.h"

#include "expr.h"

typedef struct Aggregate Aggregate;
struct GroupKey;
struct GroupTable;

/*
 * One aggregate's functions.  A state is state_bytes of zeroes before its
 * first row.  Selections hold no NULL, but for those of accumulate_present
 * and accumulate_present_groups.
 */
typedef struct AggregateOps
{
	Size		state_bytes;
	/* the selected rows into one state */
	void		(*accumulate) (const Aggregate *aggregate, void *state,
							   const Vector *vector, const Selection *selection);
	/* the selected rows that are not NULL into one state; may be NULL */
	void		(*accumulate_present) (const Aggregate *aggregate, void *state,
									   const Vector *vector,
									   const Selection *selection);
	/* the same into the states of their groups; may be NULL */
	void		(*accumulate_present_groups) (const Aggregate *aggregate,
											  char **groups, const Vector *vector,
											  const Selection *selection);
	/* each selected row into the state of its group */
	void		(*accumulate_groups) (const Aggregate *aggregate, char **groups,
									  const Vector *vector,
									  const Selection *selection);
	/*
	 * of an aggregate of two arguments, instead: the selected rows into one state,
	 * or, where groups is set, into those of their groups
	 */
	void		(*accumulate_pairs) (const Aggregate *aggregate, void *state,
									 char **groups, const Vector *first,
									 const Vector *second,
									 const Selection *selection);
	Datum		(*finish) (const Aggregate *aggregate, const void *state,
						   bool *is_null);
	/* The transition value as core would pass it to its combine function; may be NULL. */
	Datum		(*finish_partial) (const Aggregate *aggregate,
								   const void *state, bool *is_null);
	bool		takes_pointers; /* of varlena arguments, rather than values */
	bool		takes_any_order;	/* of rows: the result is the same */
	bool		keeps_values;	/* of all rows, of a first argument alone: states grow with the rows */
} AggregateOps;

typedef struct AggregateArgument
{
	Oid			type;			/* InvalidOid: there is none */
	ValueKind	kind;
	VectorExpr *expression;		/* NULL: by row */
	RowExpression row;
	Vector		row_vector;		/* values evaluated by row */
} AggregateArgument;

/* Arguments that are evaluated by row together. */
typedef struct RowArguments
{
	AggregateArgument **arguments;
	int			count;
	RowExpressions expressions; /* the same */
} RowArguments;

/* The groups of a batch's rows, in each of some grouping sets. */
typedef struct RowGroups
{
	char	  **const *of_sets; /* of each, of each row */
	int			set_count;		/* 0: there are no groups */
	bool		may_be_missing; /* a row may have a group in some sets only */
} RowGroups;

typedef struct DistinctFiles DistinctFiles;

struct Aggregate
{
	const AggregateOps *ops;
	const Aggref *aggref;
	bool		is_partial;
	bool		is_minimum;		/* min, bool_and; else max, bool_or */
	int			state_offset;	/* within a group */
	AggregateArgument argument;
	AggregateArgument second;
	BatchQual  *filter;
	struct GroupKey *distinct_keys; /* NULL: not DISTINCT */
	struct GroupTable *distinct;	/* the values that were met */
	DistinctFiles **distinct_files; /* and those that did not fit in memory; all tables share them */
	MemoryContext memory;		/* of values that states point to */
};

/*
 * The row updates of an aggregate as two functions: into one state, kept in
 * registers, and into the states of groups.
 */
#define DEFINE_ACCUMULATE(name_, state_type_, ...) \
static void \
name_(const Aggregate *aggregate, void *state_, const Vector *vector, \
	  const Selection *selection) \
{ \
	const Datum *values = vector->values; \
	state_type_ copy_ = *(state_type_ *) state_; \
	state_type_ *state = &copy_; \
	(void) aggregate; \
	(void) values; \
	FOR_SELECTED(row, selection, __VA_ARGS__); \
	*(state_type_ *) state_ = copy_; \
} \
static void \
name_##_groups(const Aggregate *aggregate, char **groups, \
			   const Vector *vector, const Selection *selection) \
{ \
	const Datum *values = vector->values; \
	const int	offset_ = aggregate->state_offset; \
	(void) values; \
	FOR_SELECTED(row, selection, \
				 state_type_ *state = (state_type_ *) (groups[row] + offset_); \
				 __VA_ARGS__); \
}

/* aggregate.c */
extern const AggregateOps *aggregate_lookup(Oid function);
extern const char *aggregate_obstacle(const Aggref *aggref);
extern bool aggregate_takes_any_order(const Aggref *aggref);
extern bool aggregate_keeps_values(const Aggref *aggref);
extern Aggregate *aggregate_compile(VectorContext *context,
									const Aggref *aggref);
extern RowArguments row_arguments_of(VectorContext *context, Aggregate *const *aggregates, int count);
extern void row_arguments_evaluate(RowArguments *together);
extern void aggregate_accumulate(Aggregate *aggregate, VectorContext *context,
								 void *state, const RowGroups *groups);
extern Datum aggregate_finish(const Aggregate *aggregate, const void *state,
							  bool *is_null);

/* aggregate_collect.c */
extern const char *collect_obstacle(const Aggref *aggref, const AggregateOps *ops);

/* distinct.c */
extern const char *distinct_obstacle(const Aggref *aggref, const AggregateOps *ops);
extern void distinct_compile(Aggregate *aggregate, VectorContext *context);
extern void distinct_begin(Aggregate *aggregate, bool is_grouped);
extern void distinct_share(Aggregate *aggregate, const Aggregate *first);
extern void distinct_reset(Aggregate *aggregate);
extern void distinct_note_groups(Aggregate *aggregate, char **groups,
								 const Selection *selection);
extern const Vector *distinct_select(Aggregate *aggregate, VectorContext *context,
									 char **groups, Selection *selection,
									 uint16 *rows);

/* distinct_files.c */
extern void distinct_files_begin(Aggregate *aggregate, Size memory_limit_bytes);
extern bool distinct_files_are_written(const Aggregate *aggregate);
extern void distinct_files_write(Aggregate *aggregate, VectorContext *context, char **groups,
								 Selection *selection, uint16 *rows);
extern int	distinct_files_finish(Aggregate *aggregate, VectorContext *context, void *state,
								  Size memory_limit_bytes, int64 *blocks);
extern void distinct_files_end(Aggregate *aggregate);

/* replay.c */

/* Everything that an aggregation evaluates for a row, in stock's order. */
typedef struct RowEvaluation
{
	BatchQual  *qual;
	struct GroupKey *keys;
	int			key_count;
	Aggregate **aggregates;
	int			aggregate_count;
} RowEvaluation;

/* Can more than one of the expressions fail? */
extern bool replay_is_needed(const RowEvaluation *evaluation);

/*
 * After an error within a batch: evaluate these rows one by one, and raise what
 * is met first.  Returns where no row raises an error.
 */
extern void replay_batch(const RowEvaluation *evaluation, TupleBatch *batch,
						 const Selection *selection, bool is_filtered);

/* aggregate_variance.c: call one of core's functions, whose result may be NULL */
extern Datum aggregate_call_final(PGFunction function, Datum argument, bool *is_null);

/* aggregate_*.c */
extern const AggregateOps count_ops;
extern const AggregateOps sum_integer_ops;
extern const AggregateOps average_integer_ops;
extern const AggregateOps sum_int8_ops;
extern const AggregateOps average_int8_ops;
extern const AggregateOps sum_float_ops;
extern const AggregateOps average_float_ops;
extern const AggregateOps sum_numeric_ops;
extern const AggregateOps average_numeric_ops;
extern const AggregateOps var_pop_integer_ops;
extern const AggregateOps var_samp_integer_ops;
extern const AggregateOps stddev_pop_integer_ops;
extern const AggregateOps stddev_samp_integer_ops;
extern const AggregateOps var_pop_float_ops;
extern const AggregateOps var_samp_float_ops;
extern const AggregateOps stddev_pop_float_ops;
extern const AggregateOps stddev_samp_float_ops;
extern const AggregateOps corr_ops;
extern const AggregateOps covar_pop_ops;
extern const AggregateOps covar_samp_ops;
extern const AggregateOps regr_avgx_ops;
extern const AggregateOps regr_avgy_ops;
extern const AggregateOps regr_intercept_ops;
extern const AggregateOps regr_r2_ops;
extern const AggregateOps regr_slope_ops;
extern const AggregateOps regr_sxx_ops;
extern const AggregateOps regr_sxy_ops;
extern const AggregateOps regr_syy_ops;
extern const AggregateOps array_ops;
extern const AggregateOps string_ops;
extern const AggregateOps minimum_integer_ops;
extern const AggregateOps minimum_float_ops;
extern const AggregateOps minimum_varlena_ops;

#endif
