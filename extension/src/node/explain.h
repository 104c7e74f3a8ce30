#ifndef BATCHEXEC_EXPLAIN_H
#define BATCHEXEC_EXPLAIN_H

#include "server.h"

/* Show in EXPLAIN why sequential scans and aggregates were not batched. */
extern void explain_install_hook(void);

/* A table of the plan as EXPLAIN names it: with its schema where it is verbose, and with its alias where that differs. */
extern char *explain_table_label(const ExplainState *es, int scanrelid);

/* Name a table in the fields that programs look for, as core does for its scans. */
extern void explain_table_fields(ExplainState *es, int scanrelid);

/* Is the query of an EXPLAIN being planned? */
extern bool explain_awaits_reasons(void);

/* Hand over what the planner hook found, C strings, to an EXPLAIN under way. */
extern void explain_note_reasons(List *reasons);

#endif
