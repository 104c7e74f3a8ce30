/*
 * plan.h
 *	  Which parts of a finished plan run in batches.
 */
#ifndef BATCHEXEC_PLAN_H
#define BATCHEXEC_PLAN_H

#include "nodes/pathnodes.h"

#include "batchexec.h"
#include "group.h"

typedef struct PlanContext
{
	PlannedStmt *statement;
	const char *obstacle;		/* of the whole statement, or NULL */
	const char *insert_obstacle;	/* of inserting its rows, or NULL */
	int			next_node_id;
	bool		wants_reasons;	/* EXPLAIN shows them, or one is an error */
	List	   *reasons;		/* C strings: what was not batched, and why */
	List	   *scan_reasons;	/* those of them that concern table scans */
	List	   *join_reasons;	/* pairs of a hash join and that of them that concerns its input */
	Cost		batched_cost;	/* of the nodes that were replaced */
	RowDemand  *subplan_demands;	/* of each of the statement's subplans */
	int			expression_nodes;	/* of all nodes that were replaced */
} PlanContext;

/* plan_reason.c */
extern void note_reason(PlanContext *context, const char *kind, const char *obstacle);
extern void note_scan_reason(PlanContext *context, const Scan *scan, const char *obstacle);
extern void note_bitmap_scan_reason(PlanContext *context, const BitmapHeapScan *scan,
									const char *obstacle);
extern void note_input(PlanContext *context, const Plan *plan);
extern void forget_join_reason(PlanContext *context, const Plan *join);

/* plan.c */
extern const char *size_obstacle(PlanContext *context, int nodes);
extern const char *agg_of_batches_obstacle(PlanContext *context, Agg *agg);

/* plan_gather.c */
extern bool agg_may_gather(Agg *agg);
extern void gather_rows(PlanContext *context, Agg *agg);

/* plan_size.c */
extern TargetEntry *target_of_number(List *targets, AttrNumber number);
extern int	expression_size(Node *expression, List *outer_targets);

/* plan_scan.c */
extern const char *table_obstacle(Oid relid);
extern void scan_note_sort(CustomScan *batch, const Sort *sort);

/* How an aggregation forms its groups. */
typedef struct Grouping
{
	bool		has_sets;		/* GROUPING SETS, ROLLUP or CUBE */
	int			key_count;		/* of all sets */
	AttrNumber	columns[GROUP_KEYS_MAX];	/* of the input */
	Oid			operators[GROUP_KEYS_MAX];
	Oid			collations[GROUP_KEYS_MAX];
	List	   *sets;			/* as in BATCH_AGG_SETS */
} Grouping;

/* plan_grouping.c */
extern Plan *agg_below(const Agg *agg);
extern bool agg_is_over_sort(const Agg *agg);
extern bool key_is_ambiguous(const Node *key);
extern const char *grouping_of_agg(const Agg *agg, Grouping *grouping);
extern int	grouping_key(const Grouping *grouping, AttrNumber column);
extern List *grouping_values(const Grouping *grouping, const GroupingFunc *call);
extern List *grouping_order(const Grouping *grouping, const Agg *agg);
extern double agg_group_estimate(const Agg *agg);

/* Of a path whose rows stay in batches */
typedef struct BatchedCost
{
	Cost		startup;
	Cost		total;
} BatchedCost;

/* What holds while a statement is planned, and not for one that a function runs meanwhile. */
typedef struct PlanningState
{
	bool		plans_batches;	/* it will be batched */
	bool		leaves_out_merge_joins;
	List	   *hinted_tables;	/* see plan_path.c */
} PlanningState;

/* plan_path.c: the first returns what was set before */
extern PlanningState path_set_planning(PlanningState state);
extern bool path_is_planning(void);
extern bool path_table_is_small(const RelOptInfo *rel);
extern bool path_is_table_scan(const Path *path);
extern bool path_has_table_scan(PlannerInfo *root, RelOptInfo *rel);
extern Path *path_table_scan(PlannerInfo *root, RelOptInfo *rel, bool is_partial);
extern bool path_cost_scan_in_batches(PlannerInfo *root, const Path *path, BatchedCost *cost);
extern void path_install_hooks(void);

/* plan_agg_path.c */
extern void agg_path_install_hook(void);

/* composite_key.c */
extern void composite_keys_add(PlannerInfo *root);
extern void composite_keys_correct_lookups(PlannerInfo *root, RelOptInfo *rel);

/* plan_merge_join.c */
extern bool merge_joins_leave_out(bool leave_out);
extern bool merge_joins_are_optional(PlannerInfo *root, const List *rels);
extern bool merge_join_has_won(const List *joins);

/* plan_join_path.c */
extern void join_path_install_hook(void);

#endif
