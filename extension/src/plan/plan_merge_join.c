/*
 * plan_merge_join.c
 *	  Where the search for join orders can leave out merge joins.
 *
 * Merge joins take half of the time of a search: each pair of joins is tried
 * in several orders of its keys.  Over tables that are read in batches they rarely win, except
 * where an index gives their order, which shows in the joins of two tables.  So all joins
 * of two tables try them, and larger joins only while one was the cheapest way to some join
 * of the level below.
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"

#include "plan.h"
#include "server.h"

static bool are_left_out = false;

/* Leave merge joins out of a search that may try them, or try them again.  Returns whether they were left out before. */
bool
merge_joins_leave_out(bool leave_out)
{
	const bool	before = are_left_out;

	if (leave_out != before)
		server_leave_out_merge_joins(leave_out);
	are_left_out = leave_out;
	return before;
}

/* Does a class of values that are equal have columns of several tables, so that it joins them? */
static bool
class_is_join_key(const EquivalenceClass *class)
{
	return bms_membership(class->ec_relids) == BMS_MULTIPLE;
}

/* Does the query ask for an order that a merge join brings?  Groups that do not fit in memory gain by it as well. */
static bool
asks_for_order_of_key(const PlannerInfo *root)
{
	return root->query_pathkeys != NIL &&
		class_is_join_key(linitial_node(PathKey, root->query_pathkeys)->pk_eclass);
}

/* Can values of a class be joined by hash? */
static bool
class_is_hashable(const EquivalenceClass *class)
{
	const EquivalenceMember *member = linitial(class->ec_members);
	const Oid	type = member->em_datatype;
	const Oid	equality = get_opfamily_member(linitial_oid(class->ec_opfamilies), type, type,
											   BTEqualStrategyNumber);

	return OidIsValid(equality) && op_hashjoinable(equality, type);
}

static bool
clauses_are_hashable(const List *clauses)
{
	ListCell   *cell;

	foreach(cell, clauses)
	{
		const RestrictInfo *clause = OUTER_JOIN_CLAUSE(cell);

		if (!OidIsValid(clause->hashjoinoperator))
			return false;
	}
	return true;
}

/* Can all joins by equality go by hash? */
static bool
keys_are_hashable(const PlannerInfo *root)
{
	ListCell   *cell;

	/* A full join has no other way where its keys are not; that is charged for merge joins that are off. */
	if (root->full_join_clauses != NIL ||
		!clauses_are_hashable(root->left_join_clauses) ||
		!clauses_are_hashable(root->right_join_clauses))
		return false;
	foreach(cell, root->eq_classes)
	{
		const EquivalenceClass *class = lfirst_node(EquivalenceClass, cell);

		if (class_is_join_key(class) && !class_is_hashable(class))
			return false;
	}
	return true;
}

/* Are all tables read in batches, or small? */
static bool
tables_are_batchable(PlannerInfo *root, const List *rels)
{
	ListCell   *cell;

	foreach(cell, rels)
	{
		RelOptInfo *rel = lfirst(cell);

		if (rel->rtekind == RTE_RELATION && !path_table_is_small(rel) &&
			!path_has_table_scan(root, rel))
			return false;
	}
	return true;
}

static bool
path_is_merge_join(const Path *path)
{
	switch (nodeTag(path))
	{
		case T_GatherPath:
			return path_is_merge_join(((const GatherPath *) path)->subpath);
		case T_GatherMergePath:
			return path_is_merge_join(((const GatherMergePath *) path)->subpath);
		case T_ProjectionPath:
			return path_is_merge_join(((const ProjectionPath *) path)->subpath);
		default:
			return IsA(path, MergePath);
	}
}

/* Is a merge join the cheapest way to one of these joins? */
bool
merge_join_has_won(const List *joins)
{
	ListCell   *cell;

	foreach(cell, joins)
	{
		const RelOptInfo *joined = lfirst(cell);

		if (path_is_merge_join(joined->cheapest_total_path) ||
			(joined->partial_pathlist != NIL && path_is_merge_join(linitial(joined->partial_pathlist))))
			return true;
	}
	return false;
}

/* May a search over these tables leave out merge joins, but for those of two tables? */
bool
merge_joins_are_optional(PlannerInfo *root, const List *rels)
{
	return list_length(rels) > 2 && MAY_MERGE_JOINS(root) && !asks_for_order_of_key(root) &&
		keys_are_hashable(root) && tables_are_batchable(root, rels) &&
		!merge_join_has_won(rels);
}
