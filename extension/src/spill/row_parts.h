/*
 * row_parts.h
 *	  Rows that are divided into files by their hashes, and wait there to be read.
 */
#ifndef BATCHEXEC_ROW_PARTS_H
#define BATCHEXEC_ROW_PARTS_H

#include "row_file.h"

#define ROW_PARTS_MIN	8
#define ROW_PARTS_MAX	256

typedef struct RowParts
{
	RowStore   *store;
	RowFile    *files[ROW_PARTS_MAX];	/* that are written */
	int			count;			/* a power of two */
	int			level;			/* how often the rows that are written have been divided */
	List	   *waiting;		/* RowFiles that are written */
} RowParts;

extern RowFile *row_parts_file(RowParts *parts, uint32 hash);
extern RowFile *row_parts_next(RowParts *parts);
extern int	row_parts_limit(Size memory_bytes);
extern bool row_parts_may_divide(const RowParts *parts);

#endif
