//! Server settings that change what is logged, and when.

use super::{Class, Generator};

/// Settings and their values. None of them makes redo that cannot be followed (encryption) or replaces the log
/// (`innodb_log_file_size`); those are tested elsewhere.
const KNOBS: &[(&str, &[&str])] = &[
    ("innodb_file_per_table", &["ON", "ON", "OFF"]),
    ("innodb_change_buffering", &["none", "inserts", "deletes", "changes", "purges", "all"]),
    ("innodb_fill_factor", &["10", "50", "80", "100"]),
    ("innodb_compression_level", &["0", "1", "6", "9"]),
    ("innodb_log_compressed_pages", &["ON", "OFF"]),
    ("innodb_compression_pad_pct_max", &["0", "25", "50"]),
    ("innodb_compression_failure_threshold_pct", &["0", "5", "50"]),
    ("innodb_compression_default", &["OFF", "OFF", "OFF", "ON"]),
    ("innodb_compression_algorithm", &["zlib", "none"]),
    ("innodb_default_row_format", &["dynamic", "compact", "redundant"]),
    ("innodb_strict_mode", &["ON", "OFF"]),
    ("innodb_online_alter_log_max_size", &["65536", "134217728"]),
    ("innodb_immediate_scrub_data_uncompressed", &["OFF", "OFF", "ON"]),
    ("innodb_instant_alter_column_allowed", &["never", "add_last", "add_drop_reorder", "add_drop_reorder"]),
    ("innodb_max_dirty_pages_pct", &["0", "0.001", "90"]),
    ("innodb_max_dirty_pages_pct_lwm", &["0", "0.001", "50"]),
    ("innodb_purge_rseg_truncate_frequency", &["1", "32", "128"]),
    ("innodb_purge_batch_size", &["1", "20", "300"]),
    ("innodb_undo_log_truncate", &["ON", "OFF"]),
    ("innodb_stats_persistent_sample_pages", &["1", "20"]),
    ("innodb_stats_traditional", &["ON", "OFF"]),
    ("innodb_random_read_ahead", &["ON", "OFF"]),
    ("innodb_adaptive_flushing", &["ON", "OFF"]),
    ("innodb_flush_log_at_trx_commit", &["0", "1", "2"]),
    ("innodb_flush_neighbors", &["0", "1", "2"]),
    ("innodb_checksum_algorithm", &["crc32", "full_crc32", "strict_crc32", "strict_full_crc32"]),
    ("innodb_autoextend_increment", &["1", "8", "64"]),
    ("innodb_prefix_index_cluster_optimization", &["ON", "OFF"]),
    ("innodb_adaptive_hash_index", &["ON", "OFF"]),
    ("innodb_io_capacity", &["100", "10000"]),
    ("innodb_ft_num_word_optimize", &["100", "2000"]),
    ("innodb_cmp_per_index_enabled", &["ON", "OFF"]),
];

impl Generator {
    pub(super) fn knob(&mut self) {
        if self.chance(12) {
            self.finish_all();
            self.emit(Class::FlushTables, "FLUSH TABLES".to_owned());
            return;
        }
        let (name, values) = KNOBS[self.random.usize(..KNOBS.len())];
        let value = values[self.random.usize(..values.len())];
        self.emit(Class::SetGlobal, format!("SET GLOBAL {name} = {value}"));
    }
}
