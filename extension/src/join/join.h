/*
 * join.h
 *	  BatchJoin: a hash join whose outer side comes in batches.
 */
#ifndef BATCHEXEC_JOIN_H
#define BATCHEXEC_JOIN_H

#include "batchexec.h"

#define BATCH_JOIN_NAME	"BatchJoin"

/* custom_exprs of a BatchJoin: lists, over what they are evaluated on. */
enum BatchJoinExpressions
{
	BATCH_JOIN_OUTER_KEYS,		/* over the outer node's rows */
	BATCH_JOIN_INNER_KEYS,		/* over inner rows, as INDEX_VAR */
	BATCH_JOIN_CLAUSES,			/* over pairs, as INDEX_VAR */
	BATCH_JOIN_CONDITION		/* the keys' clauses, for EXPLAIN */
};

/* custom_private of a BatchJoin */
enum BatchJoinPrivate
{
	BATCH_JOIN_TYPE,			/* list of one JoinType */
	BATCH_JOIN_INNER_FLAGS,		/* of each column of a pair: is it an inner one? */
	BATCH_JOIN_ATTRIBUTES,		/* and its number there */
	BATCH_JOIN_OUTER_RELID		/* list of one: varno in the outer keys */
};

/* Does a join keep one row of a key? */
#define JOIN_KEEPS_ONE(type_)	((type_) == JOIN_SEMI || (type_) == JOIN_ANTI)

extern const CustomScanMethods batch_join_methods;

/* plan_join.c */
extern bool plan_is_batched(const Plan *plan);
extern bool plan_is_batched_scan(const Plan *plan);
extern int	batch_relid(const Plan *plan);
extern const char *join_clause_obstacle(const Node *clause);
extern const char *join_obstacle(const HashJoin *join);
extern const char *join_outer_obstacle(const HashJoin *join);
extern int	join_expression_size(const HashJoin *join);
extern CustomScan *join_to_batch(HashJoin *join, int *next_node_id);
extern Node *display_expression(const Plan *plan, Node *expression);

#endif
