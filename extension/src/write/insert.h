/*
 * insert.h
 *	  BatchInsert: INSERT … SELECT that writes its rows a page at a time.
 */
#ifndef BATCHEXEC_INSERT_H
#define BATCHEXEC_INSERT_H

#include "nodes/extensible.h"
#include "nodes/parsenodes.h"

#define BATCH_INSERT_NAME "BatchInsert"

/* custom_private of a BatchInsert, integers */
enum BatchInsertPrivate
{
	BATCH_INSERT_TARGET,		/* range table index of the table */
	BATCH_INSERT_SETS_TAG		/* its rows are the statement's count of rows */
};

/* plan_insert.c */
extern bool query_looks_at_tables(Query *query);
extern const char *insert_query_obstacle(Query *query);
extern const char *insert_obstacle(const PlannedStmt *statement, const ModifyTable *insert);
extern bool insert_pays(const ModifyTable *insert);
extern CustomScan *insert_to_batch(ModifyTable *insert, int original_node_id);

/* insert.c */
extern const CustomScanMethods batch_insert_methods;

#endif
