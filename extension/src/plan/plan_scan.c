/*
 * plan_scan.c
 *	  Which sequential scans run in batches, and their plan nodes.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_class.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/rel.h"

#include "plan.h"
#include "source.h"
#include "top_rows.h"

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
	return expression_tree_walker(node, uses_row_identity, scanrelid);
}

/* The same of a target list, most of which are columns. */
static bool
targets_use_row_identity(const List *targets, int scanrelid)
{
	ListCell   *cell;

	foreach(cell, targets)
	{
		Node	   *target = (Node *) lfirst_node(TargetEntry, cell)->expr;

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
		relation->rd_rel->relkind != RELKIND_TOASTVALUE)
		obstacle = "it is not a plain table";
	else if (source_of_relation(relation) == NULL)
		obstacle = "its access method is not heap, and has registered no source of batches";
	RelationClose(relation);
	return obstacle;
}

/* Why a scan can't be batched, or NULL. */
const char *
scan_obstacle(PlannedStmt *statement, SeqScan *scan)
{
	int			scanrelid = ((Scan *) scan)->scanrelid;
	RangeTblEntry *entry = rt_fetch(scanrelid, statement->rtable);
	Plan	   *plan = (Plan *) scan;

	if (entry->rtekind != RTE_RELATION)
		return "it is not a table";
	if (targets_use_row_identity(plan->targetlist, scanrelid) ||
		uses_row_identity((Node *) plan->qual, &scanrelid))
		return "a system column or a whole row is used";
	return table_obstacle(entry->relid);
}

/* The BatchScan in place of a sequential scan. */
CustomScan *
scan_to_batch(SeqScan *scan, const RowDemand *demand, int child_node_id)
{
	CustomScan *batch = makeNode(CustomScan);
	SeqScan    *original = makeNode(SeqScan);

	memcpy(original, scan, sizeof(SeqScan));
	((Plan *) original)->plan_node_id = child_node_id;
	((Plan *) original)->initPlan = NIL;
	batch->scan.plan = *(Plan *) scan;
	NodeSetTag(batch, T_CustomScan);
	batch->scan.scanrelid = ((Scan *) scan)->scanrelid;
	batch->custom_plans = list_make1(original);
	batch->custom_private = list_make2(demand_to_list(demand), NIL);
	batch->custom_relids = bms_make_singleton(batch->scan.scanrelid);
	batch->methods = &batch_scan_methods;
	/* The executor projects for us where the target list asks for it. */
	batch->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	return batch;
}

/* Tell a BatchScan of the Sort right above it. */
void
scan_note_sort(CustomScan *batch, const Sort *sort)
{
	lsecond(batch->custom_private) = top_rows_of_sort(sort);
}
