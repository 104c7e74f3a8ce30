//! Positions in PostgreSQL's format: `int4multirange`.
//!
//! On the wire a multirange is its number of ranges and then each, preceded by its length; a range is a byte of flags
//! and its bounds, each preceded by its length (`multirange_send` and `range_send`). PostgreSQL brings ranges of
//! integers into the form `[lower, upper)`.

use std::error::Error;

use gristmill_model::Positions;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

const LOWER_INCLUSIVE: u8 = 0x02;
/// Bytes of a range: the flags, and two bounds with their lengths.
const RANGE_BYTES: i32 = 1 + 2 * (4 + 4);

/// A column of positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Multirange(pub Positions);

impl ToSql for Multirange {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let ranges = self.0.ranges();
        out.extend_from_slice(&i32::try_from(ranges.len())?.to_be_bytes());
        for range in ranges {
            out.extend_from_slice(&RANGE_BYTES.to_be_bytes());
            out.extend_from_slice(&[LOWER_INCLUSIVE]);
            for bound in [range.start, range.end] {
                out.extend_from_slice(&4_i32.to_be_bytes());
                out.extend_from_slice(&i32::try_from(bound)?.to_be_bytes());
            }
        }
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::INT4MULTI_RANGE
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Multirange {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let mut reader = Reader(raw);
        let mut positions = Positions::new();
        for _ in 0..reader.integer()? {
            let bytes = reader.integer()?;
            if bytes != RANGE_BYTES || reader.byte()? != LOWER_INCLUSIVE {
                return Err("a range of positions is not of the form [lower, upper)".into());
            }
            let mut bounds = [0; 2];
            for bound in &mut bounds {
                if reader.integer()? != 4 {
                    return Err("a bound of positions is no integer".into());
                }
                *bound = u32::try_from(reader.integer()?)?;
            }
            positions.insert_range(bounds[0]..bounds[1]);
        }
        Ok(Multirange(positions))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::INT4MULTI_RANGE
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, &'static str> {
        let (first, rest) = self.0.split_first().ok_or("positions end early")?;
        self.0 = rest;
        Ok(*first)
    }

    fn integer(&mut self) -> Result<i32, &'static str> {
        let (first, rest) = self.0.split_first_chunk().ok_or("positions end early")?;
        self.0 = rest;
        Ok(i32::from_be_bytes(*first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_survive_the_wire() {
        for text in ["", "0", "0-499,731", "3-5,10,20-9999"] {
            let positions = Multirange(text.parse().unwrap());
            let mut bytes = BytesMut::new();
            positions.to_sql(&Type::INT4MULTI_RANGE, &mut bytes).unwrap();
            assert_eq!(
                Multirange::from_sql(&Type::INT4MULTI_RANGE, &bytes).unwrap(),
                positions
            );
            if !bytes.is_empty() && !text.is_empty() {
                Multirange::from_sql(&Type::INT4MULTI_RANGE, &bytes[..bytes.len() - 1]).unwrap_err();
            }
        }
    }
}
