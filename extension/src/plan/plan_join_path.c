/*
 * plan_join_path.c
 *	  Batched hash joins, told to the planner.
 *
 * A join whose outer side comes in batches gets a hash join's path with the costs
 * of a BatchJoin, so that it is chosen before a nested loop through an index
 * where it is cheaper.  As in plan_path.c, it is the planner's own path.
 *
 * What a node hands on in batches costs less than the same as rows.  A path has
 * one cost, that of rows; that of batches is found anew from the path's parts.
 *
 * Off by default (batchexec.join_paths): nested loops over buffered index pages run
 * faster than their cost says, so that some queries get a slower plan.
 */
#include "postgres.h"

#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"

#include "cost.h"
#include "group.h"
#include "join.h"
#include "join_table.h"
#include "plan.h"

static set_join_pathlist_hook_type previous_join_hook = NULL;

static bool cost_in_batches(PlannerInfo *root, const Path *path, BatchedCost *cost);

/* May a node above stop the query before all rows of a join are read? */
static bool
query_may_stop(const PlannerInfo *root)
{
	const Query *query = root->parse;

	return root->tuple_fraction > 0 && !query->hasAggs && query->groupClause == NIL &&
		query->distinctClause == NIL && query->sortClause == NIL;
}

static bool
target_is_columns(const PathTarget *target)
{
	ListCell   *cell;

	foreach(cell, target->exprs)
		if (!IsA(lfirst(cell), Var))
			return false;
	return true;
}

static bool
type_is_batchable(JoinType type)
{
	return type == JOIN_INNER || type == JOIN_LEFT || type == JOIN_RIGHT ||
		type == JOIN_SEMI || type == JOIN_ANTI;
}

/* Is an expression of either side on each side of a clause? */
static bool
clause_joins(const RestrictInfo *clause, const RelOptInfo *outer, const RelOptInfo *inner)
{
	return (bms_is_subset(clause->left_relids, outer->relids) &&
			bms_is_subset(clause->right_relids, inner->relids)) ||
		(bms_is_subset(clause->left_relids, inner->relids) &&
		 bms_is_subset(clause->right_relids, outer->relids));
}

/*
 * The clauses that a batched hash join of these sides has as its keys; NIL where it
 * has no batched form.  Says which side of a clause is the outer one, as core wants it.
 */
static List *
batched_keys(const RelOptInfo *joined, const RelOptInfo *outer, const RelOptInfo *inner,
			 JoinType type, List *clauses)
{
	List	   *keys = NIL;
	ListCell   *cell;

	foreach(cell, clauses)
	{
		RestrictInfo *clause = lfirst_node(RestrictInfo, cell);

		if (IS_OUTER_JOIN(type) && RINFO_IS_PUSHED_DOWN(clause, joined->relids))
			continue;
		if (clause->can_join && OidIsValid(clause->hashjoinoperator) &&
			clause_joins(clause, outer, inner))
		{
			if (join_clause_obstacle((Node *) clause->clause) != NULL)
				return NIL;
			clause->outer_is_left = bms_is_subset(clause->left_relids, outer->relids);
			keys = lappend(keys, clause);
		}
		else if (type != JOIN_INNER)
			return NIL;
	}
	return list_length(keys) <= GROUP_KEYS_MAX ? keys : NIL;
}

/* Does the inner side fit in the memory for a hash table, in rows that it can hold? */
static bool
inner_is_batchable(const Path *inner)
{
	const PathTarget *target = inner->pathtarget;

	return inner->param_info == NULL &&
		list_length(target->exprs) <= JOIN_INNER_COLUMNS_MAX &&
		cost_groups_fit_memory(inner->rows, target->width, list_length(target->exprs));
}

/* What a batched join costs over an outer side in batches, without what is above it. */
static BatchedCost
cost_join(PlannerInfo *root, BatchedCost outer_cost, const Path *outer, const Path *inner,
		  List *keys, List *clauses, double pairs)
{
	const int	key_count = list_length(keys);
	BatchedCost cost;
	QualCost	all;
	QualCost	of_keys;

	cost_qual_eval(&all, clauses, root);
	cost_qual_eval(&of_keys, keys, root);
	cost.startup = outer_cost.startup + inner->total_cost +
		(cpu_tuple_cost + cpu_operator_cost * key_count) * inner->rows;
	cost.total = cost.startup + outer_cost.total - outer_cost.startup +
		batchexec_cost_startup + outer->rows * key_count * batchexec_cost_row +
		pairs * (cpu_tuple_cost + Max(all.per_tuple - of_keys.per_tuple, 0));
	return cost;
}

static bool
cost_hash_join_in_batches(PlannerInfo *root, const HashPath *join, BatchedCost *cost)
{
	const JoinPath *path = &join->jpath;
	BatchedCost outer;

	if (path->path.parallel_aware || path->path.param_info != NULL ||
		!type_is_batchable(path->jointype) ||
		!target_is_columns(path->outerjoinpath->pathtarget) ||
		!inner_is_batchable(path->innerjoinpath) ||
		batched_keys(path->path.parent, path->outerjoinpath->parent,
					 path->innerjoinpath->parent, path->jointype,
					 path->joinrestrictinfo) == NIL ||
		!cost_in_batches(root, path->outerjoinpath, &outer))
		return false;
	*cost = cost_join(root, outer, path->outerjoinpath, path->innerjoinpath,
					  join->path_hashclauses, path->joinrestrictinfo, path->path.rows);
	return true;
}

/* What a path costs that hands on batches; false: it has none. */
static bool
cost_in_batches(PlannerInfo *root, const Path *path, BatchedCost *cost)
{
	if (IsA(path, HashPath))
		return cost_hash_join_in_batches(root, (const HashPath *) path, cost);
	return path_cost_scan_in_batches(root, path, cost);
}

/* Of a join's outer side, the path that hands on batches, and its cost as such; or NULL. */
static Path *
outer_in_batches(PlannerInfo *root, RelOptInfo *outer, bool is_partial, BatchedCost *cost)
{
	ListCell   *cell;

	if (!target_is_columns(outer->reltarget))
		return NULL;
	if (IS_SIMPLE_REL(outer))
	{
		Path	   *path = path_sequential_scan(root, outer, is_partial);

		if (path == NULL || !path_cost_scan_in_batches(root, path, cost))
			return NULL;
		path->startup_cost = cost->startup;
		path->total_cost = cost->total;
		return path;
	}
	foreach(cell, is_partial ? outer->partial_pathlist : outer->pathlist)
		if (IsA(lfirst(cell), HashPath) && cost_in_batches(root, lfirst(cell), cost))
			return lfirst(cell);
	return NULL;
}

static void
add_batched_join(PlannerInfo *root, RelOptInfo *joined, RelOptInfo *outer, Path *inner,
				 JoinType type, JoinPathExtraData *extra, List *keys, bool is_partial)
{
	JoinCostWorkspace workspace;
	BatchedCost cost;
	Path	   *outer_path = outer_in_batches(root, outer, is_partial, &cost);
	HashPath   *path;

	if (outer_path == NULL)
		return;
	initial_cost_hashjoin(root, &workspace, type, keys, outer_path, inner, extra, false);
	path = create_hashjoin_path(root, joined, type, &workspace, extra, outer_path, inner,
								false, extra->restrictlist, NULL, keys);
	cost = cost_join(root, cost, outer_path, inner, keys, extra->restrictlist,
					 path->jpath.path.rows);
	path->jpath.path.startup_cost = cost.startup;
	path->jpath.path.total_cost = cost.total +
		path->jpath.path.rows * (batchexec_cost_result_row + joined->reltarget->cost.per_tuple);
	if (is_partial)
		add_partial_path(joined, (Path *) path);
	else
		add_path(joined, (Path *) path);
}

static void
add_batched_joins(PlannerInfo *root, RelOptInfo *joined, RelOptInfo *outer, RelOptInfo *inner,
				  JoinType type, JoinPathExtraData *extra)
{
	List	   *keys;
	Path	   *inner_path = inner->cheapest_total_path;

	if (previous_join_hook != NULL)
		previous_join_hook(root, joined, outer, inner, type, extra);
	if (!batchexec_join_paths || !path_is_planning() || !enable_hashjoin ||
		!type_is_batchable(type) ||
		query_may_stop(root) || !bms_is_empty(joined->lateral_relids))
		return;
	keys = batched_keys(joined, outer, inner, type, extra->restrictlist);
	if (keys == NIL)
		return;
	if (inner_is_batchable(inner_path))
		add_batched_join(root, joined, outer, inner_path, type, extra, keys, false);
	if (!joined->consider_parallel || outer->partial_pathlist == NIL || type == JOIN_RIGHT)
		return;
	if (!inner_path->parallel_safe)
		inner_path = get_cheapest_parallel_safe_total_inner(inner->pathlist);
	if (inner_path != NULL && inner_is_batchable(inner_path))
		add_batched_join(root, joined, outer, inner_path, type, extra, keys, true);
}

void
join_path_install_hook(void)
{
	previous_join_hook = set_join_pathlist_hook;
	set_join_pathlist_hook = add_batched_joins;
}
