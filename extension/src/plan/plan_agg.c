/*
 * plan_agg.c
 *	  Which aggregations run in batches, over a sequential scan or an Append of
 *	  some, and their nodes.
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
#include "join.h"
#include "limits.h"
#include "plan.h"

typedef struct AggContext
{
	Agg		   *agg;
	List	   *scan_targets;	/* target list of the scan below */
	bool		has_expressions;	/* some of them are no columns as they are */
	List	   *aggrefs;		/* of the node, each once, over what it reads */
	const char *obstacle;
} AggContext;

/* The sequential scans that an aggregation is right over; NIL: not such alone. */
List *
agg_scans(const Agg *agg)
{
	Plan	   *below = agg->plan.lefttree;
	ListCell   *cell;

	if (IsA(below, SeqScan))
		return list_make1(below);
	if (!IsA(below, Append))
		return NIL;
	foreach(cell, ((Append *) below)->appendplans)
		if (!IsA(lfirst(cell), SeqScan))
			return NIL;
	return ((Append *) below)->appendplans;
}

/* Is an aggregation right over a batched join? */
bool
agg_is_over_join(const Agg *agg)
{
	const Plan *below = agg->plan.lefttree;

	return IsA(below, CustomScan) &&
		((const CustomScan *) below)->methods == &batch_join_methods;
}

/* What an aggregation reads: scans, or a batched join. */
static List *
agg_inputs(const Agg *agg)
{
	return agg_is_over_join(agg) ? list_make1(agg->plan.lefttree) : agg_scans(agg);
}

/* The results of an input, in the order of what the aggregation reads. */
static List *
input_targets(const Agg *agg, const Plan *input)
{
	const Plan *below = agg->plan.lefttree;
	List	   *targets = NIL;
	ListCell   *cell;

	if (below == input)
		return below->targetlist;
	foreach(cell, below->targetlist)
	{
		TargetEntry *entry = flatCopyTargetEntry(lfirst_node(TargetEntry, cell));
		const Var  *var = (const Var *) entry->expr;

		/* A constant is one for all scans. */
		if (IsA(var, Var) && var->varno == OUTER_VAR)
			entry->expr = get_tle_by_resno(input->targetlist,
										   var->varattno)->expr;
		targets = lappend(targets, entry);
	}
	return targets;
}

/* References to the scan's results become the scan's expressions, which are shared. */
static Node *
resolve_outer(Node *node, void *scan_targets)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && ((Var *) node)->varno == OUTER_VAR)
	{
		return (Node *) target_of_number(scan_targets, ((Var *) node)->varattno)->expr;
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
		Node	   *resolved = context->has_expressions ?
			resolve_outer(node, context->scan_targets) : node;

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

/* Why our own hash table can't group by an expression of a scan, or NULL. */
const char *
key_obstacle(const Expr *key, Oid equality, Oid collation)
{
	Oid			type = exprType((const Node *) key);
	VectorOperation operation;
	ValueKind	kind;

	if (!value_kind_of_type(type, &kind))
		return psprintf("there is no batched grouping by type %s",
						format_type_be(type));
	if (!function_lookup(get_opcode(equality), &operation) ||
		operation != OPERATION_EQ)
		return "a grouping operator has no batched form";
	if (kind == VALUE_TEXT && OidIsValid(collation) &&
		!get_collation_isdeterministic(collation))
		return "a grouping key's collation is not deterministic";
	if (!expression_is_plain((Node *) key) &&
		(contain_volatile_functions((Node *) key) || contain_subplans((Node *) key)))
		return "a grouping key is volatile or holds a subquery";
	return NULL;
}

static const char *
scan_shape_obstacle(const Plan *scan)
{
	if (scan->initPlan != NIL)
		return "its scan has subqueries of its own";
	if (expression_is_plain((Node *) scan->qual))
		return NULL;
	if (contain_volatile_functions((Node *) scan->qual))
		return "a filter is volatile";
	if (contain_subplans((Node *) scan->qual))
		return "a filter holds a subquery";
	return NULL;
}

static const char *
append_obstacle(const Append *append)
{
#if PG_VERSION_NUM >= 180000
	if (append->part_prune_index >= 0)
#else
	if (append->part_prune_info != NULL)
#endif
		return "its partitions are chosen when it runs";
	if (append->plan.initPlan != NIL)
		return "its scans have subqueries of their own";
	if (list_length(append->appendplans) > AGG_TABLES_MAX)
		return psprintf("it reads more than %d tables", AGG_TABLES_MAX);
	return NULL;
}

static const char *
shape_obstacle(const Agg *agg)
{
	const Plan *below = agg->plan.lefttree;

	if (agg->groupingSets != NIL || agg->chain != NIL ||
		agg->aggstrategy == AGG_MIXED)
		return "grouping sets have no batched form";
	if (agg->aggstrategy == AGG_SORTED)
		return "its input is sorted";
	if (agg->aggsplit != AGGSPLIT_SIMPLE && agg->aggsplit != AGGSPLIT_INITIAL_SERIAL)
		return "it combines partial results";
	if (agg->numCols > GROUP_KEYS_MAX)
		return "there are too many grouping keys";
	return IsA(below, Append) ? append_obstacle((const Append *) below) : NULL;
}

static bool
holds_expression(const List *targets)
{
	ListCell   *cell;

	foreach(cell, targets)
		if (!IsA(lfirst_node(TargetEntry, cell)->expr, Var))
			return true;
	return false;
}

/* Why an aggregation can't read a scan, or NULL. */
static const char *
input_obstacle(Agg *agg, const Plan *input)
{
	AggContext	context;

	memset(&context, 0, sizeof(context));
	context.agg = agg;
	context.scan_targets = input_targets(agg, input);
	context.has_expressions = holds_expression(context.scan_targets);
	context.obstacle = scan_shape_obstacle(input);
	for (int i = 0; i < agg->numCols && context.obstacle == NULL; i++)
		context.obstacle =
			key_obstacle(get_tle_by_resno(context.scan_targets, agg->grpColIdx[i])->expr,
						 agg->grpOperators[i], agg->grpCollations[i]);
	if (context.obstacle == NULL &&
		!find_obstacle((Node *) agg->plan.targetlist, &context))
		find_obstacle((Node *) agg->plan.qual, &context);
	return context.obstacle;
}

/* Why an aggregation over sequential scans, or a batched join, can't be batched, or NULL. */
const char *
agg_obstacle(Agg *agg)
{
	const char *obstacle = shape_obstacle(agg);
	ListCell   *cell;

	if (obstacle != NULL)
		return obstacle;
	foreach(cell, agg_inputs(agg))
	{
		obstacle = input_obstacle(agg, lfirst(cell));
		if (obstacle != NULL)
			return obstacle;
	}
	return NULL;
}

/* Nodes of all expressions of an aggregation over an input, and of its filter. */
int
agg_expression_size(const Agg *agg, const Plan *input)
{
	return expression_size((Node *) list_make3(input->qual, agg->plan.targetlist,
											   agg->plan.qual),
						   input_targets(agg, input));
}

/* A reference to an entry of custom_scan_tlist: keys first, then aggregates. */
static Node *
reference_target(Node *expression, int entry)
{
	return (Node *) makeVar(INDEX_VAR, entry + 1, exprType(expression),
							exprTypmod(expression), exprCollation(expression), 0);
}

/* The number of an aggregate among all of the node, added where it is new. */
static int
aggregate_number(AggContext *context, Node *aggref)
{
	ListCell   *cell;

	/* Aggregates that are the same over one table need not be over another. */
	foreach(cell, context->aggrefs)
		if (lfirst_node(Aggref, cell)->aggno == ((const Aggref *) aggref)->aggno)
			return foreach_current_index(cell);
	context->aggrefs = lappend(context->aggrefs, aggref);
	return list_length(context->aggrefs) - 1;
}

/* Keys and aggregates become references to custom_scan_tlist. */
static Node *
reference_targets(Node *node, void *context_)
{
	AggContext *context = context_;
	const Agg  *agg = context->agg;

	if (node == NULL)
		return NULL;
	if (IsA(node, Aggref))
		return reference_target(node, agg->numCols + aggregate_number(context, node));
	if (IsA(node, Var))
	{
		/* Equal keys may come twice; each keeps its own entry. */
		for (int i = 0; i < agg->numCols; i++)
			if (agg->grpColIdx[i] == ((Var *) node)->varattno)
				return reference_target(node, i);
		elog(ERROR, "column %d is not a grouping key", ((Var *) node)->varattno);
	}
	return expression_tree_mutator(node, reference_targets, context_);
}

/* A scan as it was, with a node id of its own. */
static Plan *
copy_scan(const Plan *scan, int *next_node_id)
{
	SeqScan    *copy = makeNode(SeqScan);

	memcpy(copy, scan, sizeof(SeqScan));
	((Plan *) copy)->plan_node_id = (*next_node_id)++;
	return (Plan *) copy;
}

/* What is below an aggregation as it was, with node ids of its own. */
static Plan *
copy_below(const Plan *below, int *next_node_id)
{
	Append	   *copy;
	ListCell   *cell;

	if (IsA(below, SeqScan))
		return copy_scan(below, next_node_id);
	copy = makeNode(Append);
	memcpy(copy, below, sizeof(Append));
	copy->plan.plan_node_id = (*next_node_id)++;
	copy->appendplans = list_copy(copy->appendplans);
	foreach(cell, copy->appendplans)
		lfirst(cell) = copy_scan(lfirst(cell), next_node_id);
	return (Plan *) copy;
}

/* The aggregation as it was, with node ids of its own; over a join, without that. */
static Agg *
copy_original(const Agg *agg, int *next_node_id)
{
	Agg		   *original = makeNode(Agg);

	memcpy(original, agg, sizeof(Agg));
	original->plan.initPlan = NIL;
	original->plan.plan_node_id = (*next_node_id)++;
	original->plan.lefttree = agg_is_over_join(agg) ? NULL :
		copy_below(agg->plan.lefttree, next_node_id);
	return original;
}

/* Filters of an input, and what custom_scan_tlist is over it: keys, then aggregates. */
static List *
input_expressions(const AggContext *context, const Plan *input)
{
	const Agg  *agg = context->agg;
	List	   *scan_targets = input_targets(agg, input);
	List	   *expressions = NIL;
	ListCell   *cell;

	for (int i = 0; i < agg->numCols; i++)
	{
		TargetEntry *entry = get_tle_by_resno(scan_targets, agg->grpColIdx[i]);

		expressions = lappend(expressions, entry->expr);
	}
	foreach(cell, context->aggrefs)
		expressions = lappend(expressions, resolve_outer(lfirst(cell), scan_targets));
	return list_make2(input->qual, expressions);
}

static List *
make_targets(List *expressions)
{
	List	   *targets = NIL;
	ListCell   *cell;

	foreach(cell, expressions)
		targets = lappend(targets, makeTargetEntry(lfirst(cell),
												   foreach_current_index(cell) + 1,
												   NULL, false));
	return targets;
}

/* Note the sequential scans that a BatchAgg reads itself. */
static List *
add_scans(CustomScan *batch, const AggContext *context)
{
	const Agg  *agg = context->agg;
	const Plan *below = agg->plan.lefttree;
	List	   *scanrelids = NIL;
	ListCell   *cell;

	batch->scan.plan.lefttree = NULL;
	batch->scan.plan.parallel_aware = below->parallel_aware;
	foreach(cell, agg_scans(agg))
	{
		const Scan *scan = lfirst(cell);

		/* Where one process may share a scan, our processes share all of them. */
		batch->scan.plan.parallel_aware |= scan->plan.parallel_aware;
		scanrelids = lappend_int(scanrelids, scan->scanrelid);
		batch->custom_relids = bms_add_member(batch->custom_relids, scan->scanrelid);
	}
	/* EXPLAIN then names the tables as it does below the Append. */
	if (IsA(below, Append))
		batch->custom_relids = bms_add_members(batch->custom_relids,
											   ((const Append *) below)->apprelids);
	return scanrelids;
}

/* Does a process read a part of the rows only? */
static bool
reads_a_share(const Plan *plan)
{
	return plan != NULL && (plan->parallel_aware || reads_a_share(plan->lefttree));
}

/* The BatchAgg in place of an aggregation, over sequential scans or a batched join. */
CustomScan *
agg_to_batch(Agg *agg, int *next_node_id)
{
	CustomScan *batch = makeNode(CustomScan);
	const Plan *below = agg->plan.lefttree;
	const bool	is_over_join = agg_is_over_join(agg);
	AggContext	context;
	List	   *scanrelids;
	List	   *targets;
	ListCell   *cell;

	memset(&context, 0, sizeof(context));
	context.agg = agg;
	batch->scan.plan = agg->plan;
	NodeSetTag(batch, T_CustomScan);
	batch->scan.plan.targetlist = (List *)
		reference_targets((Node *) agg->plan.targetlist, &context);
	batch->scan.plan.qual = (List *)
		reference_targets((Node *) agg->plan.qual, &context);
	batch->scan.scanrelid = 0;
	foreach(cell, agg_inputs(agg))
		batch->custom_exprs = lappend(batch->custom_exprs,
									  input_expressions(&context, lfirst(cell)));
	scanrelids = is_over_join ? list_make1_int(INDEX_VAR) : add_scans(batch, &context);
	targets = lsecond(linitial(batch->custom_exprs));
	if (is_over_join)
		targets = (List *) display_expression(below, (Node *) targets);
	batch->custom_scan_tlist = make_targets(targets);
	batch->custom_private = list_make4(scanrelids, makeInteger(agg->numCols),
									   makeInteger(agg->aggstrategy != AGG_PLAIN),
									   makeInteger(reads_a_share(below) ||
												   batch->scan.plan.parallel_aware));
	batch->custom_plans = list_make1(copy_original(agg, next_node_id));
	batch->methods = &batch_agg_methods;
	batch->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	return batch;
}
