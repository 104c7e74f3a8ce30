/*
 * plan_join.c
 *	  Which hash joins run in batches, over a batched node, and their nodes.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"

#include "collation.h"
#include "cost.h"
#include "group.h"
#include "join.h"
#include "join_table.h"
#include "plan.h"
#include "rows.h"
#include "server.h"
#include "walk.h"

/* The parts of a join's plan, over what batches are made of. */
typedef struct JoinContext
{
	List	   *outer_targets;	/* of the outer node, over its batches' columns */
	int			outer_relid;	/* varno of these */
	List	   *columns;		/* Vars: what a pair is made of */
} JoinContext;

/* Does a node of a plan provide batches for the node above? */
bool
plan_is_batched(const Plan *plan)
{
	const CustomScan *scan = (const CustomScan *) plan;

	return IsA(plan, CustomScan) && (scan->methods == &batch_scan_methods ||
									 scan->methods == &batch_join_methods ||
									 scan->methods == &batch_rows_methods);
}

/* Is it a BatchScan? */
bool
plan_is_batched_scan(const Plan *plan)
{
	return IsA(plan, CustomScan) &&
		((const CustomScan *) plan)->methods == &batch_scan_methods;
}

/* The varno of a batched node's columns, in expressions of the node above. */
int
batch_relid(const Plan *plan)
{
	const CustomScan *scan = (const CustomScan *) plan;

	return scan->scan.scanrelid > 0 ? (int) scan->scan.scanrelid : INDEX_VAR;
}

/* References to the outer node's results become its expressions. */
static Node *
resolve_outer_targets(Node *node, void *targets)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && ((Var *) node)->varno == OUTER_VAR)
		return copyObject((Node *) get_tle_by_resno((List *) targets,
													((Var *) node)->varattno)->expr);
	return expression_tree_mutator(node, resolve_outer_targets, targets);
}

/* What a reference to a side of a join stands for: of the outer node, a column or a constant. */
static Node *
expression_of_side(const JoinContext *context, Node *reference)
{
	const Var  *var = (const Var *) reference;

	return var->varno == OUTER_VAR ?
		(Node *) target_of_number(context->outer_targets, var->varattno)->expr : reference;
}

/* The columns of a pair that an expression needs, each once. */
static bool
collect_columns(Node *node, void *context_)
{
	JoinContext *context = context_;
	const Var  *var;
	ListCell   *cell;

	if (node == NULL)
		return false;
	if (!IsA(node, Var))
		return walk_below(node, collect_columns, context_);
	var = (const Var *) expression_of_side(context, node);
	if (!IsA(var, Var))
		return false;
	foreach(cell, context->columns)
	{
		const Var  *column = lfirst_node(Var, cell);

		if (column->varno == var->varno && column->varattno == var->varattno)
			return false;
	}
	context->columns = lappend(context->columns, (void *) var);
	return false;
}

/* Columns of either side become columns of the pair. */
static Node *
reference_pairs(Node *node, void *context_)
{
	const JoinContext *context = context_;
	ListCell   *cell;

	if (node == NULL)
		return NULL;
	if (!IsA(node, Var))
		return expression_tree_mutator(node, reference_pairs, context_);
	node = expression_of_side(context, node);
	if (!IsA(node, Var))
		return node;
	foreach(cell, context->columns)
	{
		const Var  *column = lfirst_node(Var, cell);

		if (column->varno == ((Var *) node)->varno &&
			column->varattno == ((Var *) node)->varattno)
			return (Node *) makeVar(INDEX_VAR, foreach_current_index(cell) + 1,
									column->vartype, column->vartypmod,
									column->varcollid, 0);
	}
	elog(ERROR, "column %d of a join is not known", ((Var *) node)->varattno);
}

/* What to change the varno of in an expression, and to what. */
typedef struct VarnoChange
{
	int			from;
	int			to;
} VarnoChange;

static Node *
change_varno_in(Node *node, void *change_)
{
	const VarnoChange *change = change_;
	Var		   *copy;

	if (node == NULL)
		return NULL;
	if (!IsA(node, Var))
		return expression_tree_mutator(node, change_varno_in, change_);
	copy = copyObject((Var *) node);
	if (copy->varno == change->from)
		copy->varno = change->to;
	return (Node *) copy;
}

static Node *
change_varno(Node *node, int from, int to)
{
	VarnoChange change = {from, to};

	return change_varno_in(node, &change);
}

static Node *display(Node *node, void *plan);

/* A column of a node's input as an expression over tables. */
static Node *
display_target(const Plan *below, AttrNumber attno)
{
	TargetEntry *entry = below == NULL ? NULL :
		get_tle_by_resno(below->targetlist, attno);

	if (entry == NULL)
		return (Node *) makeNullConst(TEXTOID, -1, InvalidOid);
	return display((Node *) entry->expr, (void *) below);
}

/* The function alone. */
static Node *
display_window_function(const WindowFunc *window, const Plan *plan)
{
	return (Node *) makeFuncExpr(window->winfnoid, window->wintype,
								 (List *) display((Node *) window->args, (void *) plan),
								 window->wincollid, window->inputcollid, COERCE_EXPLICIT_CALL);
}

/* EXPLAIN shows a constructor of JSON over an aggregate in its own syntax: over anything else, its function alone. */
static Node *
without_json_syntax(Node *node)
{
	Node	   *function = JSON_CONSTRUCTOR_FUNCTION(node);

	if (function == NULL || IsA(function, Aggref))
		return node;
	return (Node *) makeRelabelType((Expr *) function, exprType(node), exprTypmod(node), exprCollation(node),
									COERCE_IMPLICIT_CAST);
}

static Node *
display(Node *node, void *plan_)
{
	const Plan *plan = plan_;
	const Var  *var = (const Var *) node;

	if (node == NULL)
		return NULL;
	/* EXPLAIN knows a window only where it is made. */
	if (IsA(node, WindowFunc))
		return display_window_function((WindowFunc *) node, plan);
	if (!IsA(node, Var))
		return without_json_syntax(expression_tree_mutator(node, display, plan_));
	if (var->varno == OUTER_VAR)
		return display_target(IsA(plan, Append) ? linitial(((const Append *) plan)->appendplans) :
							  IsA(plan, MergeAppend) ? linitial(((const MergeAppend *) plan)->mergeplans) :
							  plan->lefttree, var->varattno);
	if (var->varno == INNER_VAR)
		return display_target(plan->righttree, var->varattno);
	if (var->varno == INDEX_VAR && IsA(plan, CustomScan))
		return display((Node *) get_tle_by_resno(((const CustomScan *) plan)->custom_scan_tlist,
												 var->varattno)->expr, plan_);
	if (var->varno == INDEX_VAR && IsA(plan, IndexOnlyScan))
		return copyObject((Node *) get_tle_by_resno(((const IndexOnlyScan *) plan)->indextlist,
													var->varattno)->expr);
	if (var->varno == INDEX_VAR && IsA(plan, ForeignScan))
		return copyObject((Node *) get_tle_by_resno(((const ForeignScan *) plan)->fdw_scan_tlist,
													var->varattno)->expr);
	return copyObject(node);
}

/* What EXPLAIN can show of an expression of a node, whatever is below it. */
Node *
display_expression(const Plan *plan, Node *expression)
{
	return display(expression, (void *) plan);
}

/* The type of values that two sides of a key have to have in common. */
static bool
keys_are_comparable(const Node *outer, const Node *inner)
{
	const Oid	outer_type = exprType(outer);
	const Oid	inner_type = exprType(inner);
	ValueKind	outer_kind;
	ValueKind	inner_kind;

	return value_kind_of_type(outer_type, &outer_kind) &&
		value_kind_of_type(inner_type, &inner_kind) && outer_kind == inner_kind &&
		(outer_type == BPCHAROID) == (inner_type == BPCHAROID) &&
		(outer_type == DATEOID) == (inner_type == DATEOID);
}

/* Why a key of a join has no batched form, or NULL. */
const char *
join_clause_obstacle(const Node *clause)
{
	const OpExpr *comparison = (const OpExpr *) clause;
	VectorOperation operation;

	if (!IsA(clause, OpExpr) || list_length(comparison->args) != 2 ||
		!function_lookup(OidIsValid(comparison->opfuncid) ? comparison->opfuncid :
						 get_opcode(comparison->opno), &operation) ||
		operation != OPERATION_EQ ||
		!keys_are_comparable(linitial(comparison->args), lsecond(comparison->args)))
		return "there is no batched form of its condition";
	if (OidIsValid(comparison->inputcollid) &&
		!collation_is_deterministic(comparison->inputcollid))
		return "a key's collation is not deterministic";
	if (!expression_is_plain((Node *) clause) &&
		(contain_volatile_functions((Node *) clause) || contain_subplans((Node *) clause)))
		return "a key is volatile or holds a subquery";
	return NULL;
}

/*
 * Are the results of the outer node columns as they are, or constants?  These take the place
 * of references to them, so not where a row without an outer one has NULLs instead.
 */
static bool
returns_columns(const Plan *plan, JoinType type)
{
	const bool	nulls_outer = type == JOIN_RIGHT || type == JOIN_FULL;
	ListCell   *cell;

	foreach(cell, plan->targetlist)
	{
		const Node *expression = (const Node *) lfirst_node(TargetEntry, cell)->expr;

		if (!IsA(expression, Var) && (nulls_outer || !IsA(expression, Const)))
			return false;
	}
	return true;
}

/* EXPLAIN finds the fields of a record where it is made, but not through a pair's columns. */
static bool
returns_records(const Plan *plan)
{
	ListCell   *cell;

	foreach(cell, plan->targetlist)
		if (exprType((Node *) lfirst_node(TargetEntry, cell)->expr) == RECORDOID)
			return true;
	return false;
}

static const char *
type_obstacle(const HashJoin *join)
{
	switch (join->join.jointype)
	{
		case JOIN_INNER:
			return NULL;
		case JOIN_LEFT:
		case JOIN_RIGHT:
		case JOIN_FULL:
		case JOIN_SEMI:
		case JOIN_ANTI:
			return join->join.joinqual == NIL ? NULL :
				"an outer, semi or anti join has a condition besides its keys";
		default:
			return "its type has no batched form";
	}
}

/* Why a batched node can't be the outer side of a batched join, or NULL. */
const char *
join_outer_obstacle(const HashJoin *join)
{
	return returns_columns(join->join.plan.lefttree, join->join.jointype) ? NULL : "its outer side computes expressions";
}

/* Why a hash join can't be batched, whatever its outer side, or NULL. */
const char *
join_obstacle(const HashJoin *join)
{
	const Plan *outer = join->join.plan.lefttree;
	const Plan *inner = join->join.plan.righttree->lefttree;
	const char *obstacle = type_obstacle(join);
	ListCell   *cell;

	if (obstacle != NULL)
		return obstacle;
	if (join->join.plan.parallel_aware)
		return "parallel workers share its hash table";
	if (list_length(join->hashclauses) > GROUP_KEYS_MAX)
		return "there are too many keys";
	if (list_length(inner->targetlist) > JOIN_INNER_COLUMNS_MAX)
		return psprintf("its inner side has more than %d columns", JOIN_INNER_COLUMNS_MAX);
	if (returns_records(outer) || returns_records(inner))
		return "a column is a record";
	foreach(cell, join->hashclauses)
	{
		obstacle = join_clause_obstacle(lfirst(cell));
		if (obstacle != NULL)
			return obstacle;
	}
	return NULL;
}

/* Nodes of all expressions of a join. */
int
join_expression_size(const HashJoin *join)
{
	return expression_size((Node *) list_make3(join->hashclauses, join->join.joinqual,
											   join->join.plan.qual),
						   join->join.plan.lefttree->targetlist);
}

/* A hash join as it was, without what is below it. */
static HashJoin *
copy_join(const HashJoin *join, int *next_node_id)
{
	HashJoin   *copy = makeNode(HashJoin);
	Hash	   *hash = makeNode(Hash);

	memcpy(copy, join, sizeof(HashJoin));
	memcpy(hash, join->join.plan.righttree, sizeof(Hash));
	copy->join.plan.initPlan = NIL;
	copy->join.plan.plan_node_id = (*next_node_id)++;
	copy->join.plan.lefttree = NULL;
	copy->join.plan.righttree = (Plan *) hash;
	hash->plan.plan_node_id = (*next_node_id)++;
	hash->plan.lefttree = NULL;
	return copy;
}

/* The columns of a pair, for EXPLAIN and for the type of its rows. */
static List *
pair_targets(const Plan *plan, const JoinContext *context)
{
	List	   *targets = NIL;
	ListCell   *cell;

	foreach(cell, context->columns)
	{
		const Var  *column = lfirst_node(Var, cell);
		const int	number = foreach_current_index(cell) + 1;
		Node	   *shown = column->varno == INNER_VAR ?
			display_target(plan->righttree, column->varattno) :
			column->varno == INDEX_VAR ? display((Node *) column, plan->lefttree) :
			(Node *) column;

		/* Where the display is of another type, the column has to do. */
		if (exprType(shown) != column->vartype)
			shown = (Node *) makeNullConst(column->vartype, column->vartypmod,
										   column->varcollid);
		targets = lappend(targets, makeTargetEntry((Expr *) shown, number, NULL, false));
	}
	return targets;
}

/* The hash clauses as EXPLAIN shows them. */
static List *
shown_condition(const Plan *plan, List *clauses)
{
	return (List *) display((Node *) clauses, (void *) plan);
}

/* The BatchJoin in place of a hash join over a batched node. */
CustomScan *
join_to_batch(HashJoin *join, int *next_node_id)
{
	CustomScan *batch = makeNode(CustomScan);
	Plan	   *plan = &batch->scan.plan;
	JoinContext context = {0};
	List	   *clauses;
	List	   *outer_keys = NIL;
	List	   *inner_keys = NIL;
	List	   *flags = NIL;
	List	   *attributes = NIL;
	ListCell   *cell;

	*plan = join->join.plan;
	NodeSetTag(batch, T_CustomScan);
	plan->righttree = join->join.plan.righttree->lefttree;
	plan->parallel_aware = false;
	context.outer_targets = plan->lefttree->targetlist;
	context.outer_relid = batch_relid(plan->lefttree);

	clauses = list_concat_copy(join->join.joinqual, join->join.plan.qual);
	collect_columns((Node *) join->join.plan.targetlist, &context);
	collect_columns((Node *) clauses, &context);
	foreach(cell, context.columns)
	{
		const Var  *column = lfirst_node(Var, cell);

		flags = lappend_int(flags, column->varno == INNER_VAR);
		attributes = lappend_int(attributes, column->varattno);
	}
	foreach(cell, join->hashclauses)
	{
		const OpExpr *clause = lfirst_node(OpExpr, cell);

		outer_keys = lappend(outer_keys, resolve_outer_targets(linitial(clause->args),
															   context.outer_targets));
		inner_keys = lappend(inner_keys, change_varno(lsecond(clause->args), INNER_VAR,
													  INDEX_VAR));
	}
	plan->targetlist = (List *) reference_pairs((Node *) join->join.plan.targetlist, &context);
	plan->qual = NIL;
	batch->custom_exprs = list_make4(outer_keys, inner_keys,
									 reference_pairs((Node *) clauses, &context),
									 shown_condition(plan, join->hashclauses));
	batch->custom_scan_tlist = pair_targets(plan, &context);
	batch->custom_private = list_make4(list_make1_int(join->join.jointype), flags, attributes,
									   list_make1_int(context.outer_relid));
	batch->custom_plans = list_make1(copy_join(join, next_node_id));
	batch->methods = &batch_join_methods;
	batch->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	return batch;
}
