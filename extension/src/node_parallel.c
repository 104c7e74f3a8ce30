/*
 * node_parallel.c
 *	  Parallel query: the shared scan and the workers' counters.
 */
#include "postgres.h"

#include "access/tableam.h"

#include "node.h"

static Size
shared_header_bytes(ParallelContext *pcxt)
{
	return MAXALIGN(offsetof(NodeShared, counters) +
					counters_shared_bytes(pcxt->nworkers));
}

Size
node_estimate_dsm(CustomScanState *css, ParallelContext *pcxt)
{
	BatchNode  *node = (BatchNode *) css;
	Size		bytes = shared_header_bytes(pcxt);

	if (node->original == NULL)
		bytes = add_size(bytes, table_parallelscan_estimate(node->relation,
															css->ss.ps.state->es_snapshot));
	return bytes;
}

void
node_initialize_dsm(CustomScanState *css, ParallelContext *pcxt,
					void *coordinate)
{
	BatchNode  *node = (BatchNode *) css;
	NodeShared *shared = coordinate;

	shared->is_batched = (node->original == NULL);
	shared->scan_offset = shared_header_bytes(pcxt);
	shared->counters.worker_count = pcxt->nworkers;
	memset(shared->counters.workers, 0, sizeof(BatchCounters) * pcxt->nworkers);
	if (node->original != NULL)
		return;
	node->shared = shared;
	node->is_shut_down = false;
	table_parallelscan_initialize(node->relation,
								  (ParallelTableScanDesc) ((char *) shared + shared->scan_offset),
								  css->ss.ps.state->es_snapshot);
}

void
node_reinitialize_dsm(CustomScanState *css, ParallelContext *pcxt,
					  void *coordinate)
{
	BatchNode  *node = (BatchNode *) css;
	NodeShared *shared = coordinate;

	(void) pcxt;
	if (node->original != NULL)
		return;
	node->shared = shared;
	node->is_shut_down = false;
	table_parallelscan_reinitialize(node->relation,
										(ParallelTableScanDesc) ((char *) shared + shared->scan_offset));
}

void
node_initialize_worker(CustomScanState *css, shm_toc *toc, void *coordinate)
{
	BatchNode  *node = (BatchNode *) css;
	NodeShared *shared = coordinate;

	(void) toc;
	/* The settings that decide this are the leader's, so both agree. */
	if (shared->is_batched != (node->original == NULL))
		elog(ERROR, "parallel worker and leader disagree on batched execution");
	if (node->original != NULL)
		return;
	node->shared = shared;
	if (ParallelWorkerNumber < shared->counters.worker_count)
		node->counters = &shared->counters.workers[ParallelWorkerNumber];
}

/*
 * The shared memory is about to go away: copy the workers' counters, and end
 * the scan that points into it.
 */
void
node_shutdown(CustomScanState *css)
{
	BatchNode  *node = (BatchNode *) css;

	if (node->shared == NULL || IsParallelWorker())
		return;
	memset(&node->worker_counters, 0, sizeof(BatchCounters));
	counters_add_shared(&node->worker_counters, &node->shared->counters);
	node->shared = NULL;
	node->is_shut_down = true;
	heap_source_stop(&node->source);
	if (node->scan != NULL)
		table_endscan(node->scan);
	node->scan = NULL;
}
