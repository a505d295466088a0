use super::*;
use redoubt_page::doublewrite::TRX_SYS_PAGE_NO;

/// `full_crc32`, pages of 16 KiB.
const FLAGS: u32 = 0x15;
const PAGE_LEN_BYTES: usize = 16384;
/// FIL header, page 0's flags in the FSP header, and its encryption data as MariaDB 10.11 writes it.
const FSP_SPACE_FLAGS: usize = 54;
const CRYPT_DATA: usize = 10428;
const KEY_ID: u8 = 1;
/// `TRX_SYS_DOUBLEWRITE`: magic number and the two blocks at 10, 14, 18, and again 12 bytes later.
const DOUBLEWRITE: usize = PAGE_LEN_BYTES - 200;
const MAGIC: u32 = 536_853_855;

/// The system tablespace with the doublewrite blocks 64 to 127 and 128 to 191, and one page more.
fn system_tablespace() -> Vec<u8> {
    let mut bytes = vec![0; 193 * PAGE_LEN_BYTES];
    put(&mut bytes, FSP_SPACE_FLAGS, &FLAGS.to_be_bytes());
    put(&mut bytes, CRYPT_DATA, &[b's', 0x0e, 0x0c, b'R', b'E', b't', 1, 16]);
    put(&mut bytes, CRYPT_DATA + 24, &[0, 0, 0, 1, 0, 0, 0, KEY_ID]);
    let header = TRX_SYS_PAGE_NO as usize * PAGE_LEN_BYTES + DOUBLEWRITE;
    for (field, value) in [(10, MAGIC), (14, 64), (18, 128)] {
        put(&mut bytes, header + field, &value.to_be_bytes());
        put(&mut bytes, header + field + 12, &value.to_be_bytes());
    }
    bytes
}

/// Decrypts the tablespace with the checksum of a ROW_FORMAT=COMPRESSED page at the start of page `page_no`.
fn with_foreign_page(page_no: usize) -> Result<Vec<u8>> {
    let mut bytes = system_tablespace();
    put(&mut bytes, page_no * PAGE_LEN_BYTES, &0xfa64_0042_u32.to_be_bytes());
    let mut files = BTreeMap::from([("ibdata1".to_owned(), bytes)]);
    decrypt(&mut files, None, Lsn(u64::MAX))?;
    Ok(files.remove("ibdata1").unwrap())
}

#[test]
fn copies_in_the_doublewrite_area_are_left_out() {
    for page_no in [64, 127, 128, 191] {
        assert!(with_foreign_page(page_no).unwrap() == system_tablespace(), "{page_no}");
    }
}

#[test]
fn elsewhere_an_unknown_key_version_is_an_error() {
    for page_no in [63, 192] {
        let error = with_foreign_page(page_no).unwrap_err().to_string();
        assert!(error.contains(&format!("page 0:{page_no} of ibdata1: key version 4200857666")), "{error}");
    }
}
