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

#include "catalog/pg_class.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "parser/parsetree.h"
#include "utils/selfuncs.h"

#include "cost.h"
#include "plan.h"
#include "server.h"

static set_rel_pathlist_hook_type previous_pathlist_hook = NULL;
static get_relation_stats_hook_type previous_statistics_hook = NULL;

/* Will what is being planned be batched? */
static bool plans_batches = false;

/* Range table entries of tables whose index paths were made while enable_seqscan was off. */
static List *hinted_tables = NIL;

PlanningState
path_set_planning(PlanningState state)
{
	const PlanningState before = {
		plans_batches, merge_joins_leave_out(state.leaves_out_merge_joins), hinted_tables
	};

	plans_batches = state.plans_batches;
	hinted_tables = state.hinted_tables;
	cost_forget_memos();
	return before;
}

/*
 * An extension such as pg_hint_plan makes the paths of one table anew with enable_seqscan off, and then
 * switches it on again.  The statistics of an index's column, which its cost asks for, are the
 * one thing with a hook on that way.
 */
static bool
watch_statistics(PlannerInfo *root, RangeTblEntry *entry, AttrNumber attribute,
				 VariableStatData *statistics)
{
	if (!enable_seqscan && plans_batches && !list_member_ptr(hinted_tables, entry))
	{
		/* The search of GEQO has a memory context that is gone before the planning ends. */
		MemoryContext caller = MemoryContextSwitchTo(root->planner_cxt);

		hinted_tables = lappend(hinted_tables, entry);
		MemoryContextSwitchTo(caller);
	}
	return previous_statistics_hook != NULL &&
		previous_statistics_hook(root, entry, attribute, statistics);
}

/* May a table be read whole, though none of its own paths does so? */
static bool
may_scan_whole(const PlannerInfo *root, const RelOptInfo *rel)
{
	return MAY_SCAN_WHOLE(rel) && !list_member_ptr(hinted_tables, planner_rt_fetch(rel->relid, root));
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

/* Is a table too small to gain by batches? */
bool
path_table_is_small(const RelOptInfo *rel)
{
	return rel->tuples * (cpu_tuple_cost - batchexec_cost_row) <= batchexec_cost_startup;
}

/* May a table be read in batches, and is it large enough to gain by it? */
static bool
table_is_batchable(PlannerInfo *root, RelOptInfo *rel)
{
	const RangeTblEntry *entry;

	if (!IS_SIMPLE_REL(rel) || rel->rtekind != RTE_RELATION)
		return false;
	entry = planner_rt_fetch(rel->relid, root);
	/* Only a finished plan tells whether a foreign table's wrapper checks its conditions. */
	if (rel->fdwroutine != NULL && rel->baserestrictinfo != NIL)
		return false;
	if (entry->inh || entry->tablesample != NULL || rel->lateral_relids != NULL ||
		(entry->relkind != RELKIND_RELATION && entry->relkind != RELKIND_MATVIEW &&
		 entry->relkind != RELKIND_FOREIGN_TABLE) ||
		path_table_is_small(rel))
		return false;
	/* System columns, or the whole row; an UPDATE or DELETE takes a row's address. */
	for (AttrNumber attno = query_changes_rows(root->parse->commandType) ? 0 : rel->min_attr;
		 attno <= 0; attno++)
		if (!bms_is_empty(rel->attr_needed[attno - rel->min_attr]))
			return false;
	return cost_table_obstacle(entry->relid) == NULL;
}

/* Does a path read all of a table: by a sequential scan, or as a foreign data wrapper does? */
bool
path_is_table_scan(const Path *path)
{
	if (path->param_info != NULL)
		return false;
	if (IsA(path, ForeignPath))
		return IS_SIMPLE_REL(path->parent) && !path->parallel_aware &&
			((const ForeignPath *) path)->fdw_outerpath == NULL;
	return IsA(path, Path) && path->pathtype == T_SeqScan;
}

/* Workers of the partial sequential scan among these paths; 0: there is none. */
static int
scan_workers(List *partial_paths)
{
	ListCell   *cell;

	foreach(cell, partial_paths)
		if (path_is_table_scan(lfirst(cell)))
			return ((Path *) lfirst(cell))->parallel_workers;
	return 0;
}

/* Does one of these paths read all of a table? */
static bool
has_table_scan(const List *paths)
{
	ListCell   *cell;

	foreach(cell, paths)
		if (path_is_table_scan(lfirst(cell)))
			return true;
	return false;
}

/* A sequential scan by row that core has not made, or has found no use for. */
static Path *
create_scan_by_row(PlannerInfo *root, RelOptInfo *rel, int workers)
{
	Path	   *path = create_seqscan_path(root, rel, NULL, workers);

	cost_path_buffered(root, path);
	return path;
}

/* A sequential scan by row: a copy of core's, where that is among these paths. */
static Path *
scan_by_row(PlannerInfo *root, RelOptInfo *rel, const List *paths, int workers)
{
	ListCell   *cell;

	foreach(cell, paths)
		if (path_is_table_scan(lfirst(cell)))
			return memcpy(palloc(sizeof(Path)), lfirst(cell), sizeof(Path));
	return create_scan_by_row(root, rel, workers);
}

/* A sequential scan at the cost of a BatchScan; NULL where that is no less. */
static Path *
batched_scan(PlannerInfo *root, RelOptInfo *rel, const List *paths, int workers)
{
	Path	   *path = scan_by_row(root, rel, paths, workers);
	Cost		saved = cost_scan_saving(root, rel, process_share(path)).as_scan;

	path->total_cost -= saved;
	return saved > 0 ? path : NULL;
}

/* A copy of the cheapest path that reads all of a foreign table, or NULL. */
static Path *
copy_foreign_scan(const RelOptInfo *rel)
{
	ListCell   *cell;

	foreach(cell, rel->pathlist)
		if (path_is_table_scan(lfirst(cell)))
			return memcpy(palloc(sizeof(ForeignPath)), lfirst(cell), sizeof(ForeignPath));
	return NULL;
}

/* Is there a scan of a table that is worth reading in batches? */
bool
path_has_table_scan(PlannerInfo *root, RelOptInfo *rel)
{
	if (!table_is_batchable(root, rel))
		return false;
	if (rel->fdwroutine == NULL && may_scan_whole(root, rel))
		return true;
	return has_table_scan(rel->pathlist);
}

/* That scan, or NULL. */
Path *
path_table_scan(PlannerInfo *root, RelOptInfo *rel, bool is_partial)
{
	int			workers = is_partial ? scan_workers(rel->partial_pathlist) : 0;

	if ((is_partial && workers == 0) || !path_has_table_scan(root, rel))
		return NULL;
	if (rel->fdwroutine != NULL)
		return is_partial ? NULL : copy_foreign_scan(rel);
	return create_scan_by_row(root, rel, workers);
}

/* What the scan of a table costs whose rows stay in batches; false where they can't. */
bool
path_cost_scan_in_batches(PlannerInfo *root, const Path *path, BatchedCost *cost)
{
	Path		by_row = *path;
	RelOptInfo *rel = path->parent;

	if (!path_is_table_scan(path) || !table_is_batchable(root, path->parent))
		return false;
	/* The path may have a batched cost already.  Only the wrapper knows that of a foreign table's. */
	if (!IsA(path, ForeignPath))
	{
		cost_seqscan(&by_row, root, rel, NULL);
		by_row.total_cost -= cost_scan_buffered(root, rel);
	}
	cost->startup = by_row.startup_cost;
	cost->total = by_row.total_cost - cost_scan_saving(root, rel, process_share(path)).as_input;
	cost->total = Max(cost->total, cost->startup);
	return true;
}

/* Does a query read a table that is large enough to gain by batches? */
static bool
reads_large_table(const PlannerInfo *root)
{
	static uint64 planning = 0;
	static const PlannerInfo *last_root = NULL;
	static bool is_found;

	/* Each of its tables asks. */
	if (planning == cost_planning && last_root == root)
		return is_found;
	planning = cost_planning;
	last_root = root;
	is_found = false;
	for (int relid = 1; relid < root->simple_rel_array_size && !is_found; relid++)
	{
		const RelOptInfo *rel = root->simple_rel_array[relid];

		is_found = rel != NULL && rel->rtekind == RTE_RELATION && !path_table_is_small(rel);
	}
	return is_found;
}

/* Are rows of a query's table more than returned as they are? */
static bool
uses_rows(const PlannerInfo *root, const RelOptInfo *rel)
{
	const Query *query = root->parse;

	return rel->baserestrictinfo != NIL || query->hasAggs || query->groupClause != NIL ||
		query->distinctClause != NIL || root->parent_root != NULL;
}

/* May batches be of use to a query, so that its costs have to be on their scale? */
static bool
may_use_batches(PlannerInfo *root, const RelOptInfo *rel)
{
	if (bms_membership(root->all_baserels) == BMS_MULTIPLE)
		return reads_large_table(root);
	return !path_table_is_small(rel) && uses_rows(root, rel) &&
		cost_cheapest(rel->pathlist) > cost_input_least(rel);
}

static void
add_batched_scans(PlannerInfo *root, RelOptInfo *rel, Index relid, RangeTblEntry *entry)
{
	Cost		cheapest;
	int			workers;
	Path	   *path;

	if (previous_pathlist_hook != NULL)
		previous_pathlist_hook(root, rel, relid, entry);
	/* A library whose planner hook is below ours may have switched batching off for this statement. */
	plans_batches = plans_batches && batching_is_on();
	if (!plans_batches)
		return;
	if (entry->rtekind == RTE_RELATION && !entry->inh)
		cost_remember_rows(entry->relid, rel);
	if (rel->pathlist == NIL || !may_use_batches(root, rel))
		return;
	cost_paths_buffered(root, rel);
	composite_keys_correct_lookups(root, rel);
	/* Without a filter nothing is gained.  A foreign table has no other way that would have to be beaten. */
	if (rel->baserestrictinfo == NIL || rel->fdwroutine != NULL)
		return;
	cheapest = cost_cheapest(rel->pathlist);
	if (cheapest < batchexec_cost_startup || cheapest <= cost_scan_least(rel) ||
		!path_has_table_scan(root, rel))
		return;
	path = batched_scan(root, rel, rel->pathlist, 0);
	if (path == NULL)
		return;
	add_path(rel, path);
	workers = scan_workers(rel->partial_pathlist);
	path = workers > 0 ? batched_scan(root, rel, rel->partial_pathlist, workers) : NULL;
	if (path != NULL)
		add_partial_path(rel, path);
}

void
path_install_hooks(void)
{
	previous_pathlist_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = add_batched_scans;
	previous_statistics_hook = get_relation_stats_hook;
	get_relation_stats_hook = watch_statistics;
	agg_path_install_hook();
	join_path_install_hook();
}
