/*
 * node.h
 *	  What all custom scan nodes share: the tables, their sources of batches, the
 *	  counters, and the original plan for when batching is off.
 */
#ifndef BATCHEXEC_NODE_H
#define BATCHEXEC_NODE_H

#include "access/parallel.h"

#include "batchexec.h"
#include "expr.h"
#include "instrument.h"
#include "source.h"

/* What a parallel-aware node keeps in dynamic shared memory. */
typedef struct NodeShared
{
	bool		is_batched;		/* what the leader chose */
	Size		scan_offsets;	/* of an array: where each input's scan is */
	SharedCounters counters;
} NodeShared;

/* A table that a node reads. */
typedef struct BatchInput
{
	Relation	relation;
	BatchSource *source;
	VectorContext context;
	BatchQual  *qual;
	bool		columns_are_planned;
} BatchInput;

typedef struct BatchNode
{
	CustomScanState css;		/* must be first */
	PlanState  *original;		/* runs instead, if set */
	const char *obstacle;		/* why it does */
	struct BatchNode *child;	/* an aggregation's join, instead of tables */
	BatchInput *inputs;			/* read one after another */
	int			input_count;
	int			inputs_done;
	BatchInput *input;			/* the one that the last batch is of */
	NodeShared *shared;
	bool		is_shut_down;	/* no more rows until the next rescan */
	BatchCounters own_counters;
	BatchCounters *counters;	/* own_counters, or a worker's shared ones */
	BatchCounters worker_counters;	/* sum, copied before the memory goes */
	TupleBatch *output;			/* what produce fills */
	bool		may_raise;		/* one of its expressions, an error */
	bool		subtree_may_raise;	/* or what it reads its batches from */
	int			rows_asked;		/* of a scan: the demand at its last batch */
	bool		(*produce) (struct BatchNode *node);	/* the next batch; false at the end */
	bool		(*peek) (struct BatchNode *node);	/* is there one?  May be NULL */
} BatchNode;

/*
 * Must a node evaluate rows that may raise an error one at a time?  The node above may stop
 * before them: of the scan below, it asked for few rows.
 */
static inline bool
node_is_exact(const BatchNode *node, const BatchNode *scan)
{
	return node->may_raise && scan->rows_asked < BATCH_ROWS_MAX;
}

extern bool node_begin_original(BatchNode *node, EState *estate, int eflags);
extern bool node_begin_original_if(BatchNode *node, const char *obstacle, EState *estate, int eflags);
extern void node_begin_inputs(BatchNode *node, int input_count);
extern void node_begin_input(BatchNode *node, BatchInput *input,
							 Relation relation, TupleTableSlot *slot,
							 const Plan *scan, int eflags);
extern BatchNode *node_begin_child(BatchNode *node, Plan *plan, EState *estate,
								   int eflags);
extern void node_begin_context(BatchNode *node, VectorContext *context,
							   TupleBatch *batch, int scanrelid);
extern bool node_pull(BatchNode *child);
extern bool node_peek(BatchNode *child);
extern void node_stop_scans(BatchNode *node);
extern bool node_next_batch(BatchNode *node, int rows_max);
extern void node_rescan(BatchNode *node);
extern void node_end(BatchNode *node);
extern void node_explain(BatchNode *node, ExplainState *es);

/* parallel query: callbacks of the nodes that read tables */
extern Size node_estimate_dsm(CustomScanState *css, ParallelContext *pcxt);
extern void node_initialize_dsm(CustomScanState *css, ParallelContext *pcxt,
								void *coordinate);
extern void node_reinitialize_dsm(CustomScanState *css, ParallelContext *pcxt,
								  void *coordinate);
extern void node_initialize_worker(CustomScanState *css, shm_toc *toc,
								   void *coordinate);
extern void node_shutdown(CustomScanState *css);

#endif
