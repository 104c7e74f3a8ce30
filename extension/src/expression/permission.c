/*
 * permission.c
 *	  Permissions that the executor checks when a plan starts.
 *
 * Expressions and aggregates that have a batched form never get to the
 * executor's own code for starting them, which is where it checks these.
 */
#include "postgres.h"

#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"

#include "permission.h"
#include "server.h"

/* Raise an error unless the user may execute the function or aggregate. */
void
permission_check_function(Oid function, ObjectType kind)
{
	AclResult	result = CHECK_FUNCTION_RIGHT(function, GetUserId());

	if (result != ACLCHECK_OK)
		aclcheck_error(result, kind, get_func_name(function));
	InvokeFunctionExecuteHook(function);
}

static bool
check_function(Oid function, void *context)
{
	(void) context;
	permission_check_function(function, OBJECT_FUNCTION);
	return false;
}

static bool
check_node(Node *node, void *context)
{
	if (node == NULL)
		return false;
	(void) check_functions_in_node(node, check_function, NULL);
	return expression_tree_walker(node, check_node, context);
}

/* The same for every function that an expression calls. */
void
permission_check_expression(Node *expression)
{
	(void) check_node(expression, NULL);
}
