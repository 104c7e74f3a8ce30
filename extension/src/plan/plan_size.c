/*
 * plan_size.c
 *	  How large the expressions of a plan node are.
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "parser/parsetree.h"

#include "batch_limits.h"
#include "plan.h"
#include "walk.h"

/* An entry of a plan's target list, which is in the order of its numbers. */
TargetEntry *
target_of_number(List *targets, AttrNumber number)
{
	TargetEntry *entry = number > 0 && number <= list_length(targets) ?
		list_nth_node(TargetEntry, targets, number - 1) : NULL;

	return entry != NULL && entry->resno == number ? entry :
		get_tle_by_resno(targets, number);
}

typedef struct SizeContext
{
	List	   *outer_targets;	/* that OUTER_VARs stand for */
	int			nodes;
} SizeContext;

/* Stops where there are more nodes than any limit allows.  The walker checks the stack. */
static bool
count_nodes(Node *node, void *context_)
{
	SizeContext *context = context_;
	TargetEntry *entry = NULL;

	if (node == NULL)
		return false;
	if (++context->nodes > STATEMENT_EXPRESSION_NODES_MAX)
		return true;
	if (IsA(node, Var) && ((Var *) node)->varno == OUTER_VAR)
		entry = target_of_number(context->outer_targets, ((Var *) node)->varattno);
	if (entry != NULL)
	{
		SizeContext inner = {.nodes = context->nodes};
		bool		is_too_large = count_nodes((Node *) entry->expr, &inner);

		context->nodes = inner.nodes;
		return is_too_large;
	}
	return walk_below(node, count_nodes, context);
}

/* Nodes of an expression, those of what it refers to included. */
int
expression_size(Node *expression, List *outer_targets)
{
	SizeContext context = {.outer_targets = outer_targets};

	(void) count_nodes(expression, &context);
	return context.nodes;
}
