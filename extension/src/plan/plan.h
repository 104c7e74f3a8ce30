/*
 * plan.h
 *	  Which parts of a finished plan run in batches.
 */
#ifndef BATCHEXEC_PLAN_H
#define BATCHEXEC_PLAN_H

#include "batchexec.h"

typedef struct PlanContext
{
	PlannedStmt *statement;
	const char *obstacle;		/* of the whole statement, or NULL */
	int			next_node_id;
	bool		wants_reasons;	/* EXPLAIN shows them, or one is an error */
	List	   *reasons;		/* C strings: what was not batched, and why */
	List	   *scan_reasons;	/* those of them that concern table scans */
	Cost		batched_cost;	/* of the nodes that were replaced */
	RowDemand  *subplan_demands;	/* of each of the statement's subplans */
	int			expression_nodes;	/* of all nodes that were replaced */
} PlanContext;

/* plan_size.c */
extern TargetEntry *target_of_number(List *targets, AttrNumber number);
extern int	expression_size(Node *expression, List *outer_targets);

/* plan_scan.c */
extern const char *table_obstacle(Oid relid);
extern void scan_note_sort(CustomScan *batch, const Sort *sort);

/* plan_agg.c */
extern const char *key_obstacle(const Expr *key, Oid equality, Oid collation);

/* plan_path.c: returns what was set before */
extern bool path_set_planning(bool is_batched);
extern void path_install_hooks(void);

#endif
