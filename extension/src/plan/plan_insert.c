/*
 * plan_insert.c
 *	  Which INSERTs write their rows in batches.
 *
 * Rows are kept until there are enough of them for a few pages.  So nothing may
 * look at the table between two rows: no trigger, no volatile function.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/tableam.h"
#include "catalog/catalog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_proc.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "batchexec.h"
#include "insert.h"
#include "batch_limits.h"
#include "server.h"

/* A volatile function that might look at a table. */
static bool
may_look_at_tables(Oid function, void *context)
{
	(void) context;
	switch (function)
	{
		case F_NEXTVAL:
		case F_RANDOM_:
		case F_CLOCK_TIMESTAMP:
		case F_GEN_RANDOM_UUID:
			return false;
		default:
			return func_volatile(function) == PROVOLATILE_VOLATILE;
	}
}

/* Notes what does in *obstacle, a C string. */
static bool
looks_at_tables(Node *node, void *obstacle)
{
	if (node == NULL)
		return false;
	if (check_functions_in_node(node, may_look_at_tables, NULL))
	{
		*(const char **) obstacle = "a volatile function might look at the rows that were inserted";
		return true;
	}
	if (IsA(node, CoerceToDomain) &&
		DOMAIN_HAS_CONSTRAINTS(((const CoerceToDomain *) node)->resulttype))
	{
		*(const char **) obstacle = "a domain's constraint might look at the rows that were inserted";
		return true;
	}
	/* nextval() of an identity column. */
	if (IsA(node, NextValueExpr))
		return false;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, looks_at_tables, obstacle, 0);
	return expression_tree_walker(node, looks_at_tables, obstacle);
}

/* Might a query look at a table that its rows go to? */
bool
query_looks_at_tables(Query *query)
{
	const char *obstacle = NULL;

	(void) looks_at_tables((Node *) query, &obstacle);
	return obstacle != NULL;
}

/*
 * Why an INSERT can't keep its rows for a while, or NULL.  Looks at it before it is
 * planned; a query that only inserts VALUES of one row is not looked at.
 */
const char *
insert_query_obstacle(Query *query)
{
	const char *obstacle = NULL;

	if (query->commandType != CMD_INSERT || query->jointree == NULL ||
		query->jointree->fromlist == NIL)
		return NULL;
	(void) looks_at_tables((Node *) query, &obstacle);
	return obstacle;
}

/* Why a table's constraints have to be checked row by row, or NULL. */
static const char *
constraint_obstacle(const TupleConstr *constraints)
{
	if (constraints == NULL)
		return NULL;
	if (HAS_GENERATED_COLUMNS(constraints))
		return "its table has generated columns";
	for (int i = 0; i < constraints->num_check; i++)
		if (contain_volatile_functions(stringToNode(constraints->check[i].ccbin)))
			return "a constraint of its table is volatile";
	return NULL;
}

static bool
has_deferrable_index(Relation relation)
{
	List	   *indexes = RelationGetIndexList(relation);
	bool		found = false;
	ListCell   *cell;

	foreach(cell, indexes)
	{
		HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(cell)));

		if (!HeapTupleIsValid(tuple))
			continue;
		found |= !((Form_pg_index) GETSTRUCT(tuple))->indimmediate;
		ReleaseSysCache(tuple);
	}
	list_free(indexes);
	return found;
}

static bool
has_insert_triggers(const TriggerDesc *triggers)
{
	return triggers != NULL &&
		(triggers->trig_insert_before_row || triggers->trig_insert_after_row ||
		 triggers->trig_insert_instead_row || triggers->trig_insert_before_statement ||
		 triggers->trig_insert_after_statement || triggers->trig_insert_new_table);
}

/* Why rows of an INSERT into a table have to be written one by one, or NULL. */
static const char *
target_obstacle(Relation relation)
{
	if (relation->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		return "its table is partitioned";
	if (relation->rd_rel->relkind != RELKIND_RELATION)
		return "it does not write to a plain table";
	if (relation->rd_tableam != GetHeapamTableAmRoutine())
		return "the access method of its table is not heap";
	if (IsSystemRelation(relation))
		return "its table is a system table";
	/* A deferrable constraint has a trigger, too. */
	if (has_deferrable_index(relation))
		return "its table has a deferrable constraint";
	if (has_insert_triggers(relation->trigdesc))
		return "its table has triggers or foreign keys";
	return constraint_obstacle(RelationGetDescr(relation)->constr);
}

/* Are the rows of a plan what the table stores, column by column? */
static bool
targets_fit_table(const List *targets, TupleDesc descriptor)
{
	ListCell   *cell;

	if (list_length(targets) != descriptor->natts)
		return false;
	foreach(cell, targets)
	{
		const TargetEntry *entry = lfirst_node(TargetEntry, cell);
		Form_pg_attribute attribute = TupleDescAttr(descriptor, entry->resno - 1);

		if (entry->resjunk ||
			(!attribute->attisdropped && exprType((Node *) entry->expr) != attribute->atttypid))
			return false;
	}
	return true;
}

/* Why an INSERT can't be batched, beside insert_query_obstacle, or NULL. */
const char *
insert_obstacle(const PlannedStmt *statement, const ModifyTable *insert)
{
	const char *obstacle = NULL;
	Relation	relation;

	if (insert->returningLists != NIL)
		return "it has RETURNING";
	if (insert->onConflictAction != ONCONFLICT_NONE)
		return "it has ON CONFLICT";
	if (insert->withCheckOptionLists != NIL)
		return "a view or a policy checks its rows";
	if (list_length(insert->resultRelations) != 1)
		return "it writes to several tables";
	relation = RelationIdGetRelation(rt_fetch(linitial_int(insert->resultRelations),
											  statement->rtable)->relid);
	if (relation == NULL)
		return "the table is gone";
	obstacle = target_obstacle(relation);
	if (obstacle == NULL &&
		!targets_fit_table(insert->plan.lefttree->targetlist, RelationGetDescr(relation)))
		obstacle = "the columns of its query are not those of its table";
	RelationClose(relation);
	return obstacle;
}

/* Has an INSERT enough rows for batches to pay? */
bool
insert_pays(const ModifyTable *insert)
{
	return batchexec_mode != BATCH_MODE_ALLOW ||
		insert->plan.lefttree->plan_rows >= INSERT_ROWS_TO_PAY;
}

/* The BatchInsert in place of an INSERT.  Its rows come from the plan below the original. */
CustomScan *
insert_to_batch(ModifyTable *insert, int original_node_id)
{
	CustomScan *batch = makeNode(CustomScan);
	ModifyTable *original = makeNode(ModifyTable);
	const int	target = linitial_int(insert->resultRelations);

	memcpy(original, insert, sizeof(ModifyTable));
	original->plan.plan_node_id = original_node_id;
	original->plan.initPlan = NIL;
	batch->scan.plan = insert->plan;
	NodeSetTag(batch, T_CustomScan);
	batch->scan.plan.lefttree = NULL;
	batch->custom_plans = list_make1(original);
	batch->custom_private = list_make2(makeInteger(target), makeInteger(insert->canSetTag));
	batch->custom_relids = bms_make_singleton(target);
	batch->methods = &batch_insert_methods;
	return batch;
}
