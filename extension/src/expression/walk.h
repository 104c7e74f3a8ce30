/*
 * walk.h
 *	  Walk an expression as expression_tree_walker does, faster for common nodes.
 *
 * A walker sees the same nodes in the same order.
 */
#ifndef BATCHEXEC_WALK_H
#define BATCHEXEC_WALK_H

#include "miscadmin.h"
#include "nodes/nodeFuncs.h"

static inline bool
walk_below(Node *node, bool (*walker) (Node *, void *), void *context)
{
	const List *children;
	ListCell   *cell;

	switch (nodeTag(node))
	{
		case T_Var:
		case T_Const:
		case T_Param:
			return false;
		case T_TargetEntry:
			return walker((Node *) ((TargetEntry *) node)->expr, context);
		case T_List:
			children = (const List *) node;
			break;
		case T_OpExpr:
			children = ((const OpExpr *) node)->args;
			break;
		case T_FuncExpr:
			children = ((const FuncExpr *) node)->args;
			break;
		case T_ScalarArrayOpExpr:
			children = ((const ScalarArrayOpExpr *) node)->args;
			break;
		case T_BoolExpr:
			children = ((const BoolExpr *) node)->args;
			break;
		default:
			return expression_tree_walker(node, walker, context);
	}
	check_stack_depth();
	foreach(cell, children)
		if (walker(lfirst(cell), context))
			return true;
	return false;
}

#endif
