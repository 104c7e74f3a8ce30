/*
 * row_file.c
 *	  Files of rows, each with the hash of its keys, that share a temporary file.
 *
 * A file of the system for each would cost more than the rows of many: a node divides its
 * rows into dozens of parts.  So these take blocks of one, and give them back as they
 * are read.
 */
#include "postgres.h"

#include "utils/datum.h"
#include "utils/memutils.h"

#include "row_file.h"
#include "server.h"

/* Make a format of these attributes, numbered from 0; lives in the current memory context. */
RowFormat *
row_format_create(TupleDesc descriptor, const Bitmapset *attributes)
{
	RowFormat  *format = palloc0(sizeof(RowFormat));
	int			attribute = -1;

	Assert(attributes == NULL || bms_next_member(attributes, descriptor->natts - 1) < 0);
	format->descriptor = descriptor;
	format->attributes = palloc(sizeof(AttrNumber) * (bms_num_members(attributes) + 1));
	while ((attribute = bms_next_member(attributes, attribute)) >= 0)
	{
		format->attributes[format->attribute_count++] = (AttrNumber) attribute;
		format->holds_references |= !TupleDescAttr(descriptor, attribute)->attbyval;
	}
	format->row_bytes_allocated = Max(row_head_bytes(format), 1024);
	format->row = palloc(format->row_bytes_allocated);
	return format;
}

/* Have room for a row of so many bytes; what the room holds stays. */
static void
reserve(RowFormat *format, Size bytes)
{
	if (bytes <= format->row_bytes_allocated)
		return;
	format->row_bytes_allocated = Max(bytes, 2 * format->row_bytes_allocated);
	format->row = repalloc_huge(format->row, format->row_bytes_allocated);
	Assert(format->row_bytes_allocated >= bytes);
}

/* Make a store without a file; lives in the current memory context. */
RowStore *
row_store_create(void)
{
	RowStore   *store = palloc0(sizeof(RowStore));

	store->memory = CurrentMemoryContext;
	return store;
}

/* Delete the temporary file.  The server does, too, where a query fails. */
void
row_store_close(RowStore *store)
{
	if (store->file != NULL)
		BufFileClose(store->file);
	store->file = NULL;
}

RowFile *
row_file_create(RowStore *store)
{
	RowFile    *file = MemoryContextAllocZero(store->memory, sizeof(RowFile));

	file->store = store;
	return file;
}

/* Append a number to an array in the store's memory, that has room for so many. */
static void
append_block(const RowStore *store, int64 **blocks, int *count, int *allocated, int64 block)
{
	if (*count == *allocated)
	{
		*allocated = Max(2 * *allocated, 8);
		*blocks = *blocks == NULL ?
			MemoryContextAlloc(store->memory, sizeof(int64) * *allocated) :
			repalloc_huge(*blocks, sizeof(int64) * *allocated);
	}
	Assert(*count < *allocated && block >= 0);
	(*blocks)[(*count)++] = block;
}

static void
seek_block(RowStore *store, int64 block)
{
	Assert(store->file != NULL && block >= 0 && block < store->block_count);
	if (BufFileSeekBlock(store->file, (long) block) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not seek in a temporary file of a batched node")));
}

static int64
new_block(RowStore *store)
{
	MemoryContext caller;

	if (store->free_count > 0)
		return store->free_blocks[--store->free_count];
	if (store->file == NULL)
	{
		caller = MemoryContextSwitchTo(store->memory);
		store->file = BufFileCreateTemp(false);
		MemoryContextSwitchTo(caller);
	}
	return store->block_count++;
}

static void
write_buffer(RowFile *file)
{
	RowStore   *store = file->store;
	const int64 block = new_block(store);

	Assert(file->buffer_used == BLCKSZ);
	append_block(store, &file->blocks, &file->block_count, &file->blocks_allocated, block);
	seek_block(store, block);
	BufFileWrite(store->file, file->buffer, BLCKSZ);
	file->buffer_used = 0;
}

/* Add a row that is in its form already. */
void
row_file_append(RowFile *file, const FileRow *row)
{
	const char *from = (const char *) row;
	Size		left = row->bytes;

	Assert(row->bytes >= offsetof(FileRow, values));
	Assert(file->blocks_read == 0 && file->read_buffer == NULL);
	if (file->buffer == NULL)
		file->buffer = MemoryContextAlloc(file->store->memory, BLCKSZ);
	while (left > 0)
	{
		const Size	bytes = Min(left, (Size) (BLCKSZ - file->buffer_used));
		Assert(bytes > 0);

		memcpy(file->buffer + file->buffer_used, from, bytes);
		file->buffer_used += bytes;
		from += bytes;
		left -= bytes;
		if (file->buffer_used == BLCKSZ)
			write_buffer(file);
	}
	file->row_count++;
	file->bytes += row->bytes;
}

/* Bytes of what a value of an attribute points to; 0: it is a NULL, or passed by value. */
static Size
referenced_bytes(const RowFormat *format, int attribute, Datum value, bool is_null)
{
	const Form_pg_attribute form =
		TupleDescAttr(format->descriptor, format->attributes[attribute]);

	if (is_null || form->attbyval)
		return 0;
	return form->attlen == -1 ? VARSIZE_ANY(DatumGetPointer(value)) :
		datumGetSize(value, false, form->attlen);
}

/* Bytes that a row of these values and flags takes. */
Size
row_bytes(const RowFormat *format, const Datum *values, const bool *nulls)
{
	Size		bytes = row_head_bytes(format);

	if (format->holds_references)
		for (int i = 0; i < format->attribute_count; i++)
			bytes += MAXALIGN(referenced_bytes(format, i, values[i], nulls[i]));
	return bytes;
}

/* Make a row of values and flags for each attribute of the format, where there is room for row_bytes. */
void
row_fill(const RowFormat *format, FileRow *row, const Datum *values, const bool *nulls,
		 uint64 hash)
{
	Size		bytes = row_head_bytes(format);

	memcpy(row->values, values, sizeof(Datum) * format->attribute_count);
	memcpy(row_nulls(format, row), nulls, sizeof(bool) * format->attribute_count);
	if (format->holds_references)
		for (int i = 0; i < format->attribute_count; i++)
		{
			const Size	length = referenced_bytes(format, i, values[i], nulls[i]);

			if (length == 0)
				continue;
			row->values[i] = (Datum) bytes;
			memcpy((char *) row + bytes, DatumGetPointer(values[i]), length);
			bytes += MAXALIGN(length);
		}
	row->bytes = bytes;
	row->hash = hash;
}

/* Add a row, of values and flags for each attribute of the format. */
void
row_file_write(RowFile *file, RowFormat *format, const Datum *values,
			   const bool *nulls, uint64 hash)
{
	const Size	bytes = row_bytes(format, values, nulls);

	reserve(format, bytes);
	row_fill(format, format->row, values, nulls, hash);
	Assert(format->row->bytes == bytes);
	row_file_append(file, format->row);
}

/* Read the next block: those in the temporary file first. */
static void
read_block(RowFile *file)
{
	RowStore   *store = file->store;

	if (file->blocks_read == file->block_count)
	{
		Assert(file->buffer != NULL);
		/* Nothing is written any more. */
		if (file->read_buffer != NULL)
			pfree(file->read_buffer);
		file->read_buffer = file->buffer;
		file->buffer = NULL;
		file->read_end = file->buffer_used;
	}
	else
	{
		const int64 block = file->blocks[file->blocks_read++];

		if (file->read_buffer == NULL)
			file->read_buffer = MemoryContextAlloc(store->memory, BLCKSZ);
		seek_block(store, block);
		BufFileReadExact(store->file, file->read_buffer, BLCKSZ);
		append_block(store, &store->free_blocks, &store->free_count, &store->free_allocated, block);
		file->read_end = BLCKSZ;
	}
	file->read_at = 0;
}

static void
read_bytes(RowFile *file, char *to, Size left)
{
	while (left > 0)
	{
		Size		bytes;

		if (file->read_at == file->read_end)
			read_block(file);
		bytes = Min(left, (Size) (file->read_end - file->read_at));
		memcpy(to, file->read_buffer + file->read_at, bytes);
		file->read_at += bytes;
		to += bytes;
		left -= bytes;
	}
}

/* The next row, which is valid until another is read.  The caller knows how many there are. */
FileRow *
row_file_read(RowFile *file, RowFormat *format)
{
	uint64		bytes;

	read_bytes(file, (char *) &bytes, sizeof(bytes));
	Assert(bytes >= offsetof(FileRow, values));
	reserve(format, bytes);
	format->row->bytes = bytes;
	read_bytes(file, (char *) format->row + sizeof(bytes), bytes - sizeof(bytes));
	return format->row;
}

/* Forget the rows, read or not. */
void
row_file_close(RowFile *file)
{
	RowStore   *store = file->store;

	while (file->blocks_read < file->block_count)
		append_block(store, &store->free_blocks, &store->free_count, &store->free_allocated,
					 file->blocks[file->blocks_read++]);
	if (file->blocks != NULL)
		pfree(file->blocks);
	if (file->buffer != NULL)
		pfree(file->buffer);
	if (file->read_buffer != NULL)
		pfree(file->read_buffer);
	pfree(file);
}

/* Append a row to a batch, which points into the row. */
void
row_format_to_batch(const RowFormat *format, const FileRow *row, DatumBatch *rows)
{
	const bool *nulls = row_nulls(format, row);
	const int	at = rows->row_count++;
	Assert(at < BATCH_ROWS_MAX);

	for (int i = 0; i < format->attribute_count; i++)
	{
		const AttrNumber number = format->attributes[i];
		Vector	   *attribute = &rows->attributes[number];
		const bool	is_place = !nulls[i] && !TupleDescAttr(format->descriptor, number)->attbyval;

		attribute->has_nulls = (at > 0 && attribute->has_nulls) || nulls[i];
		attribute->nulls[at] = nulls[i];
		attribute->values[at] = is_place ?
			PointerGetDatum((char *) row + row->values[i]) : row->values[i];
	}
}
