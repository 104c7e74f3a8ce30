/*
 * permission.h
 *	  Permissions that the executor checks when a plan starts.
 */
#ifndef BATCHEXEC_PERMISSION_H
#define BATCHEXEC_PERMISSION_H

#include "nodes/parsenodes.h"

extern void permission_check_function(Oid function, ObjectType kind);
extern void permission_check_expression(Node *expression);

#endif
