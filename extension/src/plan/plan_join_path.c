/*
 * plan_join_path.c
 *	  What batched hash joins save, told to the planner.
 *
 * A hash join whose outer side is read in batches gets a path with the cost of
 * a BatchJoin, so that it is chosen before a merge join, or a nested loop over
 * an index, where it wins.  As for scans (plan_path.c) it is the planner's own.
 */
#include "postgres.h"

#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"

#include "cost.h"
#include "plan.h"

static set_join_pathlist_hook_type previous_join_hook = NULL;

/* Joins whose type, as it is planned, has a batched form. */
static bool
type_is_batchable(JoinType type)
{
	return type == JOIN_INNER || type == JOIN_LEFT || type == JOIN_RIGHT ||
		type == JOIN_SEMI || type == JOIN_ANTI;
}

/* The sequential scan or hash join, of those of a relation, that runs in batches. */
static Path *
batched_path(PlannerInfo *root, RelOptInfo *rel)
{
	Path	   *best = NULL;
	ListCell   *cell;

	foreach(cell, rel->pathlist)
	{
		Path	   *path = lfirst(cell);

		if (path->param_info != NULL ||
			(best != NULL && best->total_cost <= path->total_cost) ||
			!path_is_batchable(root, path))
			continue;
		best = path;
	}
	return best;
}

/* The clauses that a hash join of these two can use. */
static List *
hash_clauses(RelOptInfo *joinrel, RelOptInfo *outer, RelOptInfo *inner,
			 JoinType type, JoinPathExtraData *extra)
{
	List	   *clauses = NIL;
	ListCell   *cell;

	foreach(cell, extra->restrictlist)
	{
		RestrictInfo *clause = lfirst_node(RestrictInfo, cell);

		if ((IS_OUTER_JOIN(type) && RINFO_IS_PUSHED_DOWN(clause, joinrel->relids)) ||
			!clause->can_join || !OidIsValid(clause->hashjoinoperator))
			continue;
		if (bms_is_subset(clause->left_relids, outer->relids) &&
			bms_is_subset(clause->right_relids, inner->relids))
			clause->outer_is_left = true;
		else if (bms_is_subset(clause->left_relids, inner->relids) &&
				 bms_is_subset(clause->right_relids, outer->relids))
			clause->outer_is_left = false;
		else
			continue;
		clauses = lappend(clauses, clause);
	}
	return clauses;
}

/* What a BatchJoin saves on looking up the outer rows, and on returning pairs. */
static Cost
probe_saving(const HashPath *path)
{
	const double keys = list_length(path->path_hashclauses);
	const double outer_rows = path->jpath.outerjoinpath->rows;
	const double pairs = path->jpath.path.rows;

	return outer_rows * keys * Max(cpu_operator_cost - 2 * batchexec_cost_operator, 0) +
		pairs * Max(cpu_tuple_cost - batchexec_cost_result_row, 0);
}

static void
add_batched_join(PlannerInfo *root, RelOptInfo *joinrel, RelOptInfo *outer,
				 RelOptInfo *inner, JoinType type, JoinPathExtraData *extra)
{
	Path	   *inner_path = inner->cheapest_total_path;
	Path	   *outer_path;
	List	   *clauses;
	JoinCostWorkspace workspace;
	HashPath   *path;
	Cost		saved;

	if (!enable_hashjoin || !type_is_batchable(type) || inner_path == NULL ||
		inner_path->param_info != NULL || extra->restrictlist == NIL)
		return;
	outer_path = batched_path(root, outer);
	if (outer_path == NULL)
		return;
	clauses = hash_clauses(joinrel, outer, inner, type, extra);
	if (clauses == NIL ||
		!cost_groups_fit_memory(inner_path->rows, inner_path->pathtarget->width,
								list_length(inner_path->pathtarget->exprs)))
		return;
	initial_cost_hashjoin(root, &workspace, type, clauses, outer_path, inner_path,
						  extra, false);
	path = create_hashjoin_path(root, joinrel, type, &workspace, extra, outer_path,
								inner_path, false, extra->restrictlist, NULL, clauses);
	saved = path_batch_saving(root, outer_path) + probe_saving(path);
	path->jpath.path.total_cost = Max(path->jpath.path.total_cost - saved,
									  path->jpath.path.startup_cost);
	add_path(joinrel, (Path *) path);
}

static void
add_batched_joins(PlannerInfo *root, RelOptInfo *joinrel, RelOptInfo *outer,
				  RelOptInfo *inner, JoinType type, JoinPathExtraData *extra)
{
	if (previous_join_hook != NULL)
		previous_join_hook(root, joinrel, outer, inner, type, extra);
	if (path_plans_batches())
		add_batched_join(root, joinrel, outer, inner, type, extra);
}

void
path_install_join_hook(void)
{
	previous_join_hook = set_join_pathlist_hook;
	set_join_pathlist_hook = add_batched_joins;
}
