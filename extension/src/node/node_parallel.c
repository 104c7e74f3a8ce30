/*
 * node_parallel.c
 *	  Parallel query: the shared scan and the workers' counters.
 */
#include "postgres.h"

#include "access/tableam.h"

#include "node.h"

/* Where the array of offsets is, behind the counters. */
static Size
offsets_offset(ParallelContext *pcxt)
{
	return MAXALIGN(offsetof(NodeShared, counters) +
					counters_shared_bytes(pcxt->nworkers));
}

/* Where the first scan is, behind the offsets. */
static Size
scans_offset(const BatchNode *node, ParallelContext *pcxt)
{
	return offsets_offset(pcxt) + MAXALIGN(sizeof(Size) * node->input_count);
}

static Size
scan_bytes(const BatchNode *node, int input)
{
	return MAXALIGN(table_parallelscan_estimate(node->inputs[input].relation,
												node->css.ss.ps.state->es_snapshot));
}

Size
node_estimate_dsm(CustomScanState *css, ParallelContext *pcxt)
{
	BatchNode  *node = (BatchNode *) css;
	Size		bytes = scans_offset(node, pcxt);

	/* None, where the original plan runs. */
	for (int i = 0; i < node->input_count; i++)
		bytes = add_size(bytes, scan_bytes(node, i));
	return bytes;
}

void
node_initialize_dsm(CustomScanState *css, ParallelContext *pcxt,
					void *coordinate)
{
	BatchNode  *node = (BatchNode *) css;
	NodeShared *shared = coordinate;
	Size		offset = scans_offset(node, pcxt);
	Size	   *offsets;

	shared->is_batched = (node->original == NULL);
	shared->scan_offsets = offsets_offset(pcxt);
	Assert(shared->scan_offsets >= offsetof(NodeShared, counters));
	shared->counters.worker_count = pcxt->nworkers;
	memset(shared->counters.workers, 0, sizeof(BatchCounters) * pcxt->nworkers);
	if (node->original != NULL)
		return;
	node->shared = shared;
	node->is_shut_down = false;
	offsets = (Size *) ((char *) shared + shared->scan_offsets);
	for (int i = 0; i < node->input_count; i++)
	{
		Assert(offset == MAXALIGN(offset));
		offsets[i] = offset;
		table_parallelscan_initialize(node->inputs[i].relation,
									  (ParallelTableScanDesc) ((char *) shared + offset),
									  css->ss.ps.state->es_snapshot);
		offset += scan_bytes(node, i);
	}
}

void
node_reinitialize_dsm(CustomScanState *css, ParallelContext *pcxt,
					  void *coordinate)
{
	BatchNode  *node = (BatchNode *) css;
	NodeShared *shared = coordinate;
	const Size *offsets = (const Size *) ((char *) shared + shared->scan_offsets);

	(void) pcxt;
	if (node->original != NULL)
		return;
	node->shared = shared;
	node->is_shut_down = false;
	for (int i = 0; i < node->input_count; i++)
		table_parallelscan_reinitialize(node->inputs[i].relation,
										(ParallelTableScanDesc) ((char *) shared + offsets[i]));
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
	Assert(IsParallelWorker() && node->shared == NULL);
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
	node_stop_scans(node);
}
