/*
 * plan_scan.c
 *	  Which scans of tables run in batches, and their plan nodes.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "cost.h"
#include "heap_source.h"
#include "batch_limits.h"
#include "plan.h"
#include "server.h"
#include "source.h"
#include "top_rows.h"
#include "walk.h"

/* A system column or a whole-row reference of the scanned table. */
static bool
uses_row_identity(Node *node, void *scanrelid)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		Var		   *var = (Var *) node;

		return var->varno == *(int *) scanrelid && var->varattno <= 0 &&
			var->varlevelsup == 0;
	}
	if (IsA(node, CurrentOfExpr))
		return true;
	return walk_below(node, uses_row_identity, scanrelid);
}

/*
 * The same of a target list, most of which are columns.  An UPDATE or DELETE takes the
 * address of a row, and its table's, as they are.
 */
static bool
targets_use_row_identity(const List *targets, int scanrelid, bool changes_rows)
{
	ListCell   *cell;

	foreach(cell, targets)
	{
		Node	   *target = (Node *) lfirst_node(TargetEntry, cell)->expr;

		if (changes_rows && IsA(target, Var) &&
			(((const Var *) target)->varattno == SelfItemPointerAttributeNumber ||
			 ((const Var *) target)->varattno == TableOidAttributeNumber))
			continue;
		if ((!IsA(target, Var) || ((const Var *) target)->varattno <= 0) &&
			uses_row_identity(target, &scanrelid))
			return true;
	}
	return false;
}

/* Why a table can't be read in batches, or NULL. */
const char *
table_obstacle(Oid relid)
{
	Relation	relation = RelationIdGetRelation(relid);
	const char *obstacle = NULL;

	if (relation == NULL)
		return "the table is gone";
	if (relation->rd_rel->relkind != RELKIND_RELATION &&
		relation->rd_rel->relkind != RELKIND_MATVIEW &&
		relation->rd_rel->relkind != RELKIND_TOASTVALUE &&
		relation->rd_rel->relkind != RELKIND_FOREIGN_TABLE)
		obstacle = "it is not a plain table";
	else if (source_of_relation(relation) == NULL)
		obstacle = relation->rd_rel->relkind == RELKIND_FOREIGN_TABLE ?
			"its foreign data wrapper has registered no source of batches" :
			"its access method is not heap, and has registered no source of batches";
	RelationClose(relation);
	return obstacle;
}

/* Why rows of a table can't be batched that are named by their addresses, or NULL. */
static const char *
heap_obstacle(Oid relid)
{
	Relation	relation = RelationIdGetRelation(relid);
	const char *obstacle = NULL;

	if (relation == NULL)
		return "the table is gone";
	if (source_of_relation(relation) != &heap_source_ops)
		obstacle = "its access method is not heap";
	RelationClose(relation);
	return obstacle;
}

/* Why the scan of a foreign table can't be batched, beside scan_obstacle, or NULL. */
static const char *
foreign_scan_obstacle(const ForeignScan *scan, Oid relid)
{
	const char *obstacle = cost_table_obstacle(relid);

	if (obstacle != NULL)
		return obstacle;
	if (scan->operation != CMD_SELECT)
		return "its foreign data wrapper modifies rows";
	/* Then what is left of the conditions is all that is to be checked. */
	if (scan->fdw_exprs != NIL || scan->fdw_recheck_quals != NIL)
		return "its foreign data wrapper checks conditions";
	if (scan->fdw_scan_tlist != NIL || scan->scan.plan.lefttree != NULL)
		return "its foreign data wrapper returns other than the table's columns";
	if (scan->fsSystemCol)
		return "a system column or a whole row is used";
	if (scan->scan.plan.parallel_aware)
		return "parallel workers share it";
	if (scan->scan.plan.async_capable)
		return "it runs asynchronously";
	return NULL;
}

/* Does a plan read all of a table: by a sequential scan, or as a foreign data wrapper does? */
bool
plan_is_table_scan(const Plan *plan)
{
	return IsA(plan, SeqScan) ||
		(IsA(plan, ForeignScan) && ((const Scan *) plan)->scanrelid > 0);
}

/* A copy of such a plan; what it refers to is shared. */
Plan *
copy_table_scan(const Plan *scan)
{
	const Size	bytes = IsA(scan, ForeignScan) ? sizeof(ForeignScan) : sizeof(SeqScan);

	return memcpy(palloc(bytes), scan, bytes);
}

/* Why a scan can't be batched, or NULL. */
const char *
scan_obstacle(PlannedStmt *statement, Scan *scan)
{
	int			scanrelid = scan->scanrelid;
	RangeTblEntry *entry = rt_fetch(scanrelid, statement->rtable);
	Plan	   *plan = (Plan *) scan;
	const char *obstacle;

	if (entry->rtekind != RTE_RELATION)
		return "it is not a table";
	obstacle = IsA(scan, ForeignScan) ?
		foreign_scan_obstacle((const ForeignScan *) scan, entry->relid) : NULL;
	if (obstacle != NULL)
		return obstacle;
	if (targets_use_row_identity(plan->targetlist, scanrelid,
								 query_changes_rows(statement->commandType)) ||
		uses_row_identity((Node *) plan->qual, &scanrelid))
		return "a system column or a whole row is used";
	/* Other sources need not know the addresses of their rows. */
	if (query_changes_rows(statement->commandType))
		return heap_obstacle(entry->relid);
	return cost_table_obstacle(entry->relid);
}

/* Why a scan of the rows of a bitmap can't be batched, beside scan_obstacle, or NULL. */
const char *
bitmap_scan_obstacle(PlannedStmt *statement, BitmapHeapScan *scan)
{
	const char *obstacle = scan_obstacle(statement, &scan->scan);
	int			scanrelid = scan->scan.scanrelid;

	if (obstacle != NULL)
		return obstacle;
	if (scan->scan.plan.parallel_aware)
		return "parallel workers share its bitmap";
	if (uses_row_identity((Node *) scan->bitmapqualorig, &scanrelid))
		return "a system column or a whole row is used";
	return heap_obstacle(rt_fetch(scanrelid, statement->rtable)->relid);
}

/* The first column of a B-tree index; InvalidAttrNumber: it is none, or begins with an expression. */
static AttrNumber
first_indexed_column(Oid index)
{
	Relation	relation = RelationIdGetRelation(index);
	AttrNumber	column = InvalidAttrNumber;

	if (relation == NULL)
		return InvalidAttrNumber;
	if (relation->rd_rel->relam == BTREE_AM_OID)
		column = relation->rd_index->indkey.values[0];
	RelationClose(relation);
	return column;
}

/* Why an index scan can't fetch rows a page at a time, beside scan_obstacle, or NULL. */
const char *
index_scan_obstacle(PlannedStmt *statement, IndexScan *scan, const RowDemand *demand)
{
	const char *obstacle = scan_obstacle(statement, &scan->scan);
	const Oid	relid = rt_fetch(scan->scan.scanrelid, statement->rtable)->relid;
	AttrNumber	column;

	if (obstacle != NULL)
		return obstacle;
	if (scan->scan.plan.parallel_aware)
		return "parallel workers share its index";
	if (demand->may_stop || demand->limits != NIL)
		return "it may be stopped before its end";
	column = first_indexed_column(scan->indexid);
	if (column == InvalidAttrNumber || scan->indexorderby != NIL)
		return "its index is not a B-tree of columns";
	obstacle = heap_obstacle(relid);
	if (obstacle == NULL && batchexec_mode == BATCH_MODE_ALLOW &&
		cost_order_correlation(relid, column) < INDEX_CORRELATION_MIN)
		return "its rows are not in the order of the index";
	return obstacle;
}

static CustomScan *
make_batch_scan(const Plan *scan, Plan *original, const RowDemand *demand, int child_node_id)
{
	CustomScan *batch = makeNode(CustomScan);

	original->plan_node_id = child_node_id;
	original->initPlan = NIL;
	batch->scan.plan = *scan;
	NodeSetTag(batch, T_CustomScan);
	batch->scan.scanrelid = ((const Scan *) scan)->scanrelid;
	batch->custom_plans = list_make1(original);
	batch->custom_private = list_make2(demand_to_list(demand), NIL);
	batch->custom_relids = bms_make_singleton(batch->scan.scanrelid);
	batch->methods = &batch_scan_methods;
	/* The executor projects for us where the target list asks for it. */
	batch->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	return batch;
}

/*
 * The BatchScan in place of a bitmap scan.  It checks the condition of the index on all
 * rows: they meet it where the bitmap is exact, and a vector's comparison takes little.
 */
CustomScan *
bitmap_scan_to_batch(BitmapHeapScan *scan, const RowDemand *demand, int child_node_id)
{
	BitmapHeapScan *original = makeNode(BitmapHeapScan);
	CustomScan *batch;

	memcpy(original, scan, sizeof(BitmapHeapScan));
	batch = make_batch_scan((const Plan *) scan, (Plan *) original, demand, child_node_id);
	/* The original keeps the plan of the bitmap. */
	batch->scan.plan.lefttree = NULL;
	batch->scan.plan.qual = list_concat_copy(scan->bitmapqualorig, scan->scan.plan.qual);
	return batch;
}

/* The BatchScan in place of an index scan; a copy of that, without a filter, finds the rows. */
CustomScan *
index_scan_to_batch(IndexScan *scan, const RowDemand *demand, int *next_node_id)
{
	IndexScan  *original = makeNode(IndexScan);
	IndexScan  *finder = makeNode(IndexScan);
	CustomScan *batch;

	memcpy(original, scan, sizeof(IndexScan));
	memcpy(finder, scan, sizeof(IndexScan));
	batch = make_batch_scan((const Plan *) scan, (Plan *) original, demand, (*next_node_id)++);
	finder->scan.plan.plan_node_id = (*next_node_id)++;
	finder->scan.plan.qual = NIL;
	finder->scan.plan.initPlan = NIL;
	batch->custom_plans = lappend(batch->custom_plans, finder);
	return batch;
}

/* The BatchScan in place of a scan of all of a table. */
CustomScan *
scan_to_batch(const Scan *scan, const RowDemand *demand, int child_node_id)
{
	return make_batch_scan(&scan->plan, copy_table_scan(&scan->plan), demand, child_node_id);
}

/* Tell a BatchScan of the Sort right above it. */
void
scan_note_sort(CustomScan *batch, const Sort *sort)
{
	lsecond(batch->custom_private) = top_rows_of_sort(sort);
}
