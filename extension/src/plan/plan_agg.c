/*
 * plan_agg.c
 *	  Which aggregations run in batches, over the scan of a table or an Append of
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
#include "batch_limits.h"
#include "plan.h"
#include "rows.h"
#include "server.h"
#include "walk.h"

typedef struct AggContext
{
	Agg		   *agg;
	Grouping	grouping;
	List	   *groupings;		/* GROUPING() calls of the node, each once */
	bool		has_distinct;	/* an aggregate of a DISTINCT argument */
	bool		depends_on_order;	/* an aggregate's result does, on that of the rows */
	bool		keeps_values;	/* an aggregate does, in the order of the rows */
	List	   *scan_targets;	/* target list of the scan below */
	bool		has_expressions;	/* some of them are no columns as they are */
	List	   *aggrefs;		/* of the node, each once, over what it reads */
	const char *obstacle;
} AggContext;

/* The scans of tables that an aggregation is right over; NIL: not such alone. */
List *
agg_scans(const Agg *agg)
{
	Plan	   *below = agg_below(agg);
	ListCell   *cell;

	if (plan_is_table_scan(below))
		return list_make1(below);
	if (!IsA(below, Append))
		return NIL;
	foreach(cell, ((Append *) below)->appendplans)
		if (!plan_is_table_scan(lfirst(cell)))
			return NIL;
	return ((Append *) below)->appendplans;
}

static bool
is_batched_join(const Plan *plan)
{
	return IsA(plan, CustomScan) &&
		((const CustomScan *) plan)->methods == &batch_join_methods;
}

/*
 * Is an aggregation right over a node that hands on batches: a join, rows that are gathered, or the scan of rows
 * that an index finds?  Other scans it reads itself.
 */
bool
agg_is_over_batches(const Agg *agg)
{
	const Plan *below = agg_below(agg);

	return is_batched_join(below) || plan_is_batch_rows(below) ||
		(plan_is_batched_scan(below) &&
		 !plan_is_table_scan(linitial(((const CustomScan *) below)->custom_plans)));
}

/* Does an aggregation read a foreign table itself? */
static bool
reads_foreign_table(const List *inputs)
{
	ListCell   *cell;

	foreach(cell, inputs)
		if (IsA(lfirst(cell), ForeignScan))
			return true;
	return false;
}

/* The results of an input, in the order of what the aggregation reads. */
static List *
input_targets(const Agg *agg, const Plan *input)
{
	const Plan *below = agg_below(agg);
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
		context->has_distinct |= (((Aggref *) node)->aggdistinct != NIL);
		context->depends_on_order |= !aggregate_takes_any_order((Aggref *) node);
		context->keeps_values |= aggregate_keeps_values((Aggref *) node);
		return context->obstacle != NULL;
	}
	if (IsA(node, GroupingFunc))
		return false;
	if (IsA(node, Var) &&
		(((Var *) node)->varno != OUTER_VAR ||
		 grouping_key(&context->grouping, ((Var *) node)->varattno) < 0))
	{
		context->obstacle = "a column that is not a grouping key is returned";
		return true;
	}
	return walk_below(node, find_obstacle, context_);
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
	if (APPEND_IS_PRUNED(append))
		return "its partitions are chosen when it runs";
	if (append->plan.initPlan != NIL)
		return "its scans have subqueries of their own";
	if (list_length(append->appendplans) > AGG_TABLES_MAX)
		return psprintf("it reads more than %d tables", AGG_TABLES_MAX);
	return NULL;
}

/* Do parallel workers share what an aggregation reads?  Where they share one table, they share all. */
static bool
shares_input(const Agg *agg, const List *inputs)
{
	ListCell   *cell;

	foreach(cell, inputs)
		if (((const Plan *) lfirst(cell))->parallel_aware)
			return true;
	return agg_below(agg)->parallel_aware;
}

static const char *
shape_obstacle(const Agg *agg, const List *inputs)
{
	const Plan *below = agg_below(agg);

	if (agg->aggstrategy == AGG_SORTED &&
		(!agg_is_over_sort(agg) || agg->groupingSets != NIL))
		return "its input is sorted";
	if (agg->aggsplit != AGGSPLIT_SIMPLE && agg->aggsplit != AGGSPLIT_INITIAL_SERIAL)
		return "it combines partial results";
	if (reads_foreign_table(inputs) && shares_input(agg, inputs))
		return "parallel workers share its tables, and one is a foreign table";
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

/*
 * Why an aggregation can't do without the Sort below it, or NULL.  Its groups are
 * sorted instead, but not those of a worker, which may pass them on in parts.
 */
static const char *
order_obstacle(const AggContext *context)
{
	const Grouping *grouping = &context->grouping;

	if (!context->has_distinct &&
		(grouping->has_sets || context->agg->aggsplit != AGGSPLIT_SIMPLE))
		return "its input is sorted";
	if (context->depends_on_order)
		return "its input is sorted, and an aggregate depends on the order";
	for (int i = 0; i < grouping->key_count; i++)
		if (key_is_ambiguous((Node *) target_of_number(context->scan_targets,
													   grouping->columns[i])->expr))
			return "its input is sorted, and equal values of a key may differ";
	return NULL;
}

/* Why an aggregation can't read a scan, or NULL. */
static const char *
input_obstacle(Agg *agg, const Grouping *grouping, const Plan *input)
{
	AggContext	context;

	memset(&context, 0, sizeof(context));
	context.agg = agg;
	context.grouping = *grouping;
	context.scan_targets = input_targets(agg, input);
	context.has_expressions = holds_expression(context.scan_targets);
	context.obstacle = scan_shape_obstacle(input);
	for (int i = 0; i < grouping->key_count && context.obstacle == NULL; i++)
		context.obstacle =
			key_obstacle(get_tle_by_resno(context.scan_targets, grouping->columns[i])->expr,
						 grouping->operators[i], grouping->collations[i]);
	if (context.obstacle == NULL &&
		!find_obstacle((Node *) agg->plan.targetlist, &context))
		find_obstacle((Node *) agg->plan.qual, &context);
	if (context.obstacle == NULL && agg_is_over_sort(agg))
		context.obstacle = order_obstacle(&context);
	if (context.obstacle == NULL && context.keeps_values && is_batched_join(agg_below(agg)))
		context.obstacle = "an aggregate depends on the order in which a join finds rows";
	if (context.obstacle == NULL && grouping->has_sets && context.has_distinct)
		context.obstacle = "it has both grouping sets and DISTINCT";
	return context.obstacle;
}

/* Why an aggregation over these inputs, scans of tables or a batched node, can't be batched, or NULL. */
const char *
agg_obstacle(Agg *agg, const List *inputs)
{
	const char *obstacle = shape_obstacle(agg, inputs);
	Grouping	grouping;
	ListCell   *cell;

	if (obstacle == NULL)
		obstacle = grouping_of_agg(agg, &grouping);
	if (obstacle != NULL)
		return obstacle;
	foreach(cell, inputs)
	{
		obstacle = input_obstacle(agg, &grouping, lfirst(cell));
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

/* A reference to an entry of custom_scan_tlist: keys first, then GROUPING(), then aggregates. */
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

/* Gather the calls of GROUPING(), which come before the aggregates. */
static bool
gather_groupings(Node *node, void *context_)
{
	AggContext *context = context_;

	if (node == NULL || IsA(node, Aggref))
		return false;
	if (!IsA(node, GroupingFunc))
		return walk_below(node, gather_groupings, context_);
	context->groupings = list_append_unique(context->groupings, node);
	return false;
}

static int
grouping_call_number(const AggContext *context, const Node *call)
{
	ListCell   *cell;

	foreach(cell, context->groupings)
		if (equal(lfirst(cell), call))
			return foreach_current_index(cell);
	elog(ERROR, "a call of GROUPING() was not expected");
}

/* Keys, GROUPING() and aggregates become references to custom_scan_tlist. */
static Node *
reference_targets(Node *node, void *context_)
{
	AggContext *context = context_;
	const int	key_count = context->grouping.key_count;

	if (node == NULL)
		return NULL;
	if (IsA(node, Aggref))
		return reference_target(node, key_count + list_length(context->groupings) +
								aggregate_number(context, node));
	if (IsA(node, GroupingFunc))
		return reference_target(node, key_count + grouping_call_number(context, node));
	if (IsA(node, Var))
	{
		int			key = grouping_key(&context->grouping, ((Var *) node)->varattno);

		if (key < 0)
			elog(ERROR, "column %d is not a grouping key", ((Var *) node)->varattno);
		return reference_target(node, key);
	}
	return expression_tree_mutator(node, reference_targets, context_);
}

/* A scan as it was, with a node id of its own. */
static Plan *
copy_scan(const Plan *scan, int *next_node_id)
{
	Plan	   *copy = copy_table_scan(scan);

	copy->plan_node_id = (*next_node_id)++;
	return copy;
}

static Plan *
copy_sort(const Sort *sort, Plan *below, int *next_node_id)
{
	Sort	   *copy = makeNode(Sort);

	memcpy(copy, sort, sizeof(Sort));
	copy->plan.plan_node_id = (*next_node_id)++;
	copy->plan.lefttree = below;
	return (Plan *) copy;
}

/* What is below an aggregation as it was, with node ids of its own. */
static Plan *
copy_below(const Plan *below, int *next_node_id)
{
	Append	   *copy;
	ListCell   *cell;

	if (IsA(below, Sort))
		return copy_sort((const Sort *) below, copy_below(below->lefttree, next_node_id),
						 next_node_id);
	if (plan_is_table_scan(below))
		return copy_scan(below, next_node_id);
	copy = makeNode(Append);
	memcpy(copy, below, sizeof(Append));
	copy->plan.plan_node_id = (*next_node_id)++;
	copy->appendplans = list_copy(copy->appendplans);
	foreach(cell, copy->appendplans)
		lfirst(cell) = copy_scan(lfirst(cell), next_node_id);
	return (Plan *) copy;
}

/* The aggregation as it was, with node ids of its own; over a batched node, without that. */
static Agg *
copy_original(const Agg *agg, int *next_node_id)
{
	const Plan *below = agg->plan.lefttree;
	Agg		   *original = makeNode(Agg);

	memcpy(original, agg, sizeof(Agg));
	original->plan.initPlan = NIL;
	original->plan.plan_node_id = (*next_node_id)++;
	if (!agg_is_over_batches(agg))
		original->plan.lefttree = copy_below(below, next_node_id);
	else if (IsA(below, Sort))
		original->plan.lefttree = copy_sort((const Sort *) below, NULL, next_node_id);
	else
		original->plan.lefttree = NULL;
	return original;
}

/* Filters of an input, and what custom_scan_tlist is over it: keys, then aggregates. */
static List *
input_expressions(const AggContext *context, const Plan *input)
{
	const Grouping *grouping = &context->grouping;
	List	   *scan_targets = input_targets(context->agg, input);
	List	   *expressions = NIL;
	ListCell   *cell;

	for (int i = 0; i < grouping->key_count; i++)
	{
		TargetEntry *entry = get_tle_by_resno(scan_targets, grouping->columns[i]);

		expressions = lappend(expressions, entry->expr);
	}
	foreach(cell, context->groupings)
		expressions = lappend(expressions, resolve_outer(lfirst(cell), scan_targets));
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

/* Note the tables that a BatchAgg reads itself. */
static List *
add_scans(CustomScan *batch, const AggContext *context, const List *scans)
{
	const Plan *below = agg_below(context->agg);
	List	   *scanrelids = NIL;
	ListCell   *cell;

	batch->scan.plan.lefttree = NULL;
	batch->scan.plan.parallel_aware = below->parallel_aware;
	foreach(cell, scans)
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
	/* The leader gathers what all have read. */
	if (plan == NULL || IsA(plan, Gather) || IsA(plan, GatherMerge))
		return false;
	return plan->parallel_aware || reads_a_share(plan->lefttree);
}

/* What the executor is told of a BatchAgg beside its expressions. */
static List *
private_of_agg(const AggContext *context, List *scanrelids, bool reads_a_share)
{
	const Grouping *grouping = &context->grouping;
	List	   *values = NIL;
	ListCell   *cell;

	foreach(cell, context->groupings)
		values = list_concat(values, grouping_values(grouping, lfirst(cell)));
	return lappend(list_make5(scanrelids, makeInteger(grouping->key_count), grouping->sets,
							  makeInteger(reads_a_share), values),
				   grouping_order(grouping, context->agg));
}

/* The BatchAgg in place of an aggregation over these inputs: scans of tables, or a batched node. */
CustomScan *
agg_to_batch(Agg *agg, const List *inputs, int *next_node_id)
{
	CustomScan *batch = makeNode(CustomScan);
	Plan	   *below = agg_below(agg);
	const bool	is_over_batches = agg_is_over_batches(agg);
	AggContext	context;
	List	   *scanrelids;
	List	   *targets;
	ListCell   *cell;

	memset(&context, 0, sizeof(context));
	context.agg = agg;
	(void) grouping_of_agg(agg, &context.grouping);
	(void) gather_groupings((Node *) agg->plan.targetlist, &context);
	(void) gather_groupings((Node *) agg->plan.qual, &context);
	batch->scan.plan = agg->plan;
	batch->scan.plan.lefttree = below;
	NodeSetTag(batch, T_CustomScan);
	batch->scan.plan.targetlist = (List *)
		reference_targets((Node *) agg->plan.targetlist, &context);
	batch->scan.plan.qual = (List *)
		reference_targets((Node *) agg->plan.qual, &context);
	batch->scan.scanrelid = 0;
	foreach(cell, inputs)
		batch->custom_exprs = lappend(batch->custom_exprs,
									  input_expressions(&context, lfirst(cell)));
	scanrelids = is_over_batches ? list_make1_int(batch_relid(below)) :
		add_scans(batch, &context, inputs);
	targets = lsecond(linitial(batch->custom_exprs));
	if (is_over_batches)
		targets = (List *) display_expression(below, (Node *) targets);
	batch->custom_scan_tlist = make_targets(targets);
	batch->custom_private = private_of_agg(&context, scanrelids,
										   reads_a_share(below) ||
										   batch->scan.plan.parallel_aware);
	batch->custom_plans = list_make1(copy_original(agg, next_node_id));
	batch->methods = &batch_agg_methods;
	batch->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	return batch;
}
