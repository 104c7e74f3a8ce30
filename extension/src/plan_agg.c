/*
 * plan_agg.c
 *	  Which aggregations over a sequential scan run in batches, and their nodes.
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "aggregate.h"
#include "group.h"
#include "plan.h"

typedef struct AggContext
{
	Agg		   *agg;
	List	   *scan_targets;	/* target list of the scan below */
	List	   *targets;		/* custom_scan_tlist: keys, then aggregates */
	const char *obstacle;
} AggContext;

/* References to the scan's results become the scan's expressions. */
static Node *
resolve_outer(Node *node, void *scan_targets)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && ((Var *) node)->varno == OUTER_VAR)
	{
		TargetEntry *entry = get_tle_by_resno((List *) scan_targets,
											  ((Var *) node)->varattno);

		return copyObject((Node *) entry->expr);
	}
	return expression_tree_mutator(node, resolve_outer, scan_targets);
}

static bool
is_group_column(const Agg *agg, AttrNumber attno)
{
	for (int i = 0; i < agg->numCols; i++)
		if (agg->grpColIdx[i] == attno)
			return true;
	return false;
}

/* Check the aggregates, and columns outside of them, of a target list. */
static bool
find_obstacle(Node *node, void *context_)
{
	AggContext *context = context_;

	if (node == NULL)
		return false;
	if (IsA(node, Aggref))
	{
		Node	   *resolved = resolve_outer(node, context->scan_targets);

		context->obstacle = aggregate_obstacle((Aggref *) resolved);
		return context->obstacle != NULL;
	}
	if (IsA(node, Var) &&
		(((Var *) node)->varno != OUTER_VAR ||
		 !is_group_column(context->agg, ((Var *) node)->varattno)))
	{
		context->obstacle = "a column that is not a grouping key is returned";
		return true;
	}
	if (IsA(node, GroupingFunc))
	{
		context->obstacle = "grouping sets have no batched form";
		return true;
	}
	return expression_tree_walker(node, find_obstacle, context_);
}

/* May a column be grouped by our own hash table? */
static const char *
key_obstacle(const AggContext *context, int column)
{
	const Agg  *agg = context->agg;
	TargetEntry *entry = get_tle_by_resno(context->scan_targets,
										  agg->grpColIdx[column]);
	Oid			type = exprType((Node *) entry->expr);
	Oid			collation = agg->grpCollations[column];
	VectorOperation operation;
	ValueKind	kind;

	if (!value_kind_of_type(type, &kind))
		return psprintf("there is no batched grouping by type %s",
						format_type_be(type));
	if (!function_lookup(get_opcode(agg->grpOperators[column]), &operation) ||
		operation != OPERATION_EQ)
		return "a grouping operator has no batched form";
	if (kind == VALUE_TEXT && OidIsValid(collation) &&
		!get_collation_isdeterministic(collation))
		return "a grouping key's collation is not deterministic";
	if (contain_volatile_functions((Node *) entry->expr) ||
		contain_subplans((Node *) entry->expr))
		return "a grouping key is volatile or holds a subquery";
	return NULL;
}

static const char *
shape_obstacle(const Agg *agg)
{
	const Plan *scan = agg->plan.lefttree;

	if (agg->groupingSets != NIL || agg->chain != NIL ||
		agg->aggstrategy == AGG_MIXED)
		return "grouping sets have no batched form";
	if (agg->aggstrategy == AGG_SORTED)
		return "its input is sorted";
	if (agg->aggsplit != AGGSPLIT_SIMPLE && agg->aggsplit != AGGSPLIT_INITIAL_SERIAL)
		return "it combines partial results";
	if (agg->numCols > GROUP_KEYS_MAX)
		return "there are too many grouping keys";
	if (scan->initPlan != NIL)
		return "its scan has subqueries of its own";
	if (contain_volatile_functions((Node *) scan->qual))
		return "a filter is volatile";
	if (contain_subplans((Node *) scan->qual))
		return "a filter holds a subquery";
	return NULL;
}

/* Why an aggregation over a sequential scan can't be batched, or NULL. */
const char *
agg_obstacle(Agg *agg)
{
	AggContext	context;

	memset(&context, 0, sizeof(context));
	context.agg = agg;
	context.scan_targets = agg->plan.lefttree->targetlist;
	context.obstacle = shape_obstacle(agg);
	for (int i = 0; i < agg->numCols && context.obstacle == NULL; i++)
		context.obstacle = key_obstacle(&context, i);
	if (context.obstacle == NULL &&
		!find_obstacle((Node *) agg->plan.targetlist, &context))
		find_obstacle((Node *) agg->plan.qual, &context);
	return context.obstacle;
}

/* Nodes of all expressions of an aggregation and of its scan's filter. */
int
agg_expression_size(Agg *agg)
{
	const Plan *scan = agg->plan.lefttree;

	return expression_size((Node *) list_make3(scan->qual, agg->plan.targetlist,
											   agg->plan.qual),
						   scan->targetlist);
}

/* A reference to an entry of custom_scan_tlist, added where it is new. */
static Node *
reference_target(AggContext *context, Node *expression)
{
	ListCell   *cell;
	TargetEntry *entry = NULL;

	foreach(cell, context->targets)
	{
		entry = lfirst(cell);
		if (equal(entry->expr, expression))
			break;
	}
	if (cell == NULL)
	{
		entry = makeTargetEntry((Expr *) expression,
								list_length(context->targets) + 1, NULL, false);
		context->targets = lappend(context->targets, entry);
	}
	return (Node *) makeVar(INDEX_VAR, entry->resno, exprType(expression),
							exprTypmod(expression), exprCollation(expression), 0);
}

/* Keys and aggregates become references to custom_scan_tlist. */
static Node *
reference_targets(Node *node, void *context_)
{
	AggContext *context = context_;

	if (node == NULL)
		return NULL;
	if (IsA(node, Aggref))
		return reference_target(context,
								resolve_outer(node, context->scan_targets));
	if (IsA(node, Var))
	{
		/* Equal keys may come twice; each keeps its own entry. */
		for (int i = 0; i < context->agg->numCols; i++)
		{
			TargetEntry *entry = list_nth(context->targets, i);

			if (context->agg->grpColIdx[i] == ((Var *) node)->varattno)
				return (Node *) makeVar(INDEX_VAR, entry->resno,
										exprType((Node *) entry->expr),
										exprTypmod((Node *) entry->expr),
										exprCollation((Node *) entry->expr), 0);
		}
		elog(ERROR, "column %d is not a grouping key", ((Var *) node)->varattno);
	}
	return expression_tree_mutator(node, reference_targets, context_);
}

/* The first entries of custom_scan_tlist. */
static List *
key_targets(const AggContext *context)
{
	List	   *targets = NIL;

	for (int i = 0; i < context->agg->numCols; i++)
	{
		TargetEntry *entry = get_tle_by_resno(context->scan_targets,
											  context->agg->grpColIdx[i]);

		targets = lappend(targets, makeTargetEntry(copyObject(entry->expr),
												   i + 1, NULL, false));
	}
	return targets;
}

/* The aggregation as it was, with node ids of its own. */
static Agg *
copy_original(const Agg *agg, int *next_node_id)
{
	Agg		   *original = makeNode(Agg);
	SeqScan    *scan = makeNode(SeqScan);

	memcpy(original, agg, sizeof(Agg));
	memcpy(scan, agg->plan.lefttree, sizeof(SeqScan));
	original->plan.lefttree = (Plan *) scan;
	original->plan.initPlan = NIL;
	original->plan.plan_node_id = (*next_node_id)++;
	((Plan *) scan)->plan_node_id = (*next_node_id)++;
	return original;
}

/* The BatchAgg in place of an aggregation and its sequential scan. */
CustomScan *
agg_to_batch(Agg *agg, int *next_node_id)
{
	CustomScan *batch = makeNode(CustomScan);
	Plan	   *scan = agg->plan.lefttree;
	int			scanrelid = ((Scan *) scan)->scanrelid;
	AggContext	context;

	memset(&context, 0, sizeof(context));
	context.agg = agg;
	context.scan_targets = scan->targetlist;
	context.targets = key_targets(&context);
	batch->scan.plan = agg->plan;
	NodeSetTag(batch, T_CustomScan);
	batch->scan.plan.lefttree = NULL;
	batch->scan.plan.parallel_aware = scan->parallel_aware;
	batch->scan.plan.targetlist = (List *)
		reference_targets((Node *) agg->plan.targetlist, &context);
	batch->scan.plan.qual = (List *)
		reference_targets((Node *) agg->plan.qual, &context);
	batch->scan.scanrelid = 0;
	batch->custom_scan_tlist = context.targets;
	batch->custom_exprs = copyObject(scan->qual);
	batch->custom_private = list_make3(makeInteger(scanrelid),
									   makeInteger(agg->numCols),
									   makeInteger(agg->aggstrategy != AGG_PLAIN));
	batch->custom_plans = list_make1(copy_original(agg, next_node_id));
	batch->custom_relids = bms_make_singleton(scanrelid);
	batch->methods = &batch_agg_methods;
	batch->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	return batch;
}
