#ifndef BATCHEXEC_EXPLAIN_H
#define BATCHEXEC_EXPLAIN_H

#include "nodes/pg_list.h"

/* Show in EXPLAIN why sequential scans and aggregates were not batched. */
extern void explain_install_hook(void);

/* Is the query of an EXPLAIN being planned? */
extern bool explain_awaits_reasons(void);

/* Hand over what the planner hook found, C strings, to an EXPLAIN under way. */
extern void explain_note_reasons(List *reasons);

#endif
