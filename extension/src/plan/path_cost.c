/*
 * path_cost.c
 *	  What paths of the stock server cost where their pages are in shared buffers.
 *
 * The stock model charges each page as one from disk.  A batched path is charged
 * for what it reads (cost.c), so the two can only be compared once the pages in
 * shared buffers are taken out of the other's costs: an index scan of 15,000
 * buffered pages is charged 60,000 units, and takes the time of a thousand.
 *
 * Nor is a page in shared buffers free: of rows in no order, each costs a miss of the
 * processor's caches, or several, however often its page was read before.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"

#include "cost.h"
#include "batch_limits.h"
#include "plan.h"
#include "server.h"

/* Pages of a B-tree that core charges for on the way down, in operators a level. */
#define DESCENT_OPERATORS	50

/* The share of the cost of fetching a row that is saved where rows follow the order of their index. */
#define IN_ORDER_SAVING		0.8

/* Each join over a path asks for the cost of its pages: remember it. */
typedef struct PathMemo
{
	uint64		planning;
	const Path *path;
	Cost		saving;
} PathMemo;

static PathMemo memos[PATHS_REMEMBERED];

/* cost_of_buffered_pages of a path below a join, which is never freed before planning ends. */
Cost
cost_of_input_pages(PlannerInfo *root, const Path *path)
{
	PathMemo   *memo = &memos[((uintptr_t) path / sizeof(Path)) % PATHS_REMEMBERED];

	if (memo->path != path || memo->planning != cost_planning)
		*memo = (PathMemo) {cost_planning, path, cost_of_buffered_pages(root, path)};
	return memo->saving;
}

/* Of the cost of pages, what is left out where so much of a table is in shared buffers. */
static Cost
page_saving(PlannerInfo *root, RelOptInfo *rel, Cost page_cost)
{
	if (page_cost <= 0)
		return 0;
	return page_cost * Max(1 - batchexec_cost_page, 0) * cost_buffered_share(root, rel);
}

static double
workers_of(const Path *path)
{
	return path->parallel_aware ? Max(path->parallel_workers, 1) : 1;
}

static Cost
saving_of_scan(PlannerInfo *root, const Path *path)
{
	RelOptInfo *rel = path->parent;

	if (path->pathtype != T_SeqScan || !IS_SIMPLE_REL(rel) || rel->rtekind != RTE_RELATION)
		return 0;
	return page_saving(root, rel, rel->pages * cost_page(rel));
}

/* What core charges for the pages of an index, as its cost less that of its tuples. */
static Cost
index_page_cost(const IndexPath *path, double tuples)
{
	const IndexOptInfo *index = path->indexinfo;
	const double descents = (Max(index->tree_height, 0) + 1) * DESCENT_OPERATORS;
	const Cost	tuple_cost = cpu_index_tuple_cost +
		cpu_operator_cost * list_length(path->indexclauses);

	return path->indextotalcost - tuples * tuple_cost -
		cpu_operator_cost * (descents + log2(Max(index->tuples, 2)));
}

/*
 * What it costs to look at the heap for a row that an index has found.  Where the rows follow the order of the
 * index, the next one is on the same page, or on one that the processor has in its cache.
 */
static Cost
cost_fetch(PlannerInfo *root, const IndexPath *path)
{
	const double correlation = cost_index_correlation(root, path->indexinfo);

	return batchexec_cost_fetch * (1 - IN_ORDER_SAVING * correlation * correlation);
}

/* Of the cost of a table's pages, what is left out where so many are in shared buffers, and going to them costs so much. */
static Cost
heap_saving(PlannerInfo *root, RelOptInfo *rel, Cost page_cost, Cost fetch_cost)
{
	return Min(page_saving(root, rel, page_cost), Max(page_cost - fetch_cost, 0));
}

/* An index scan goes to the heap for each row, whether or not it has been on the row's page before. */
static Cost
saving_of_index(PlannerInfo *root, const IndexPath *path)
{
	RelOptInfo *rel = path->path.parent;
	const double tuples = clamp_row_est(path->indexselectivity * rel->tuples);
	const double read = tuples / workers_of(&path->path);
	const double fetched = path->path.pathtype == T_IndexOnlyScan ? read * (1 - rel->allvisfrac) : read;
	const Cost	tuple_cost = cpu_tuple_cost + rel->baserestrictcost.per_tuple;

	return page_saving(root, rel, Max(index_page_cost(path, tuples), 0)) +
		heap_saving(root, rel, path->path.total_cost - path->indextotalcost - read * tuple_cost,
					fetched > 0 ? fetched * cost_fetch(root, path) : 0);
}

/* A bitmap's scan goes to each of its pages once, in order: as many as core estimates, by the formula of Mackert and Lohman. */
static Cost
saving_of_bitmap(PlannerInfo *root, const BitmapHeapPath *path)
{
	RelOptInfo *rel = path->path.parent;
	const Cost	tuple_cost = cpu_tuple_cost + rel->baserestrictcost.per_tuple;
	const double pages = Max(rel->pages, 1);
	double		tuples;
	Cost		index_cost;
	Selectivity selectivity;

	cost_bitmap_tree_node(path->bitmapqual, &index_cost, &selectivity);
	tuples = clamp_row_est(selectivity * rel->tuples);
	return heap_saving(root, rel, path->path.total_cost - index_cost - tuples * tuple_cost / workers_of(&path->path),
					   2 * pages * tuples / (2 * pages + tuples) * batchexec_cost_fetch / workers_of(&path->path));
}

/* How often the inner side of a nested loop is read. */
static double
inner_loops(const JoinPath *join)
{
	const Path *inner = join->innerjoinpath;
	double		loops = Max(join->outerjoinpath->rows, 1);

	if (IsA(inner, MaterialPath))
		return 1;
	if (IsA(inner, MemoizePath))
		return Min(loops, Max(((const MemoizePath *) inner)->est_entries, 1));
	return loops;
}

/*
 * How much of one side is in the cost of a merge join, at most: it ends with the shorter
 * side, but for one that is sorted first.  The other side costs this much before its first row.
 */
static double
share_merged(const MergePath *merge, const Path *side, bool is_sorted, Cost before_other)
{
	const Cost	charged = merge->jpath.path.total_cost - before_other;

	if (is_sorted || side->total_cost <= 0 || charged >= side->total_cost)
		return 1;
	return Max(charged, 0) / side->total_cost;
}

static Cost
saving_of_merge(PlannerInfo *root, const MergePath *merge)
{
	const Path *outer = merge->jpath.outerjoinpath;
	const Path *inner = merge->jpath.innerjoinpath;
	const bool	sorts_outer = merge->outersortkeys != NIL;
	const bool	sorts_inner = merge->innersortkeys != NIL;
	const Cost	before_outer = sorts_outer ? outer->total_cost : outer->startup_cost;
	const Cost	before_inner = sorts_inner ? inner->total_cost : inner->startup_cost;

	return cost_of_input_pages(root, outer) * share_merged(merge, outer, sorts_outer, before_inner) +
		cost_of_input_pages(root, inner) * share_merged(merge, inner, sorts_inner, before_outer);
}

/*
 * What the rows of a nested loop cost that core has not reckoned with: an inner side that looks up the columns of a
 * composite key is estimated by the product of their selectivities, and the join by its key (composite_key.c).
 */
static Cost
cost_of_missing_rows(PlannerInfo *root, const Path *path)
{
	const JoinPath *join = (const JoinPath *) path;
	const Path *inner;
	double		missing;
	Cost		row = cpu_index_tuple_cost + cpu_tuple_cost;

	if (!IsA(path, NestPath) || join->innerjoinpath->param_info == NULL ||
		(join->jointype != JOIN_INNER && join->jointype != JOIN_LEFT))
		return 0;
	inner = join->innerjoinpath;
	missing = path->rows - join->outerjoinpath->rows * Max(inner->rows, 1);
	if (missing <= 0)
		return 0;
	if (IsA(inner, MemoizePath))
		inner = ((const MemoizePath *) inner)->subpath;
	if (IsA(inner, IndexPath) && inner->pathtype == T_IndexScan)
		row += cost_fetch(root, (const IndexPath *) inner);
	return missing * row;
}

static Cost
saving_of_join(PlannerInfo *root, const JoinPath *join)
{
	const Path *outer = join->outerjoinpath;
	const Path *inner = join->innerjoinpath;
	double		loops = IsA(join, NestPath) ? inner_loops(join) : 1;
	const Cost	of_outer = cost_of_input_pages(root, outer);
	const Cost	of_inner = cost_of_input_pages(root, inner) * loops;
	const Cost	inner_cost = join->path.total_cost - outer->total_cost;
	const Cost	full_inner_cost = inner->total_cost * loops;

	/* A semi join's inner side is not read to its end. */
	return of_outer + (full_inner_cost > inner_cost && full_inner_cost > 0 ?
					   of_inner * Max(inner_cost, 0) / full_inner_cost : of_inner) -
		cost_of_missing_rows(root, &join->path);
}

static Cost
saving_of_list(PlannerInfo *root, List *paths)
{
	Cost		saving = 0;
	ListCell   *cell;

	foreach(cell, paths)
		saving += cost_of_buffered_pages(root, lfirst(cell));
	return saving;
}

/* Of the cost of a path, what is charged for pages that are in shared buffers; less what it costs beside, so that it may be negative. */
Cost
cost_of_buffered_pages(PlannerInfo *root, const Path *path)
{
	if (PATH_IS_UNIQUE(path))
		return cost_of_buffered_pages(root, ((const UniquePath *) path)->subpath);
	switch (nodeTag(path))
	{
		case T_Path:
			return saving_of_scan(root, path);
		case T_IndexPath:
			return saving_of_index(root, (const IndexPath *) path);
		case T_BitmapHeapPath:
			return saving_of_bitmap(root, (const BitmapHeapPath *) path);
		case T_HashPath:
			if (path_is_batched_join(path))
				return path_join_buffered(path);
			pg_fallthrough;
		case T_NestPath:
			return saving_of_join(root, (const JoinPath *) path);
		case T_MergePath:
			return saving_of_merge(root, (const MergePath *) path);
		case T_AppendPath:
			return saving_of_list(root, ((const AppendPath *) path)->subpaths);
		case T_MergeAppendPath:
			return saving_of_list(root, ((const MergeAppendPath *) path)->subpaths);
		case T_MaterialPath:
			return cost_of_buffered_pages(root, ((const MaterialPath *) path)->subpath);
		case T_MemoizePath:
			return cost_of_buffered_pages(root, ((const MemoizePath *) path)->subpath);
		case T_GatherPath:
			return cost_of_buffered_pages(root, ((const GatherPath *) path)->subpath);
		case T_GatherMergePath:
			return cost_of_buffered_pages(root, ((const GatherMergePath *) path)->subpath);
		case T_ProjectionPath:
			return cost_of_buffered_pages(root, ((const ProjectionPath *) path)->subpath);
		case T_SortPath:
		case T_IncrementalSortPath:
			return cost_of_buffered_pages(root, ((const SortPath *) path)->subpath);
		case T_AggPath:
			/* Nor are they in that of a batched aggregation: it is below its input's. */
			if (path->total_cost < ((const AggPath *) path)->subpath->total_cost)
				return 0;
			return cost_of_buffered_pages(root, ((const AggPath *) path)->subpath);
		case T_GroupPath:
			return cost_of_buffered_pages(root, ((const GroupPath *) path)->subpath);
		case T_SubqueryScanPath:
			if (path->parent->subroot == NULL)
				return 0;
			return cost_of_buffered_pages(path->parent->subroot, ((const SubqueryScanPath *) path)->subpath);
		default:
			return 0;
	}
}

/* What a path costs, without its pages that are in shared buffers. */
Cost
cost_path_buffered(PlannerInfo *root, const Path *path)
{
	return Max(path->total_cost - cost_of_buffered_pages(root, path), 0);
}

/* The least cost of the paths that need no value from another table. */
Cost
cost_cheapest(const List *paths)
{
	Cost		cheapest = DBL_MAX;
	const ListCell *cell;

	foreach(cell, paths)
	{
		const Path *path = lfirst(cell);

		if (path->param_info == NULL)
			cheapest = Min(cheapest, path->total_cost);
	}
	return cheapest;
}

/* Is a cost less than that of each path that needs no value from another table? */
bool
cost_is_least_buffered(PlannerInfo *root, Cost cost, List *paths)
{
	ListCell   *cell;

	/* Most often the costs say so as they are. */
	foreach(cell, paths)
	{
		const Path *path = lfirst(cell);

		if (path->param_info == NULL && path->total_cost <= cost &&
			path->total_cost + cost_of_missing_rows(root, path) <= cost)
			return false;
	}
	foreach(cell, paths)
	{
		const Path *path = lfirst(cell);

		if (path->param_info == NULL && cost_path_buffered(root, path) <= cost)
			return false;
	}
	return true;
}
