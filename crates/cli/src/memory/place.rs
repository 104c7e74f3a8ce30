//! The location of a knowledge base in the form of [`gristmill_memory`].

use gristmill_memory::Place;

use crate::store::location::{DatabaseUrl, StoreLocation};

impl From<Place> for StoreLocation {
    fn from(place: Place) -> Self {
        match place {
            Place::File(path) => StoreLocation::File(path),
            Place::Url(url) => StoreLocation::Postgres(DatabaseUrl::new(url)),
        }
    }
}

impl StoreLocation {
    /// The knowledge base at this place.
    pub fn place(&self) -> Place {
        match self {
            StoreLocation::File(path) => Place::File(path.clone()),
            StoreLocation::Postgres(url) => Place::Url(url.secret().to_owned()),
        }
    }
}
