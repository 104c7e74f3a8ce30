/*
 * plan_agg_path.c
 *	  What batches save on aggregations over tables, told to the planner: of GROUP BY,
 *	  DISTINCT and UNION.
 */
#include "postgres.h"

#include <math.h>

#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/planner.h"
#include "optimizer/prep.h"
#include "optimizer/tlist.h"
#include "utils/selfuncs.h"

#include "aggregate.h"
#include "batch_limits.h"
#include "cost.h"
#include "group.h"
#include "plan.h"
#include "server.h"
#include "walk.h"

/* Costs that differ by less count as the same in core, and what makes one of them surely the less. */
#define COST_FUZZ	1.01
#define COST_MARGIN	1.0101

static create_upper_paths_hook_type previous_upper_hook = NULL;

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
	double		memories;		/* that the groups take; above 1, rows of others wait in files */
} AggregationContext;

/* Are an aggregate's arguments, if it has any, columns as they are? */
static bool
takes_columns(const Aggref *aggref)
{
	ListCell   *cell;

	foreach(cell, aggref->args)
		if (!IsA(lfirst_node(TargetEntry, cell)->expr, Var))
			return false;
	return aggref->aggfilter == NULL;
}

static bool
look_at_aggregates(Node *node, void *context_)
{
	AggregationContext *context = context_;
	const Aggref *aggref = (const Aggref *) node;
	ListCell   *cell;

	if (node == NULL)
		return false;
	if (!IsA(node, Aggref))
		return walk_below(node, look_at_aggregates, context_);
	context->aggregates++;
	context->has_distinct |= (aggref->aggdistinct != NIL);
	context->depends_on_order |= !aggregate_takes_any_order(aggref);
	context->keeps_values |= aggregate_keeps_values(aggref);
	if (aggregate_obstacle(aggref) != NULL ||
		(!takes_columns(aggref) && expression_size(node, NIL) > EXPRESSION_NODES_MAX))
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

	/*
	 * Set-returning functions are computed between the scan and the groups.  Of keys that are all
	 * equal to constants core has left none, yet there is no group without a row.
	 */
	if (query->hasTargetSRFs ||
		(GROUP_CLAUSE(root) == NIL &&
		 (!query->hasAggs || (query->groupClause != NIL && query->groupingSets == NIL))) ||
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

/* Does an aggregation's input read a foreign table? */
static bool
reads_foreign_table(const Path *path)
{
	ListCell   *cell;

	if (IsA(path, ProjectionPath))
		return reads_foreign_table(((const ProjectionPath *) path)->subpath);
	if (IsA(path, SubqueryScanPath))
		return reads_foreign_table(((const SubqueryScanPath *) path)->subpath);
	if (IsA(path, AppendPath))
		foreach(cell, ((const AppendPath *) path)->subpaths)
			if (reads_foreign_table(lfirst(cell)))
				return true;
	return path->parent->fdwroutine != NULL;
}

/*
 * Add what a BatchAgg saves on reading the tables of a path, next to what their
 * scans cost now; false where it is not made of scans of whole tables alone, or where
 * workers are to share a foreign one.  Without a sum to add to it only says that.
 */
static bool
add_input_saving(PlannerInfo *root, Path *path, Cost *saved)
{
	RelOptInfo *rel = path->parent;
	BatchedCost cost;
	ListCell   *cell;

	if (IsA(path, ProjectionPath))
		return add_input_saving(root, ((ProjectionPath *) path)->subpath, saved);
	/* A part of a UNION. */
	if (IsA(path, SubqueryScanPath))
		return rel->subroot != NULL &&
			add_input_saving(rel->subroot, ((SubqueryScanPath *) path)->subpath, saved);
	if (IsA(path, AppendPath))
	{
		List	   *parts = ((AppendPath *) path)->subpaths;

		if (parts == NIL || list_length(parts) > AGG_TABLES_MAX ||
			path->param_info != NULL)
			return false;
		foreach(cell, parts)
			if ((path->parallel_aware && reads_foreign_table(lfirst(cell))) ||
				!add_input_saving(root, lfirst(cell), saved))
				return false;
		return true;
	}
	if (!path_is_table_scan(path) || !IS_SIMPLE_REL(rel) ||
		rel->rtekind != RTE_RELATION)
		return false;
	/* A small part of a partitioned table neither gains nor hinders. */
	if (saved != NULL && path_cost_scan_in_batches(root, path, &cost))
		*saved += path->total_cost - cost.total;
	return true;
}

/* The path of an aggregation's input that reads whole tables. */
static Path *
sequential_input(PlannerInfo *root, RelOptInfo *input)
{
	Path	   *path;
	ListCell   *cell;

	foreach(cell, input->pathlist)
		if (add_input_saving(root, lfirst(cell), NULL))
			return lfirst(cell);
	/* An index was cheaper than a scan by row. */
	path = path_table_scan(root, input, false);
	return path == NULL ? NULL :
		apply_projection_to_path(root, input, path, input->reltarget);
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

/* Of core's cost of hashed groups, what stands for files: groups of sorted rows are charged the rest. */
static Cost
core_cost_of_files(PlannerInfo *root, const AggPath *agg, const Path *input,
				   const AggregationContext *context)
{
	AggClauseCosts costs;
	Path		sorted = agg->path;

	if (context->memories <= 1 || !IsA(agg, AggPath) || agg->aggstrategy != AGG_HASHED)
		return 0;
	MemSet(&costs, 0, sizeof(costs));
	if (context->aggregates > 0)
		get_agg_clause_costs(root, AGGSPLIT_SIMPLE, &costs);
	cost_agg(&sorted, root, AGG_SORTED, &costs, list_length(agg->groupClause), agg->numGroups,
			 agg->qual, DISABLED_NODES(input) input->startup_cost, input->total_cost, input->rows,
			 input->pathtarget->width);
	return Max(agg->path.total_cost - sorted.total_cost, 0);
}

/* What it costs to keep rows in files, whose groups do not fit in memory. */
static Cost
cost_files_of_groups(const Path *input, double memories)
{
	if (memories <= 1)
		return 0;
	return (cost_files(input->rows, input->pathtarget->width) + input->rows * cpu_tuple_cost) *
		(1 - 1 / memories);
}

/* Lower the cost of an aggregation to that of a BatchAgg; false: it saves nothing. */
static bool
save_by_batches(PlannerInfo *root, Path *path, Path *input, double group_count,
				const AggregationContext *context)
{
	const Cost	agg_cost = path->total_cost - input->total_cost;
	const Cost	core_files = core_cost_of_files(root, (const AggPath *) path, input, context);
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
	saved += cost_agg_saving(Max(agg_cost - core_files, 0), group_count,
							 context->row_aggregates, context->aggregates);
	saved += core_files - cost_files_of_groups(input, context->memories);
	if (saved <= 0)
		return false;
	path->startup_cost = Max(path->startup_cost - saved, 0);
	path->total_cost = Max(path->total_cost - saved, path->startup_cost);
	return true;
}

/* Propose an aggregation.  Of paths that cost the same, as core sees it, batches are the better one. */
static void
add_batched(RelOptInfo *grouped, Path *path)
{
	const Cost	cheapest = cost_cheapest(grouped->pathlist);

	if (path->total_cost < cheapest * COST_FUZZ)
		path->total_cost = Min(path->total_cost, cheapest / COST_MARGIN);
	path->startup_cost = Min(path->startup_cost, path->total_cost);
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
		add_batched(grouped, (Path *) agg);
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
		add_batched(grouped, (Path *) agg);
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
add_grouping_sets(PlannerInfo *root, RelOptInfo *grouped, AggregationContext *context)
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
	if (cheapest == NULL)
		return;
	context->memories = cost_group_memories(groups_of_sets(cheapest), grouped->reltarget->width,
											context->aggregates);
	copy = makeNode(GroupingSetsPath);
	memcpy(copy, cheapest, sizeof(GroupingSetsPath));
	if (save_by_batches(root, &copy->path, copy->subpath, groups_of_sets(copy), context))
		add_batched(grouped, &copy->path);
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
	add_batched(grouped, &agg->path);
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
	AggregationContext context = {.is_batchable = true};
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
	if (path == NULL)
		return;
	context.memories = cost_group_memories(group_count, input->reltarget->width, 0);
	agg = create_agg_path(root, distinct, path, path->pathtarget, AGG_HASHED,
						  AGGSPLIT_SIMPLE, clauses, NIL, NULL, group_count);
	if (save_by_batches(root, &agg->path, path, group_count, &context))
		add_batched(distinct, &agg->path);
}

/* A part of a UNION that reads a table, with a sequential scan in the place of an index's. */
static Path *
sequential_part(PlannerInfo *root, Path *part)
{
	RelOptInfo *rel = part->parent;
	Path	   *subpath;
	Path	   *scan;

	if (!IsA(part, SubqueryScanPath) || rel->subroot == NULL)
		return part;
	subpath = ((SubqueryScanPath *) part)->subpath;
	scan = IsA(subpath, ProjectionPath) ? ((ProjectionPath *) subpath)->subpath : subpath;
	if (!IsA(scan, IndexPath) || scan->param_info != NULL)
		return part;
	scan = path_table_scan(rel->subroot, scan->parent, false);
	if (scan == NULL)
		return part;
	scan = apply_projection_to_path(rel->subroot, scan->parent, scan, subpath->pathtarget);
	return (Path *) SUBQUERY_SCAN_PATH(root, rel, scan);
}

/* Can the columns of a UNION, all of them, be keys of a BatchAgg? */
static bool
union_is_batchable(const AggPath *agg)
{
	const List *columns = agg->path.pathtarget->exprs;
	ListCell   *column;
	ListCell   *clause;

	if (list_length(columns) > GROUP_KEYS_MAX ||
		list_length(columns) != list_length(agg->groupClause))
		return false;
	forboth(column, columns, clause, agg->groupClause)
		if (key_obstacle(lfirst(column), lfirst_node(SortGroupClause, clause)->eqop,
						 exprCollation(lfirst(column))) != NULL)
			return false;
	return true;
}

/* UNION: groups without aggregates, over the parts that are appended. */
static void
add_batched_union(PlannerInfo *root, RelOptInfo *joined)
{
	AggregationContext context = {.is_batchable = true};
	const AppendPath *append;
	List	   *parts = NIL;
	AggPath    *agg = NULL;
	Path	   *appended;
	ListCell   *cell;

	foreach(cell, joined->pathlist)
	{
		const AggPath *path = lfirst(cell);

		if (IsA(path, AggPath) && path->aggstrategy == AGG_HASHED &&
			IsA(path->subpath, AppendPath) && union_is_batchable(path))
			agg = unconstify(AggPath *, path);
	}
	if (agg == NULL)
		return;
	context.memories = cost_group_memories(agg->numGroups, agg->path.pathtarget->width, 0);
	append = (const AppendPath *) agg->subpath;
	foreach(cell, append->subpaths)
		parts = lappend(parts, sequential_part(root, lfirst(cell)));
	appended = (Path *) APPEND_PATH(root, joined, parts);
	appended->pathtarget = append->path.pathtarget;
	agg = create_agg_path(root, joined, appended, agg->path.pathtarget, AGG_HASHED,
						  AGGSPLIT_SIMPLE, agg->groupClause, NIL, NULL, agg->numGroups);
	if (save_by_batches(root, &agg->path, appended, agg->numGroups, &context))
		add_batched(joined, &agg->path);
}

static void
add_batched_aggregations(PlannerInfo *root, UpperRelationKind stage,
						 RelOptInfo *input, RelOptInfo *grouped, void *extra_)
{
	const GroupPathExtraData *extra = extra_;
	AggregationContext context = {.is_batchable = false};
	Path	   *path;
	double		group_count;

	if (previous_upper_hook != NULL)
		previous_upper_hook(root, stage, input, grouped, extra_);
	if (path_is_planning() && stage == UPPERREL_SETOP)
		add_batched_union(root, grouped);
	if (!path_is_planning() ||
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
	context.memories = cost_group_memories(group_count, grouped->reltarget->width,
										   context.aggregates);
	if (!context.has_distinct)
		add_serial_aggregation(root, grouped, path, extra, &context, group_count);
	else
		add_distinct_aggregation(root, grouped, path, extra, &context, group_count);
	/* Workers pass groups on, where these exceed the memory. */
	context.memories = 0;
	if (!context.keeps_values)
		add_parallel_aggregations(root, grouped, extra, &context, group_count);
}

void
agg_path_install_hook(void)
{
	previous_upper_hook = create_upper_paths_hook;
	create_upper_paths_hook = add_batched_aggregations;
}
