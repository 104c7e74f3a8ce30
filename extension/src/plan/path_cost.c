/*
 * path_cost.c
 *	  What paths of a table cost where its pages are in shared buffers.
 *
 * The stock model charges each page as one from disk: an index scan of 15,000
 * buffered pages is charged 60,000 units, and takes the time of a thousand.  So the pages in
 * shared buffers are taken out of the costs of a table's own paths, when these are made: all
 * that is above them, by row or in batches, is then compared on one scale.
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
#include "optimizer/pathnode.h"

#include "cost.h"
#include "plan.h"
#include "server.h"

/* Pages of a B-tree that core charges for on the way down, in operators a level. */
#define DESCENT_OPERATORS	50

/* The share of the cost of fetching a row that is saved where rows follow the order of their index. */
#define IN_ORDER_SAVING		0.8

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

/* What is left out of the cost of a sequential scan of a whole table. */
Cost
cost_scan_buffered(PlannerInfo *root, RelOptInfo *rel)
{
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
Cost
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

	return page_saving(root, rel, index_page_cost(path, tuples)) +
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

static Cost
saving_of_path(PlannerInfo *root, const Path *path)
{
	switch (nodeTag(path))
	{
		case T_Path:
			return path->pathtype == T_SeqScan ? cost_scan_buffered(root, path->parent) : 0;
		case T_IndexPath:
			return saving_of_index(root, (const IndexPath *) path);
		case T_BitmapHeapPath:
			return saving_of_bitmap(root, (const BitmapHeapPath *) path);
		default:
			return 0;
	}
}

/* Take the pages in shared buffers out of the cost of a path that was just made. */
void
cost_path_buffered(PlannerInfo *root, Path *path)
{
	path->total_cost = Max(path->total_cost - saving_of_path(root, path), path->startup_cost);
}

/* Has a table pages of its own, whose number is known? */
static bool
has_pages(const RelOptInfo *rel)
{
	return IS_SIMPLE_REL(rel) && rel->rtekind == RTE_RELATION && rel->pages > 0 && rel->fdwroutine == NULL;
}

/* Take the pages in shared buffers out of the costs of all paths of a table, and keep those that are still of use. */
void
cost_paths_buffered(PlannerInfo *root, RelOptInfo *rel)
{
	const List *paths = rel->pathlist;
	const List *partial_paths = rel->partial_pathlist;
	ListCell   *cell;

	if (!has_pages(rel) || cost_buffered_share(root, rel) <= 0)
		return;
	rel->pathlist = rel->partial_pathlist = NIL;
	foreach(cell, paths)
	{
		cost_path_buffered(root, lfirst(cell));
		add_path(rel, lfirst(cell));
	}
	foreach(cell, partial_paths)
	{
		cost_path_buffered(root, lfirst(cell));
		add_partial_path(rel, lfirst(cell));
	}
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
