//! The repository's rules for its tree, and how `make test` judges its parts.

mod parts;
mod tree;
