//! Replaces functions that the server's program itself imports, in its table of addresses.
//!
//! It exports no symbols of the same names, as for the C library's functions. Those would also be found by plugins and,
//! in clients, by modules with another version of the library, out of reach of `dlsym(RTLD_NEXT)`.
//!
//! It works on the mappings of the dynamic loader, before the program's `main`, and takes no lock.

use libc::{c_char, c_int, c_void, dl_phdr_info};
use std::ffi::CStr;

#[cfg(target_arch = "x86_64")]
const ADDRESS_KINDS: [u32; 2] = [6, 7];
#[cfg(target_arch = "aarch64")]
const ADDRESS_KINDS: [u32; 2] = [1025, 1026];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ADDRESS_KINDS: [u32; 2] = [u32::MAX, u32::MAX];

const DYNAMIC: u32 = 2;
mod tag {
    pub const CALLS_LEN: u64 = 2;
    pub const STRINGS: u64 = 5;
    pub const SYMBOLS: u64 = 6;
    pub const DATA: u64 = 7;
    pub const DATA_LEN: u64 = 8;
    pub const CALLS_KIND: u64 = 20;
    pub const CALLS: u64 = 23;
}

/// An entry of the dynamic section.
#[repr(C)]
struct Entry {
    tag: u64,
    value: u64,
}

/// A relocation with addend, the only kind on the supported platforms.
#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// A function of the program, and its replacement.
pub struct Import {
    /// Name of the imported function.
    pub name: &'static CStr,
    /// The replacement, of the same signature.
    pub replacement: *mut c_void,
}

#[derive(Default)]
struct Tables {
    strings: u64,
    symbols: u64,
    calls: (u64, u64),
    data: (u64, u64),
    has_addends: bool,
}

struct Search<'a> {
    imports: &'a [Import],
    replaced: usize,
}

/// Replaces the functions in the program's table, and returns the number of entries changed.
pub fn replace(imports: &[Import]) -> usize {
    let mut search = Search { imports, replaced: 0 };
    // SAFETY: the function gets this value, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut search).cast::<c_void>()) };
    search.replaced
}

/// The first object is the program.
unsafe extern "C" fn first(info: *mut dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader's description of an object that stays, and the value of `replace`.
    unsafe {
        let search = &mut *search.cast::<Search>();
        let headers = std::slice::from_raw_parts((*info).dlpi_phdr, usize::from((*info).dlpi_phnum));
        let base = (*info).dlpi_addr;
        if let Some(header) = headers.iter().find(|header| header.p_type == DYNAMIC) {
            let tables = read_dynamic((base + header.p_vaddr) as *const Entry, base);
            if tables.has_addends && tables.strings != 0 && tables.symbols != 0 {
                for (start, len_bytes) in [tables.calls, tables.data] {
                    search_table(search, &tables, base, start, len_bytes);
                }
            }
        }
    }
    1
}

/// # Safety
/// The address is that of an object's dynamic section.
unsafe fn read_dynamic(mut entry: *const Entry, base: u64) -> Tables {
    let mut tables = Tables::default();
    // glibc has added the base to these already, other loaders have not.
    let absolute = |value: u64| if value < base { value + base } else { value };
    // SAFETY: the section ends with an entry whose tag is zero.
    unsafe {
        while (*entry).tag != 0 {
            let value = (*entry).value;
            match (*entry).tag {
                tag::CALLS_LEN => tables.calls.1 = value,
                tag::STRINGS => tables.strings = absolute(value),
                tag::SYMBOLS => tables.symbols = absolute(value),
                tag::DATA => tables.data.0 = absolute(value),
                tag::DATA_LEN => tables.data.1 = value,
                tag::CALLS_KIND => tables.has_addends = value == tag::DATA,
                tag::CALLS => tables.calls.0 = absolute(value),
                _ => {}
            }
            entry = entry.add(1);
        }
    }
    tables
}

/// # Safety
/// The tables are those of the object at this base.
unsafe fn search_table(search: &mut Search, tables: &Tables, base: u64, start: u64, len_bytes: u64) {
    if start == 0 {
        return;
    }
    for index in 0..len_bytes as usize / size_of::<Relocation>() {
        // SAFETY: within the object's tables, as it describes them itself.
        unsafe {
            let relocation = &*(start as *const Relocation).add(index);
            if !ADDRESS_KINDS.contains(&(relocation.info as u32)) {
                continue;
            }
            let symbol = &*(tables.symbols as *const Symbol).add((relocation.info >> 32) as usize);
            let name = CStr::from_ptr((tables.strings + u64::from(symbol.name)) as *const c_char);
            if let Some(import) = search.imports.iter().find(|import| import.name == name) {
                let place = (base + relocation.offset) as *mut *mut c_void;
                search.replaced += usize::from(write(place, import.replacement));
            }
        }
    }
}

/// Writes an address where the loader has made the page read-only.
///
/// # Safety
/// The place is an entry of the program's table.
unsafe fn write(place: *mut *mut c_void, value: *mut c_void) -> bool {
    // SAFETY: sysconf has no requirement; the page is the program's own data. It gets its protection back if that was
    // removed; a table that is, or may be, written to later stays writable.
    unsafe {
        let page_len = libc::sysconf(libc::_SC_PAGESIZE).max(4096) as usize;
        let page = (place as usize & !(page_len - 1)) as *mut c_void;
        let was_writable = is_writable(place as usize);
        if was_writable != Some(true)
            && libc::mprotect(page, page_len, libc::PROT_READ | libc::PROT_WRITE) != 0
        {
            return false;
        }
        place.write(value);
        if was_writable == Some(false) {
            libc::mprotect(page, page_len, libc::PROT_READ);
        }
    }
    true
}

/// The address is writable. `None`: unknown, since /proc cannot be read.
fn is_writable(address: usize) -> Option<bool> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    Some(maps.lines().any(|line| {
        let mut words = line.split_whitespace();
        let range = words.next().and_then(|range| range.split_once('-'));
        let Some((Ok(first), Ok(end))) =
            range.map(|(first, end)| (usize::from_str_radix(first, 16), usize::from_str_radix(end, 16)))
        else {
            return false;
        };
        (first..end).contains(&address) && words.next().is_some_and(|rights| rights.contains('w'))
    }))
}
