/*
 * row_file.h
 *	  Files of rows, each with the hash of its keys, that share a temporary file.
 */
#ifndef BATCHEXEC_ROW_FILE_H
#define BATCHEXEC_ROW_FILE_H

#include "common/hashfn.h"
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

/* The temporary file of a node.  Its blocks belong to the RowFiles. */
typedef struct RowStore
{
	MemoryContext memory;
	BufFile    *file;			/* made for the first block */
	int64		block_count;
	int64	   *free_blocks;	/* that have been read */
	int			free_count;
	int			free_allocated;
} RowStore;

/* Rows that are written, and then read once. */
typedef struct RowFile
{
	RowStore   *store;
	int			level;			/* how often its rows have been divided, where they are */
	uint64		row_count;
	uint64		bytes;
	int64	   *blocks;			/* in the temporary file */
	int			block_count;
	int			blocks_allocated;
	int			blocks_read;
	char	   *buffer;			/* a block; the last one stays here */
	int			buffer_used;
	char	   *read_buffer;	/* the block that is read */
	int			read_at;
	int			read_end;
} RowFile;

/* How often rows are divided into parts.  Those whose hashes are alike even then have to stay together. */
#define ROW_LEVELS_MAX	4

/* Of so many parts, a power of two, that of a hash: by other bits at each level. */
static inline int
row_part_of_hash(uint32 hash, int level, int part_count)
{
	return murmurhash32(hash + (uint32) level * UINT32_C(0x9E3779B9)) & (part_count - 1);
}

/* Bytes of a row before what its values point to. */
static inline Size
row_head_bytes(const RowFormat *format)
{
	return MAXALIGN(offsetof(FileRow, values) +
					(sizeof(Datum) + sizeof(bool)) * format->attribute_count);
}

/* Flags for each attribute of a row. */
static inline bool *
row_nulls(const RowFormat *format, const FileRow *row)
{
	return (bool *) (row->values + format->attribute_count);
}

extern RowFormat *row_format_create(TupleDesc descriptor, const Bitmapset *attributes);
extern Size row_bytes(const RowFormat *format, const Datum *values, const bool *nulls);
extern void row_fill(const RowFormat *format, FileRow *row, const Datum *values,
					 const bool *nulls, uint64 hash);
extern RowStore *row_store_create(void);
extern void row_store_close(RowStore *store);
extern RowFile *row_file_create(RowStore *store);
extern void row_file_write(RowFile *file, RowFormat *format, const Datum *values,
						   const bool *nulls, uint64 hash);
extern FileRow *row_file_read(RowFile *file, RowFormat *format);
extern void row_file_append(RowFile *file, const FileRow *row);
extern void row_file_close(RowFile *file);
extern void row_format_to_batch(const RowFormat *format, const FileRow *row,
								DatumBatch *rows);

#endif
