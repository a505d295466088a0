//! Writes with a real ring to a real file. The tests have no drive with streams, but check the kernel's rejections.

use std::os::unix::fs::FileExt;

use super::*;

fn page(byte: u8) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(16_384);
    buffer.bytes_mut().fill(byte);
    buffer
}

fn ring() -> Option<StreamUring> {
    let ring = StreamUring::new();
    if let Err(error) = &ring {
        redoubt_test_support::skip("io_uring", error);
    }
    ring.ok()
}

#[test]
fn a_write_is_done_when_it_returns() {
    let Some(mut ring) = ring() else { return };
    let file = tempfile::tempfile().unwrap();
    let mut buffer = page(0);
    for n in 0..200_u8 {
        buffer.bytes_mut().fill(n);
        buffer = ring.write(&file, u64::from(n % 7) * 16_384, buffer, 0, ReadWriteFlags::empty()).unwrap();
        let mut read = vec![0; 16_384];
        file.read_exact_at(&mut read, u64::from(n % 7) * 16_384).unwrap();
        assert_eq!(read, buffer.bytes());
    }
}

#[test]
fn what_the_kernel_refuses_is_an_error_that_says_so() {
    let Some(mut ring) = ring() else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    // Files of a file system support untorn writes only if both the file system and the open flags allow it.
    let error = ring.write(file.as_file(), 0, page(1), 0, untorn::RWF_ATOMIC).err().unwrap();
    assert!(matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput), "{error}");
    assert!(error.to_string().contains("untorn"), "{error}");
    let read_only = File::open(file.path()).unwrap();
    let mut ring = StreamUring::new().unwrap();
    let error = ring.write(&read_only, 0, page(1), 0, ReadWriteFlags::empty()).err().unwrap();
    assert_eq!(error.raw_os_error(), Some(Errno::BADF.raw_os_error()), "{error}");
    assert_eq!(file.as_file().metadata().unwrap().len(), 0);
}
