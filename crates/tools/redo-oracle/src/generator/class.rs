//! Statement classes: every kind of statement that a history must have run with success.

/// Defines the classes and their list.
macro_rules! classes {
    ($($(#[$attribute:meta])* $name:ident = $text:literal,)*) => {
        /// The kind of a statement.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)] // The names say it, and the texts.
        pub enum Class {
            $($(#[$attribute])* $name,)*
        }

        impl Class {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name in reports and scripts.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

classes! {
    Insert = "insert",
    InsertSelect = "insert-select",
    InsertOnDuplicate = "insert-on-duplicate",
    InsertIgnore = "insert-ignore",
    BulkInsert = "bulk-insert",
    Replace = "replace",
    Update = "update",
    UpdateLimit = "update-order-limit",
    UpdateKey = "update-primary-key",
    UpdateOffPage = "update-off-page",
    Delete = "delete",
    DeleteRange = "delete-range",
    MultiUpdate = "multi-table-update",
    MultiDelete = "multi-table-delete",
    LoadData = "load-data",
    SelectForUpdate = "select-for-update",
    ForeignKeyDelete = "foreign-key-delete",
    ForeignKeyUpdate = "foreign-key-update",
    ForeignKeyInsert = "foreign-key-insert",
    FullTextDml = "fulltext-dml",
    SpatialDml = "spatial-dml",
    PartitionDml = "partition-dml",
    VersionedDml = "versioned-dml",
    DeleteHistory = "delete-history",
    Begin = "begin",
    Commit = "commit",
    Rollback = "rollback",
    Savepoint = "savepoint",
    RollbackTo = "rollback-to-savepoint",
    ReleaseSavepoint = "release-savepoint",
    XaStart = "xa-start",
    XaEnd = "xa-end",
    XaPrepare = "xa-prepare",
    XaCommit = "xa-commit",
    XaRollback = "xa-rollback",
    CreateDatabase = "create-database",
    DropDatabase = "drop-database",
    CreateRedundant = "create-redundant",
    CreateCompact = "create-compact",
    CreateDynamic = "create-dynamic",
    CreateCompressed = "create-compressed",
    CreatePageCompressed = "create-page-compressed",
    CreateInSystem = "create-in-system-tablespace",
    CreateLike = "create-like",
    CreateSelect = "create-select",
    CreateForeignKey = "create-foreign-key",
    CreateFullText = "create-fulltext",
    CreateSpatial = "create-spatial",
    CreatePartitioned = "create-partitioned",
    CreateVersioned = "create-versioned",
    DropTable = "drop-table",
    Truncate = "truncate",
    Rename = "rename",
    RenameSwap = "rename-swap",
    AddColumnInstant = "add-column-instant",
    DropColumnInstant = "drop-column-instant",
    ReorderInstant = "reorder-columns-instant",
    RenameColumn = "rename-column",
    ModifyCopy = "modify-column-copy",
    ModifyInplace = "modify-column-inplace",
    AddColumnInplace = "add-column-inplace",
    AddVirtual = "add-virtual-column",
    AddStored = "add-stored-column",
    CreateIndex = "create-index",
    AddIndexInplace = "add-index-inplace",
    AddIndexCopy = "add-index-copy",
    CreateUnique = "create-unique-index",
    DropIndex = "drop-index",
    ForceInplace = "rebuild-inplace",
    ForceCopy = "rebuild-copy",
    ChangeRowFormat = "change-row-format",
    ChangePrimaryKey = "change-primary-key",
    SetAutoIncrement = "set-auto-increment",
    AddFullText = "add-fulltext",
    DropFullText = "drop-fulltext",
    FullTextOptimize = "optimize-fulltext",
    AddForeignKey = "add-foreign-key",
    DropForeignKey = "drop-foreign-key",
    AddVersioning = "add-versioning",
    AddPartition = "add-partition",
    DropPartition = "drop-partition",
    ReorganizePartition = "reorganize-partition",
    CoalescePartition = "coalesce-partition",
    TruncatePartition = "truncate-partition",
    RebuildPartition = "rebuild-partition",
    ExchangePartition = "exchange-partition",
    Optimize = "optimize",
    Analyze = "analyze",
    Check = "check-table",
    CreateSequence = "create-sequence",
    NextValue = "next-value",
    AlterSequence = "alter-sequence",
    DropSequence = "drop-sequence",
    CreateTemporary = "create-temporary",
    TemporaryDml = "temporary-dml",
    DropTemporary = "drop-temporary",
    SetGlobal = "set-global",
    FlushTables = "flush-tables",
    LargeUndo = "large-undo",
    Import = "import-tablespace",
}

impl Class {
    /// The class of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|class| class.name() == name)
    }
}
