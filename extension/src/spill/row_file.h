/*
 * row_file.h
 *	  Rows in a temporary file, each with the hash of its keys.
 */
#ifndef BATCHEXEC_ROW_FILE_H
#define BATCHEXEC_ROW_FILE_H

#include "storage/buffile.h"

#include "datum_vector.h"

/* A row as it is in a file: attribute i's Datum, or the place in the row of what it points to. */
typedef struct FileRow
{
	uint64		bytes;			/* of the row, these included */
	uint64		hash;			/* or what its writer has to say of it */
	Datum		values[FLEXIBLE_ARRAY_MEMBER];	/* then a flag for each NULL, then what is pointed to */
} FileRow;

/* Which attributes of rows are in a file, and room for a row. */
typedef struct RowFormat
{
	TupleDesc	descriptor;
	AttrNumber *attributes;		/* numbers from 0, ascending */
	int			attribute_count;
	bool		holds_references;	/* to values */
	FileRow    *row;
	Size		row_bytes_allocated;
} RowFormat;

typedef struct RowFile
{
	BufFile    *file;
	uint64		row_count;
	uint64		bytes;
} RowFile;

extern RowFormat *row_format_create(TupleDesc descriptor, const Bitmapset *attributes);
extern RowFile *row_file_create(void);
extern void row_file_write(RowFile *file, RowFormat *format, const Datum *values,
						   const bool *nulls, uint64 hash);
extern void row_file_rewind(RowFile *file);
extern FileRow *row_file_read(RowFile *file, RowFormat *format);
extern void row_file_append(RowFile *file, const FileRow *row);
extern void row_file_close(RowFile *file);
extern void row_format_to_batch(const RowFormat *format, const FileRow *row,
								DatumBatch *rows);

#endif
