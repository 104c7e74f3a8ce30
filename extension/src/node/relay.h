/*
 * relay.h
 *	  A node that hands rows of a running batched node to a stock plan.
 */
#ifndef BATCHEXEC_RELAY_H
#define BATCHEXEC_RELAY_H

#include "nodes/execnodes.h"
#include "nodes/extensible.h"

#define RELAY_NAME	"BatchRelay"

/* Where the rows come from. */
typedef struct RelaySource
{
	TupleTableSlot *(*next) (void *owner);	/* NULL or empty: no more */
	void		(*rescan) (void *owner);	/* from the first row on */
	void	   *owner;
	TupleDesc	descriptor;
} RelaySource;

extern const CustomScanMethods relay_methods;

extern Plan *relay_plan(const RelaySource *source, const Plan *in_place_of);

#endif
