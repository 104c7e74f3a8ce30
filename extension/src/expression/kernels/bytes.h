/*
 * bytes.h
 *	  Inline varlena values as bytes, for the kernels of text.
 */
#ifndef BATCHEXEC_BYTES_H
#define BATCHEXEC_BYTES_H

typedef struct Bytes
{
	const char *data;
	int			length;
} Bytes;

static inline bool
is_toasted(Datum value)
{
	return VARATT_IS_EXTERNAL(DatumGetPointer(value)) ||
		VARATT_IS_COMPRESSED(DatumGetPointer(value));
}

/* The bytes of an inline value, without a bpchar's trailing spaces. */
static inline Bytes
bytes_of(Datum value, bool is_bpchar)
{
	Bytes		bytes;

	bytes.data = VARDATA_ANY(DatumGetPointer(value));
	bytes.length = VARSIZE_ANY_EXHDR(DatumGetPointer(value));
	if (is_bpchar)
		while (bytes.length > 0 && bytes.data[bytes.length - 1] == ' ')
			bytes.length--;
	return bytes;
}

static inline bool
bytes_equal(Bytes a, Bytes b)
{
	return a.length == b.length && memcmp(a.data, b.data, a.length) == 0;
}

/* As bytes_equal, of a constant whose trailing spaces are gone.  Most values differ in the first byte. */
static inline bool
value_equals(Datum value, Bytes constant, bool is_bpchar)
{
	const char *data = VARDATA_ANY(DatumGetPointer(value));
	const int	length = VARSIZE_ANY_EXHDR(DatumGetPointer(value));

	if (is_bpchar ? length < constant.length : length != constant.length)
		return false;
	if (constant.length > 0 &&
		(data[0] != constant.data[0] || memcmp(data, constant.data, constant.length) != 0))
		return false;
	for (int i = constant.length; i < length; i++)
		if (data[i] != ' ')
			return false;
	return true;
}

#endif
