//! The kernel's requests as `fuser` decodes them, answered from [`Files`].
//!
//! Every request is answered, after a panic with `EIO`. A caller without an answer cannot even be killed, and a panic
//! would end a thread of `fuser`.

use super::files::Files;
use super::mount::MAX_TRANSFER_BYTES;
use crate::tree::{Called, Change, Errno, Meta};
use fuser::{
    BsdFileFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime};

/// Size of the file system as shown; half of it is shown as free.
const SHOWN_BYTES: u64 = 1 << 50;
const PAGE_BYTES: u32 = 4096;
/// Limit of the kernel's background requests, such as those that read ahead.
const BACKGROUND: u16 = 64;
/// Number of files that is shown.
const SHOWN_FILES: u64 = 1 << 20;
const NO_GENERATION: Generation = Generation(0);

/// Implements the file system of `fuser`.
pub struct Requests(pub Files);

/// Result for the kernel. A panic is an error of the request only.
fn guarded<T>(call: impl FnOnce() -> Called<T>) -> Result<T, fuser::Errno> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(called) => called.map_err(|Errno(number)| fuser::Errno::from_i32(number)),
        Err(_) => Err(fuser::Errno::EIO),
    }
}

/// Type of a mode.
fn kind(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

impl Requests {
    /// A file or a directory.
    fn close(&self, handle: FileHandle, reply: ReplyEmpty) {
        let closed = guarded(|| {
            self.0.close(handle.0);
            Ok(())
        });
        reply_empty(closed, reply);
    }

    fn attributes(&self, node: u64, meta: Meta) -> FileAttr {
        let ((uid, gid), time) = (self.0.owner(), self.0.time());
        let kind = kind(meta.mode);
        FileAttr {
            ino: INodeNo(node),
            size: meta.len_bytes,
            blocks: meta.len_bytes.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm: (meta.mode & 0o7777) as u16,
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            uid,
            gid,
            rdev: 0,
            blksize: PAGE_BYTES,
            flags: 0,
        }
    }

    fn open_flags(&self) -> FopenFlags {
        if self.0.is_live() { FopenFlags::FOPEN_DIRECT_IO } else { FopenFlags::FOPEN_KEEP_CACHE }
    }

    fn reply_entry(&self, found: Result<(u64, Meta), fuser::Errno>, reply: ReplyEntry) {
        match found {
            Ok((node, meta)) => {
                let (attributes, names) = (self.0.attributes_valid(), self.0.names_valid());
                reply.entry_with_ttls(&attributes, &names, &self.attributes(node, meta), NO_GENERATION);
            }
            Err(error) => reply.error(error),
        }
    }

    fn reply_attributes(&self, node: INodeNo, found: Result<Meta, fuser::Errno>, reply: ReplyAttr) {
        match found {
            Ok(meta) => reply.attr(&self.0.attributes_valid(), &self.attributes(node.0, meta)),
            Err(error) => reply.error(error),
        }
    }
}

fn reply_empty(done: Result<(), fuser::Errno>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Requests {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // A kernel that lacks one works without it. Limits that are out of range stay as they are.
        for flag in [InitFlags::FUSE_ATOMIC_O_TRUNC, InitFlags::FUSE_PARALLEL_DIROPS] {
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_write(MAX_TRANSFER_BYTES);
        let _ = config.set_max_background(BACKGROUND);
        let _ = config.set_congestion_threshold(BACKGROUND / 4 * 3);
        let _ = config.set_time_granularity(Duration::from_secs(1));
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.reply_entry(guarded(|| self.0.lookup(parent.0, name)), reply);
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.reply_attributes(node, guarded(|| self.0.meta_of(node.0)), reply);
    }

    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        len_bytes: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.reply_attributes(node, guarded(|| self.0.set_attributes(node.0, mode, len_bytes)), reply);
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        match guarded(|| self.0.read_link(node.0)) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        self.reply_entry(guarded(|| self.0.make(parent.0, name, Change::Create { mode })), reply);
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        self.reply_entry(guarded(|| self.0.make(parent.0, name, Change::MakeDirectory { mode })), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(guarded(|| self.0.remove(parent.0, name, Change::Unlink)), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(guarded(|| self.0.remove(parent.0, name, Change::RemoveDirectory)), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((parent.0, name), (new_parent.0, new_name));
        reply_empty(guarded(|| self.0.rename(from, to, flags.bits())), reply);
    }

    fn open(&self, _: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match guarded(|| self.0.open(node.0, flags.0)) {
            Ok(handle) => reply.opened(FileHandle(handle), self.open_flags()),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match guarded(|| self.0.create(parent.0, name, mode, flags)) {
            Ok((node, meta, handle)) => {
                // `fuser` has one validity for the name and the attributes: the shorter one.
                let valid = self.0.names_valid();
                let attributes = self.attributes(node, meta);
                reply.created(&valid, &attributes, NO_GENERATION, FileHandle(handle), self.open_flags());
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset_bytes: u64,
        len_bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match guarded(|| self.0.file(handle.0)?.read(offset_bytes, len_bytes)) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset_bytes: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match guarded(|| self.0.file(handle.0)?.write(offset_bytes, bytes)) {
            Ok(()) => reply.written(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(error),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.close(handle, reply);
    }

    /// Changes go away with the view.
    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn opendir(&self, _: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match guarded(|| self.0.open_directory(node.0)) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, position: u64, mut reply: ReplyDirectory) {
        match guarded(|| self.0.directory(handle.0)) {
            Ok(listed) => {
                for (next, (node, name, meta)) in (1u64..).zip(listed.iter()) {
                    if next > position && reply.add(INodeNo(*node), next, kind(meta.mode), name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(error),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.close(handle, reply);
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = SHOWN_BYTES / u64::from(PAGE_BYTES);
        let free = blocks / 2;
        reply.statfs(blocks, free, free, SHOWN_FILES, SHOWN_FILES, PAGE_BYTES, 255, PAGE_BYTES);
    }

    /// There is no place to keep it. `fuser` rejects links in the same way.
    fn setxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: &[u8], _: i32, _: u32, reply: ReplyEmpty) {
        reply.error(fuser::Errno::EPERM);
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(fuser::Errno::EPERM);
    }
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
