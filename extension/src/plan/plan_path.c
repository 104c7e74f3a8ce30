/*
 * plan_path.c
 *	  What batches save, told to the planner.
 *
 * Sequential scans, and aggregations right over them, get paths with the costs
 * of their batched nodes, so that they are chosen where they win: before an
 * index-only scan, or for a hash join.  These are the planner's own paths rather
 * than custom ones: a CustomPath has no physical target list, so each of its rows
 * would be projected, and the plan that comes of it can always run without
 * batches.  The nodes are put in place when the plan is finished (plan.c).
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "catalog/pg_class.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/prep.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/selfuncs.h"

#include "aggregate.h"
#include "cost.h"
#include "group.h"
#include "batch_limits.h"
#include "plan.h"

#if PG_VERSION_NUM >= 160000
#define GROUP_CLAUSE(root_)	((root_)->processed_groupClause)
#define DISTINCT_CLAUSE(root_)	((root_)->processed_distinctClause)
#else
#define GROUP_CLAUSE(root_)	((root_)->parse->groupClause)
#define DISTINCT_CLAUSE(root_)	((root_)->parse->distinctClause)
#endif

static set_rel_pathlist_hook_type previous_pathlist_hook = NULL;
static create_upper_paths_hook_type previous_upper_hook = NULL;

/* Will what is being planned be batched? */
static bool plans_batches = false;

bool
path_set_planning(bool is_batched)
{
	const bool	before = plans_batches;

	plans_batches = is_batched;
	cost_forget_tables();
	cost_forget_paths();
	return before;
}

/* Will it? */
bool
path_is_planning(void)
{
	return plans_batches;
}

/* The leader works, too, but less the more workers it has to serve (as in core). */
static double
process_share(const Path *path)
{
	double		processes = path->parallel_workers;

	if (!path->parallel_aware || path->parallel_workers == 0)
		return 1;
	if (parallel_leader_participation && path->parallel_workers < 4)
		processes += 1.0 - 0.3 * path->parallel_workers;
	return 1 / processes;
}

/* May a table be read in batches, and is it large enough to gain by it? */
static bool
table_is_batchable(PlannerInfo *root, RelOptInfo *rel)
{
	const RangeTblEntry *entry;

	if (!IS_SIMPLE_REL(rel) || rel->rtekind != RTE_RELATION)
		return false;
	entry = planner_rt_fetch(rel->relid, root);
	if (entry->inh || entry->tablesample != NULL || rel->lateral_relids != NULL ||
		(entry->relkind != RELKIND_RELATION && entry->relkind != RELKIND_MATVIEW) ||
		rel->tuples * (cpu_tuple_cost - batchexec_cost_row) <= batchexec_cost_startup)
		return false;
	/* System columns, or the whole row; an UPDATE or DELETE takes a row's address. */
	for (AttrNumber attno = query_changes_rows(root->parse->commandType) ? 0 : rel->min_attr;
		 attno <= 0; attno++)
		if (!bms_is_empty(rel->attr_needed[attno - rel->min_attr]))
			return false;
	return cost_table_obstacle(entry->relid) == NULL;
}

/* Of the paths that need no value from another table. */
static Cost
cheapest_total(List *paths)
{
	Cost		cheapest = DBL_MAX;
	ListCell   *cell;

	foreach(cell, paths)
	{
		const Path *path = lfirst(cell);

		if (path->param_info == NULL)
			cheapest = Min(cheapest, path->total_cost);
	}
	return cheapest;
}

static bool
is_sequential_scan(const Path *path)
{
	return IsA(path, Path) && path->pathtype == T_SeqScan &&
		path->param_info == NULL;
}

/* Workers of the partial sequential scan among these paths; 0: there is none. */
static int
scan_workers(List *partial_paths)
{
	ListCell   *cell;

	foreach(cell, partial_paths)
		if (is_sequential_scan(lfirst(cell)))
			return ((Path *) lfirst(cell))->parallel_workers;
	return 0;
}

/* Is there no other way to read a table? */
static bool
is_scanned_only(const RelOptInfo *rel)
{
	ListCell   *cell;

	foreach(cell, rel->pathlist)
		if (!is_sequential_scan(lfirst(cell)))
			return false;
	return true;
}

/* A sequential scan at the cost of a BatchScan; NULL where that is no less. */
static Path *
batched_scan(PlannerInfo *root, RelOptInfo *rel, int workers)
{
	Path	   *path = create_seqscan_path(root, rel, NULL, workers);
	Cost		saved = cost_scan_saving(root, rel, process_share(path), false).as_scan;

	path->total_cost -= saved;
	return saved > 0 ? path : NULL;
}

/* A sequential scan of a table that is worth reading in batches, or NULL. */
Path *
path_sequential_scan(PlannerInfo *root, RelOptInfo *rel, bool is_partial)
{
	int			workers = is_partial ? scan_workers(rel->partial_pathlist) : 0;

	if ((is_partial && workers == 0) || !table_is_batchable(root, rel))
		return NULL;
	return create_seqscan_path(root, rel, NULL, workers);
}

/* What a sequential scan costs whose rows stay in batches; false where they can't. */
bool
path_cost_scan_in_batches(PlannerInfo *root, const Path *path, BatchedCost *cost)
{
	Path		by_row = *path;

	if (!is_sequential_scan(path) || !table_is_batchable(root, path->parent))
		return false;
	/* The path may have a batched cost already. */
	cost_seqscan(&by_row, root, path->parent, NULL);
	cost->startup = by_row.startup_cost;
	cost->total = by_row.total_cost -
		cost_scan_saving(root, path->parent, process_share(path), true).as_input;
	return true;
}

static void
add_batched_scans(PlannerInfo *root, RelOptInfo *rel, Index relid, RangeTblEntry *entry)
{
	Cost		cheapest;
	int			workers;
	Path	   *path;

	if (previous_pathlist_hook != NULL)
		previous_pathlist_hook(root, rel, relid, entry);
	if (!plans_batches)
		return;
	if (entry->rtekind == RTE_RELATION && !entry->inh)
		cost_remember_rows(entry->relid, rel);
	/* Without a filter nothing is gained; an index may be cheaper than the disk. */
	if (rel->baserestrictinfo == NIL || rel->pathlist == NIL)
		return;
	cheapest = cheapest_total(rel->pathlist);
	if (cheapest < seq_page_cost * rel->pages / 2 || cheapest <= cost_scan_least(rel) ||
		!table_is_batchable(root, rel))
		return;
	path = batched_scan(root, rel, 0);
	if (path == NULL ||
		(!is_scanned_only(rel) &&
		 !cost_is_least_buffered(root, cost_path_buffered(root, path), rel->pathlist)))
		return;
	add_path(rel, path);
	workers = scan_workers(rel->partial_pathlist);
	path = workers > 0 ? batched_scan(root, rel, workers) : NULL;
	if (path != NULL)
		add_partial_path(rel, path);
}

/* By so much costs have to differ to count as different, as in core. */
#define COST_FUZZ	1.01

/* What is known of an aggregation before its paths are made. */
typedef struct AggregationContext
{
	int			scanrelid;
	int			aggregates;
	int			row_aggregates; /* of arguments without a vector form */
	bool		has_distinct;
	bool		keeps_values;	/* so that workers can't compute a part of them */
	bool		depends_on_order;
	bool		is_batchable;
} AggregationContext;

static bool
look_at_aggregates(Node *node, void *context_)
{
	AggregationContext *context = context_;
	const Aggref *aggref = (const Aggref *) node;
	ListCell   *cell;

	if (node == NULL)
		return false;
	if (!IsA(node, Aggref))
		return expression_tree_walker(node, look_at_aggregates, context_);
	context->aggregates++;
	context->has_distinct |= (aggref->aggdistinct != NIL);
	context->depends_on_order |= !aggregate_takes_any_order(aggref);
	context->keeps_values |= aggregate_keeps_values(aggref);
	if (aggregate_obstacle(aggref) != NULL ||
		expression_size(node, NIL) > EXPRESSION_NODES_MAX)
		context->is_batchable = false;
	else
		foreach(cell, aggref->args)
		{
			const Expr *argument = lfirst_node(TargetEntry, cell)->expr;

			if (IsA(argument, Var) ||
				vector_form_exists(argument, context->scanrelid))
				continue;
			context->row_aggregates++;
			break;
		}
	return !context->is_batchable;
}

/*
 * Can an aggregation with DISTINCT arguments go without the Sort that the stock
 * server needs?  See order_obstacle in plan_agg.c.
 */
static bool
distinct_is_batchable(PlannerInfo *root, const GroupPathExtraData *extra,
					  const AggregationContext *context)
{
	ListCell   *cell;

	if (root->parse->groupingSets != NIL ||
		(GROUP_CLAUSE(root) != NIL &&
		 (root->group_pathkeys == NIL || !(extra->flags & GROUPING_CAN_USE_SORT))))
		return false;
	foreach(cell, GROUP_CLAUSE(root))
		if (key_is_ambiguous(get_sortgroupclause_expr(lfirst(cell), extra->targetList)))
			return false;
	/* Only then there is a Sort. */
	return root->group_pathkeys == NIL || !context->depends_on_order;
}

/* Can the aggregates and keys of a query be computed from batches? */
static bool
aggregation_is_batchable(PlannerInfo *root, const RelOptInfo *grouped,
						 const GroupPathExtraData *extra,
						 AggregationContext *context)
{
	const Query *query = root->parse;
	ListCell   *cell;

	/* Set-returning functions are computed between the scan and the groups. */
	if (query->hasTargetSRFs ||
		(GROUP_CLAUSE(root) == NIL && !query->hasAggs) ||
		list_length(GROUP_CLAUSE(root)) > GROUP_KEYS_MAX)
		return false;
	foreach(cell, GROUP_CLAUSE(root))
	{
		const SortGroupClause *clause = lfirst_node(SortGroupClause, cell);
		const Node *key = get_sortgroupclause_expr((SortGroupClause *) clause,
												   extra->targetList);

		if (key_obstacle((const Expr *) key, clause->eqop, exprCollation(key)) != NULL)
			return false;
	}
	context->is_batchable = true;
	(void) look_at_aggregates((Node *) grouped->reltarget->exprs, context);
	if (context->is_batchable)
		(void) look_at_aggregates(extra->havingQual, context);
	return context->is_batchable &&
		(context->has_distinct ? distinct_is_batchable(root, extra, context) :
		 GROUP_CLAUSE(root) == NIL || (extra->flags & GROUPING_CAN_USE_HASH));
}

/*
 * Add what a BatchAgg saves on reading the tables of a path, next to what their
 * scans cost now; false where it is not made of sequential scans alone.
 */
static bool
add_input_saving(PlannerInfo *root, Path *path, Cost *saved)
{
	RelOptInfo *rel = path->parent;
	BatchedCost cost;
	ListCell   *cell;

	if (IsA(path, ProjectionPath))
		return add_input_saving(root, ((ProjectionPath *) path)->subpath, saved);
	if (IsA(path, AppendPath))
	{
		List	   *parts = ((AppendPath *) path)->subpaths;

		if (parts == NIL || list_length(parts) > AGG_TABLES_MAX ||
			path->param_info != NULL)
			return false;
		foreach(cell, parts)
			if (!add_input_saving(root, lfirst(cell), saved))
				return false;
		return true;
	}
	if (!is_sequential_scan(path) || !IS_SIMPLE_REL(rel) ||
		rel->rtekind != RTE_RELATION)
		return false;
	/* A small part of a partitioned table neither gains nor hinders. */
	if (path_cost_scan_in_batches(root, path, &cost))
		*saved += path->total_cost - cost.total;
	return true;
}

/* The path of an aggregation's input that reads whole tables. */
static Path *
sequential_input(PlannerInfo *root, RelOptInfo *input)
{
	Cost		saved = 0;
	Path	   *path;
	ListCell   *cell;

	foreach(cell, input->pathlist)
		if (add_input_saving(root, lfirst(cell), &saved))
			return lfirst(cell);
	/* An index was cheaper than a scan by row. */
	if (!table_is_batchable(root, input))
		return NULL;
	path = create_seqscan_path(root, input, NULL, 0);
	return apply_projection_to_path(root, input, path, input->reltarget);
}

/* How many groups the planner reckons with. */
static double
count_groups(PlannerInfo *root, const RelOptInfo *grouped, const Path *input,
			 const GroupPathExtraData *extra)
{
	ListCell   *cell;

	if (GROUP_CLAUSE(root) == NIL)
		return 1;
	foreach(cell, grouped->pathlist)
		if (IsA(lfirst(cell), AggPath))
			return ((AggPath *) lfirst(cell))->numGroups;
	return estimate_num_groups(root,
							   get_sortgrouplist_exprs(GROUP_CLAUSE(root),
													   extra->targetList),
							   input->rows, NULL, NULL);
}

/* Lower the cost of an aggregation to that of a BatchAgg; false: it saves nothing. */
static bool
save_by_batches(PlannerInfo *root, Path *path, Path *input, double group_count,
				const AggregationContext *context)
{
	const Cost	agg_cost = path->total_cost - input->total_cost;
	Cost		saved = 0;

	/* Groups are sorted, instead of rows. */
	if (IsA(input, SortPath))
	{
		Path	   *unsorted = ((SortPath *) input)->subpath;
		double		groups = Max(group_count, 2);

		saved = input->total_cost - unsorted->total_cost -
			2 * cpu_operator_cost * groups * log2(groups);
		saved = Max(saved, 0);
		input = unsorted;
	}
	if (!add_input_saving(root, input, &saved) || saved <= 0)
		return false;
	saved += cost_agg_saving(agg_cost, group_count, context->row_aggregates,
							 context->aggregates);
	path->startup_cost = Max(path->startup_cost - saved, 0);
	path->total_cost = Max(path->total_cost - saved, path->startup_cost);
	return true;
}

/*
 * Batches read whole tables: an index may be the cheaper way to what is in memory.
 * Of paths that cost the same, as core sees it, batches are the better one.
 */
static void
add_if_cheaper(PlannerInfo *root, RelOptInfo *grouped, Path *path)
{
	if (cost_is_least_buffered(root, path->total_cost / COST_FUZZ, grouped->pathlist))
		add_path(grouped, path);
}

/* Core's path of an aggregation over this input; NULL where it has found no use for one. */
static AggPath *
copy_aggregation(const RelOptInfo *grouped, const Path *input, AggStrategy strategy)
{
	ListCell   *cell;

	foreach(cell, grouped->pathlist)
	{
		const AggPath *agg = lfirst(cell);
		AggPath    *copy;

		if (!IsA(agg, AggPath) || agg->subpath != input ||
			agg->aggstrategy != strategy || agg->aggsplit != AGGSPLIT_SIMPLE)
			continue;
		copy = makeNode(AggPath);
		memcpy(copy, agg, sizeof(AggPath));
		return copy;
	}
	return NULL;
}

static AggPath *
make_aggregation(PlannerInfo *root, RelOptInfo *grouped, Path *input,
				 const GroupPathExtraData *extra, AggStrategy strategy,
				 double group_count)
{
	AggClauseCosts costs;

	MemSet(&costs, 0, sizeof(costs));
	if (root->parse->hasAggs)
		get_agg_clause_costs(root, AGGSPLIT_SIMPLE, &costs);
	return create_agg_path(root, grouped, input, grouped->reltarget, strategy,
						   AGGSPLIT_SIMPLE, GROUP_CLAUSE(root),
						   (List *) extra->havingQual, &costs, group_count);
}

static void
add_serial_aggregation(PlannerInfo *root, RelOptInfo *grouped, Path *input,
					   const GroupPathExtraData *extra,
					   const AggregationContext *context, double group_count)
{
	const AggStrategy strategy = GROUP_CLAUSE(root) != NIL ? AGG_HASHED : AGG_PLAIN;
	AggPath    *agg = copy_aggregation(grouped, input, strategy);

	if (agg == NULL)
		agg = make_aggregation(root, grouped, input, extra, strategy, group_count);
	if (save_by_batches(root, &agg->path, agg->subpath, agg->numGroups, context))
		add_if_cheaper(root, grouped, (Path *) agg);
}

/*
 * An aggregation with DISTINCT arguments: over a Sort, as the stock server does it.
 * Its BatchAgg does without.
 */
static void
add_distinct_aggregation(PlannerInfo *root, RelOptInfo *grouped, Path *input,
						 const GroupPathExtraData *extra,
						 const AggregationContext *context, double group_count)
{
	const AggStrategy strategy = GROUP_CLAUSE(root) != NIL ? AGG_SORTED : AGG_PLAIN;
	AggPath    *agg;

	if (root->group_pathkeys != NIL)
		input = (Path *) create_sort_path(root, grouped, input, root->group_pathkeys, -1.0);
	agg = make_aggregation(root, grouped, input, extra, strategy, group_count);
	if (save_by_batches(root, &agg->path, agg->subpath, group_count, context))
		add_if_cheaper(root, grouped, (Path *) agg);
}

/* Are all sets of a path hashed, or without keys? */
static bool
sets_need_no_order(const GroupingSetsPath *path)
{
	ListCell   *cell;

	foreach(cell, path->rollups)
	{
		const RollupData *rollup = lfirst_node(RollupData, cell);

		if (!rollup->is_hashed && linitial(rollup->gsets) != NIL)
			return false;
	}
	return path->aggstrategy != AGG_SORTED;
}

static double
groups_of_sets(const GroupingSetsPath *path)
{
	double		groups = 0;
	ListCell   *cell;

	foreach(cell, path->rollups)
		groups += lfirst_node(RollupData, cell)->numGroups;
	return groups;
}

/* Lower the costs of grouping sets that core hashes. */
static void
add_grouping_sets(PlannerInfo *root, RelOptInfo *grouped, const AggregationContext *context)
{
	GroupingSetsPath *cheapest = NULL;
	GroupingSetsPath *copy;
	ListCell   *cell;

	foreach(cell, grouped->pathlist)
	{
		GroupingSetsPath *path = lfirst(cell);

		if (IsA(path, GroupingSetsPath) && sets_need_no_order(path) &&
			list_length(path->rollups) <= GROUPING_SETS_MAX &&
			(cheapest == NULL || path->path.total_cost < cheapest->path.total_cost))
			cheapest = path;
	}
	if (cheapest == NULL ||
		!cost_groups_fit_memory(groups_of_sets(cheapest), grouped->reltarget->width,
								context->aggregates))
		return;
	copy = makeNode(GroupingSetsPath);
	memcpy(copy, cheapest, sizeof(GroupingSetsPath));
	if (save_by_batches(root, &copy->path, copy->subpath, groups_of_sets(copy), context))
		add_if_cheaper(root, grouped, &copy->path);
}

/* The partial aggregations that core has found, of the same tables; or NULL. */
static RelOptInfo *
partially_grouped(PlannerInfo *root, const RelOptInfo *grouped)
{
	ListCell   *cell;

	foreach(cell, root->upper_rels[UPPERREL_PARTIAL_GROUP_AGG])
		if (bms_equal(((RelOptInfo *) lfirst(cell))->relids, grouped->relids))
			return lfirst(cell);
	return NULL;
}

static void
add_parallel_aggregation(PlannerInfo *root, RelOptInfo *grouped, AggPath *partial,
						 RelOptInfo *partial_rel,
						 const GroupPathExtraData *extra,
						 const AggregationContext *context, double group_count)
{
	AggPath    *agg = makeNode(AggPath);
	double		rows = partial->path.rows * partial->path.parallel_workers;
	Path	   *gather;

	memcpy(agg, partial, sizeof(AggPath));
	if (!save_by_batches(root, &agg->path, agg->subpath, agg->numGroups, context))
		return;
	gather = (Path *) create_gather_path(root, partial_rel, (Path *) agg,
										 partial_rel->reltarget, NULL, &rows);
	agg = create_agg_path(root, grouped, gather, grouped->reltarget,
						  GROUP_CLAUSE(root) != NIL ? AGG_HASHED : AGG_PLAIN,
						  AGGSPLIT_FINAL_DESERIAL, GROUP_CLAUSE(root),
						  (List *) extra->havingQual, &extra->agg_final_costs,
						  group_count);
	add_if_cheaper(root, grouped, &agg->path);
}

static void
add_parallel_aggregations(PlannerInfo *root, RelOptInfo *grouped,
						  const GroupPathExtraData *extra,
						  const AggregationContext *context, double group_count)
{
	RelOptInfo *partial = partially_grouped(root, grouped);
	ListCell   *cell;

	if (partial == NULL || !extra->partial_costs_set || !grouped->consider_parallel)
		return;
	foreach(cell, partial->partial_pathlist)
	{
		AggPath    *agg = lfirst(cell);

		if (IsA(agg, AggPath) && agg->aggstrategy != AGG_SORTED &&
			agg->path.parallel_workers > 0)
			add_parallel_aggregation(root, grouped, agg, partial, extra, context,
									 group_count);
	}
}

/* SELECT DISTINCT: groups without aggregates. */
static void
add_batched_distinct(PlannerInfo *root, RelOptInfo *input, RelOptInfo *distinct)
{
	const Query *query = root->parse;
	const AggregationContext context = {.is_batchable = true};
	List	   *clauses = DISTINCT_CLAUSE(root);
	AggPath    *agg;
	Path	   *path;
	double		group_count;
	ListCell   *cell;

	if (query->hasDistinctOn || query->hasTargetSRFs || !enable_hashagg ||
		clauses == NIL || list_length(clauses) > GROUP_KEYS_MAX || distinct->pathlist == NIL)
		return;
	foreach(cell, clauses)
	{
		const SortGroupClause *clause = lfirst_node(SortGroupClause, cell);
		const Node *key = get_sortgroupclause_expr((SortGroupClause *) clause,
												   root->processed_tlist);

		if (!clause->hashable ||
			key_obstacle((const Expr *) key, clause->eqop, exprCollation(key)) != NULL)
			return;
	}
	path = sequential_input(root, input);
	group_count = ((Path *) linitial(distinct->pathlist))->rows;
	if (path == NULL || !cost_groups_fit_memory(group_count, input->reltarget->width, 0))
		return;
	agg = create_agg_path(root, distinct, path, path->pathtarget, AGG_HASHED,
						  AGGSPLIT_SIMPLE, clauses, NIL, NULL, group_count);
	if (save_by_batches(root, &agg->path, path, group_count, &context))
		add_if_cheaper(root, distinct, &agg->path);
}

static void
add_batched_aggregations(PlannerInfo *root, UpperRelationKind stage,
						 RelOptInfo *input, RelOptInfo *grouped, void *extra_)
{
	const GroupPathExtraData *extra = extra_;
	AggregationContext context = {.is_batchable = false};
	Path	   *path;
	double		group_count;
	bool		fits_memory;

	if (previous_upper_hook != NULL)
		previous_upper_hook(root, stage, input, grouped, extra_);
	if (!plans_batches ||
		(stage != UPPERREL_DISTINCT && (stage != UPPERREL_GROUP_AGG || extra == NULL)) ||
		!IS_SIMPLE_REL(input) || input->rtekind != RTE_RELATION || IS_DUMMY_REL(input))
		return;
	if (stage == UPPERREL_DISTINCT)
	{
		add_batched_distinct(root, input, grouped);
		return;
	}
	context.scanrelid = input->relid;
	if (!aggregation_is_batchable(root, grouped, extra, &context))
		return;
	if (root->parse->groupingSets != NIL)
	{
		add_grouping_sets(root, grouped, &context);
		return;
	}
	path = sequential_input(root, input);
	if (path == NULL)
		return;
	group_count = count_groups(root, grouped, path, extra);
	fits_memory = cost_groups_fit_memory(group_count, grouped->reltarget->width,
										 context.aggregates);
	if (fits_memory && context.has_distinct)
		add_distinct_aggregation(root, grouped, path, extra, &context, group_count);
	else if (fits_memory)
		add_serial_aggregation(root, grouped, path, extra, &context, group_count);
	if (!context.keeps_values)
		add_parallel_aggregations(root, grouped, extra, &context, group_count);
}

void
path_install_hooks(void)
{
	previous_pathlist_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = add_batched_scans;
	previous_upper_hook = create_upper_paths_hook;
	create_upper_paths_hook = add_batched_aggregations;
	join_path_install_hook();
}
