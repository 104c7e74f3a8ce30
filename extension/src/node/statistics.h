/*
 * statistics.h
 *	  What batched nodes have done since the server started: pg_stat_batchexec.
 */
#ifndef BATCHEXEC_STATISTICS_H
#define BATCHEXEC_STATISTICS_H

#include "node.h"

typedef enum NodeKind
{
	NODE_SCAN,
	NODE_AGG,
	NODE_JOIN,
	NODE_ROWS,
	NODE_SORT,
	NODE_INSERT,
	NODE_KINDS
} NodeKind;

extern void statistics_install_hooks(void);
extern void statistics_count_node(NodeKind kind, const BatchNode *node);
extern void statistics_count_rows_inserted(uint64 rows, uint64 batches);
extern void statistics_count_insert(const BatchNode *node, uint64 rows, uint64 batches);

#endif
