//! MySQL 9.7.

mod volume;
