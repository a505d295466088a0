//! The kernel's file encryption (fscrypt): the calls that a node needs, with their arguments and results.
//!
//! A directory that gets a policy while it is empty has everything in it encrypted from then on, names included; so has
//! every directory below it. The policy (version 2) names its key by an identifier, which the kernel derives from the
//! key: a wrong key is found out by it. A key is added to a file system, not to a directory, and stays until it is
//! removed or the file system is unmounted. Without it the files can be listed under other names, removed, and not
//! opened. See Documentation/filesystems/fscrypt.rst of the kernel.
//!
//! Structures have the layout of `linux/fscrypt.h`; their sizes are compared with the bindings of `linux-raw-sys`.

use linux_raw_sys::general::{
    FSCRYPT_KEY_IDENTIFIER_SIZE, FSCRYPT_KEY_REMOVAL_STATUS_FLAG_FILES_BUSY,
    FSCRYPT_KEY_REMOVAL_STATUS_FLAG_OTHER_USERS, FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER, FSCRYPT_MAX_KEY_SIZE,
    FSCRYPT_MODE_AES_256_CTS, FSCRYPT_MODE_AES_256_XTS, FSCRYPT_POLICY_FLAGS_PAD_32, FSCRYPT_POLICY_V2,
    fscrypt_add_key_arg, fscrypt_get_policy_ex_arg, fscrypt_key_specifier, fscrypt_policy_v2,
    fscrypt_remove_key_arg,
};
use linux_raw_sys::ioctl::{
    FS_IOC_ADD_ENCRYPTION_KEY, FS_IOC_GET_ENCRYPTION_POLICY_EX, FS_IOC_REMOVE_ENCRYPTION_KEY,
    FS_IOC_SET_ENCRYPTION_POLICY,
};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, Updater, ioctl};
use std::fmt;
use std::fs::File;
use std::io;
use zeroize::Zeroize;

/// Length of a volume's key: the longest that the kernel takes.
pub const KEY_LEN_BYTES: usize = FSCRYPT_MAX_KEY_SIZE as usize;
const IDENTIFIER_LEN_BYTES: usize = FSCRYPT_KEY_IDENTIFIER_SIZE as usize;
const POLICY_LEN_BYTES: usize = size_of::<fscrypt_policy_v2>();

/// Names a key. The kernel derives it from the key; it reveals nothing about the key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KeyIdentifier([u8; IDENTIFIER_LEN_BYTES]);

impl fmt::Display for KeyIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// How a directory is encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// As [`set_policy`] does it, with this key.
    Ours(KeyIdentifier),
    /// In another way: the policy's bytes.
    Other([u8; POLICY_LEN_BYTES]),
}

/// Encryption of a directory, as the kernel reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encryption {
    /// This kind of file system has no encryption of files.
    NoSuchCall,
    /// It could have, but for this file system, or in this kernel, it is not switched on.
    SwitchedOff,
    /// It is not encrypted, and could be.
    Clear,
    /// It is encrypted.
    Encrypted(Policy),
}

/// Remains of a key that was removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// Files that were open can still be read, until they are closed and the key is removed again.
    OpenFiles,
    /// Another user of this host has added the key too.
    OtherUsers,
}

#[repr(C)]
struct GetPolicy {
    policy_size: u64,
    policy: [u8; POLICY_LEN_BYTES],
}

#[repr(C)]
struct KeySpecifier {
    kind: u32,
    reserved: u32,
    identifier: [u8; 32],
}

#[repr(C)]
struct AddKey {
    specifier: KeySpecifier,
    raw_size: u32,
    key_id: u32,
    reserved: [u32; 8],
    raw: [u8; KEY_LEN_BYTES],
}

#[repr(C)]
struct RemoveKey {
    specifier: KeySpecifier,
    status: u32,
    reserved: [u32; 5],
}

const _: () = assert!(size_of::<GetPolicy>() == size_of::<fscrypt_get_policy_ex_arg>());
const _: () = assert!(size_of::<KeySpecifier>() == size_of::<fscrypt_key_specifier>());
const _: () = assert!(size_of::<AddKey>() == size_of::<fscrypt_add_key_arg>() + KEY_LEN_BYTES);
const _: () = assert!(size_of::<RemoveKey>() == size_of::<fscrypt_remove_key_arg>());

impl KeySpecifier {
    fn of(KeyIdentifier(identifier): KeyIdentifier) -> Self {
        let mut specifier = Self { kind: FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER, reserved: 0, identifier: [0; 32] };
        specifier.identifier[..IDENTIFIER_LEN_BYTES].copy_from_slice(&identifier);
        specifier
    }
}

/// The policy that Redoubt sets.
fn policy_of(KeyIdentifier(identifier): KeyIdentifier) -> fscrypt_policy_v2 {
    fscrypt_policy_v2 {
        version: FSCRYPT_POLICY_V2 as u8,
        contents_encryption_mode: FSCRYPT_MODE_AES_256_XTS as u8,
        filenames_encryption_mode: FSCRYPT_MODE_AES_256_CTS as u8,
        flags: FSCRYPT_POLICY_FLAGS_PAD_32 as u8,
        log2_data_unit_size: 0,
        __reserved: [0; 3],
        master_key_identifier: identifier,
    }
}

/// A policy from the kernel: `len_bytes` long, in a buffer that is longer for older versions.
fn decode_policy(len_bytes: u64, bytes: [u8; POLICY_LEN_BYTES]) -> Policy {
    let (head, identifier) = bytes.split_at(POLICY_LEN_BYTES - IDENTIFIER_LEN_BYTES);
    let ours = policy_of(KeyIdentifier([0; IDENTIFIER_LEN_BYTES]));
    let expected =
        [ours.version, ours.contents_encryption_mode, ours.filenames_encryption_mode, ours.flags, 0, 0, 0, 0];
    match identifier.try_into() {
        Ok(identifier) if len_bytes == POLICY_LEN_BYTES as u64 && head == expected => {
            Policy::Ours(KeyIdentifier(identifier))
        }
        _ => Policy::Other(bytes),
    }
}

/// Meaning of the kernel's answer to a query for the policy, or the error.
fn state(answer: Result<Policy, Errno>) -> io::Result<Encryption> {
    match answer {
        Ok(policy) => Ok(Encryption::Encrypted(policy)),
        Err(Errno::NODATA) => Ok(Encryption::Clear),
        Err(Errno::OPNOTSUPP) => Ok(Encryption::SwitchedOff),
        // NOSYS: from a sandbox around this process.
        Err(Errno::NOTTY | Errno::NOSYS) => Ok(Encryption::NoSuchCall),
        Err(error) => Err(error.into()),
    }
}

/// How `directory` is encrypted. Needs no key.
///
/// # Errors
/// The kernel's error, if it does not describe a state; `InvalidInput`: this kernel does not support the policy.
pub fn read_state(directory: &File) -> io::Result<Encryption> {
    const CODE: Opcode = FS_IOC_GET_ENCRYPTION_POLICY_EX;
    let mut get = GetPolicy { policy_size: POLICY_LEN_BYTES as u64, policy: [0; POLICY_LEN_BYTES] };
    // SAFETY: the call reads policy_size and writes at most that many bytes after it, which are there; any bytes are
    // values of the structure.
    let got = unsafe { ioctl(directory, Updater::<CODE, GetPolicy>::new(&mut get)) };
    state(got.map(|()| decode_policy(get.policy_size, get.policy)))
}

/// Has everything in `directory`, which must be empty, encrypted with a key that the file system has.
///
/// # Errors
/// The kernel's error: `DirectoryNotEmpty`, `AlreadyExists` if the directory has another policy.
pub fn set_policy(directory: &File, key: KeyIdentifier) -> io::Result<()> {
    const CODE: Opcode = FS_IOC_SET_ENCRYPTION_POLICY;
    // SAFETY: the call reads a policy, whose length it takes from the version, which is that of this structure.
    unsafe { ioctl(directory, Setter::<CODE, fscrypt_policy_v2>::new(policy_of(key)))? };
    Ok(())
}

/// Adds a key to the file system that `on_it` is a file of, and returns its identifier. It is no error if the file
/// system has the key already.
///
/// # Errors
/// The kernel's error.
pub fn add_key(on_it: &File, key: &[u8; KEY_LEN_BYTES]) -> io::Result<KeyIdentifier> {
    const CODE: Opcode = FS_IOC_ADD_ENCRYPTION_KEY;
    let mut add = AddKey {
        specifier: KeySpecifier::of(KeyIdentifier([0; IDENTIFIER_LEN_BYTES])),
        raw_size: KEY_LEN_BYTES as u32,
        key_id: 0,
        reserved: [0; 8],
        raw: *key,
    };
    // SAFETY: the call reads the structure and raw_size bytes after it, which are its last field, and writes the
    // identifier into it; any bytes are values of the structure.
    let added = unsafe { ioctl(on_it, Updater::<CODE, AddKey>::new(&mut add)) };
    add.raw.zeroize();
    added?;
    let mut identifier = [0; IDENTIFIER_LEN_BYTES];
    identifier.copy_from_slice(&add.specifier.identifier[..IDENTIFIER_LEN_BYTES]);
    Ok(KeyIdentifier(identifier))
}

/// Removes a key from the file system that `on_it` is a file of, together with the kernel's cache of the files that
/// were encrypted with it. It is no error if the key is not there.
///
/// # Errors
/// The kernel's error.
pub fn remove_key(on_it: &File, key: KeyIdentifier) -> io::Result<Left> {
    const CODE: Opcode = FS_IOC_REMOVE_ENCRYPTION_KEY;
    let mut remove = RemoveKey { specifier: KeySpecifier::of(key), status: 0, reserved: [0; 5] };
    // SAFETY: the call reads the structure and writes its status; any bytes are values of the structure.
    match unsafe { ioctl(on_it, Updater::<CODE, RemoveKey>::new(&mut remove)) } {
        Err(Errno::NOKEY) => Ok(Left::Nothing),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(left(remove.status)),
    }
}

fn left(status: u32) -> Left {
    if status & FSCRYPT_KEY_REMOVAL_STATUS_FLAG_OTHER_USERS != 0 {
        Left::OtherUsers
    } else if status & FSCRYPT_KEY_REMOVAL_STATUS_FLAG_FILES_BUSY != 0 {
        Left::OpenFiles
    } else {
        Left::Nothing
    }
}

#[cfg(test)]
mod tests;
