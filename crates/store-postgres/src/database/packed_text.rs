//! Packs as parameters.

use gristmill_model::PackedArray;

/// A pack as a parameter, without a copy of its own.
#[derive(Debug)]
pub(crate) struct PackedText(pub PackedArray);

impl tokio_postgres::types::ToSql for PackedText {
    fn to_sql(
        &self,
        ty: &tokio_postgres::types::Type,
        out: &mut tokio_postgres::types::private::BytesMut,
    ) -> std::result::Result<tokio_postgres::types::IsNull, Box<dyn std::error::Error + Sync + Send>> {
        self.0.as_str().to_sql(ty, out)
    }

    fn accepts(ty: &tokio_postgres::types::Type) -> bool {
        <&str as tokio_postgres::types::ToSql>::accepts(ty)
    }

    tokio_postgres::types::to_sql_checked!();
}
