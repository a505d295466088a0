//! Later series of MariaDB, and volumes that earlier versions of Redoubt made.

mod series;
mod upgrade;
