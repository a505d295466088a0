//! The primitive steps on real memory: the instructions, chosen at run time by what the processor has.
//!
//! Non-temporal stores use the widest registers there are; flushes use `clwb`, which keeps the line in the cache,
//! or else `clflushopt` or `clflush`. Elsewhere than on x86-64 there are only plain copies, and nothing is durable.
//!
//! Stores and loads go through instructions that the compiler does not see into, or through atomics: mapped bytes
//! may be touched by several threads at once.

use std::fmt;
use std::sync::OnceLock;

#[cfg(not(target_arch = "x86_64"))]
use portable as imp;
#[cfg(target_arch = "x86_64")]
use x86_64 as imp;

/// The instructions to use. Small, to be kept beside the data they write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stores {
    wide: imp::Wide,
    flush: imp::Flush,
}

impl fmt::Display for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.wide.name(), self.flush.name())
    }
}

impl Stores {
    /// The best that this processor has.
    pub fn detect() -> Self {
        static DETECTED: OnceLock<Stores> = OnceLock::new();
        *DETECTED.get_or_init(|| Self { wide: imp::Wide::detect(), flush: imp::Flush::detect() })
    }

    /// All that this processor has, for tests.
    #[cfg(test)]
    pub fn all() -> Vec<Self> {
        let wides = imp::Wide::all().iter().filter(|wide| wide.is_known());
        wides
            .flat_map(|&wide| {
                let flushes = imp::Flush::all().iter().filter(|flush| flush.is_known());
                flushes.map(move |&flush| Self { wide, flush })
            })
            .collect()
    }

    /// Stores whole lines past the cache.
    ///
    /// # Safety
    /// `to` is aligned to a line, and `lines.len()` bytes, a multiple of a line, are writable there.
    #[inline]
    pub unsafe fn store_nt(self, to: *mut u8, lines: &[u8]) {
        // SAFETY: passed on.
        unsafe { imp::store_nt(self.wide, to, lines) };
    }

    /// Stores bytes by ordinary stores, whole aligned words at once.
    ///
    /// # Safety
    /// `bytes.len()` bytes are writable at `to`.
    #[inline]
    pub unsafe fn store_cached(self, to: *mut u8, bytes: &[u8]) {
        // SAFETY: passed on.
        unsafe { store_words(to, bytes) };
    }

    /// Begins to write back the line at `line`.
    ///
    /// # Safety
    /// `line` is aligned to a line and mapped.
    #[inline]
    pub unsafe fn flush_line(self, line: *mut u8) {
        // SAFETY: passed on.
        unsafe { imp::flush_line(self.flush, line) };
    }

    /// Waits for the non-temporal stores and flushes of this thread.
    #[inline]
    pub fn fence(self) {
        imp::fence();
    }

    /// Copies from mapped memory.
    ///
    /// # Safety
    /// `buf.len()` bytes are readable at `from`.
    #[inline]
    pub unsafe fn load(self, from: *const u8, buf: &mut [u8]) {
        // SAFETY: passed on.
        unsafe { imp::load(from, buf) };
    }
}

/// Stores bytes by atomic stores: words of eight where the target is aligned, single bytes before and after.
///
/// # Safety
/// `bytes.len()` bytes are writable at `to`.
unsafe fn store_words(to: *mut u8, bytes: &[u8]) {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
    let mut to = to;
    let mut rest = bytes;
    while let Some((&byte, after)) = rest.split_first() {
        match rest.split_first_chunk() {
            Some((word, after_word)) if to.addr().is_multiple_of(8) => {
                // SAFETY: eight writable bytes are left at `to`, which is aligned to eight.
                unsafe { AtomicU64::from_ptr(to.cast()) }.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
                // SAFETY: still inside, or just after, the range that the caller vouches for.
                to = unsafe { to.add(8) };
                rest = after_word;
            }
            _ => {
                // SAFETY: at least one writable byte is left at `to`.
                unsafe { AtomicU8::from_ptr(to) }.store(byte, Ordering::Relaxed);
                // SAFETY: as above.
                to = unsafe { to.add(1) };
                rest = after;
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    //! The instructions of x86-64.

    use std::arch::asm;
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_clflush, _mm_loadu_si128, _mm_sfence, _mm_stream_si128, _mm256_loadu_si256,
        _mm256_stream_si256,
    };

    use crate::memory::LINE_LEN_BYTES;

    /// The registers that carry non-temporal stores.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Wide {
        Avx512,
        Avx,
        Sse2,
    }

    /// The instruction that writes back a line.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Flush {
        Clwb,
        Clflushopt,
        Clflush,
    }

    impl Wide {
        pub fn all() -> &'static [Self] {
            &[Self::Avx512, Self::Avx, Self::Sse2]
        }

        pub fn is_known(self) -> bool {
            match self {
                Self::Avx512 => is_x86_feature_detected!("avx512f"),
                Self::Avx => is_x86_feature_detected!("avx"),
                Self::Sse2 => true,
            }
        }

        pub fn detect() -> Self {
            Self::all().iter().copied().find(|wide| wide.is_known()).unwrap_or(Self::Sse2)
        }

        pub fn name(self) -> &'static str {
            match self {
                Self::Avx512 => "64-byte non-temporal stores",
                Self::Avx => "32-byte non-temporal stores",
                Self::Sse2 => "16-byte non-temporal stores",
            }
        }
    }

    impl Flush {
        pub fn all() -> &'static [Self] {
            &[Self::Clwb, Self::Clflushopt, Self::Clflush]
        }

        /// The standard library does not tell about these instructions, so ask the processor.
        pub fn is_known(self) -> bool {
            const EXTENDED_FEATURES: u32 = 7;
            // SAFETY: every x86-64 processor has `cpuid`; leaf 0 tells whether leaf 7 is there.
            #[allow(unused_unsafe)]
            let ebx = unsafe {
                use std::arch::x86_64::{__cpuid, __cpuid_count};
                if __cpuid(0).eax < EXTENDED_FEATURES { 0 } else { __cpuid_count(EXTENDED_FEATURES, 0).ebx }
            };
            match self {
                Self::Clwb => ebx & (1 << 24) != 0,
                Self::Clflushopt => ebx & (1 << 23) != 0,
                // Part of every x86-64 processor.
                Self::Clflush => true,
            }
        }

        pub fn detect() -> Self {
            Self::all().iter().copied().find(|flush| flush.is_known()).unwrap_or(Self::Clflush)
        }

        pub fn name(self) -> &'static str {
            match self {
                Self::Clwb => "clwb",
                Self::Clflushopt => "clflushopt",
                Self::Clflush => "clflush",
            }
        }
    }

    /// # Safety
    /// As [`super::Stores::store_nt`].
    #[inline]
    pub unsafe fn store_nt(wide: Wide, to: *mut u8, lines: &[u8]) {
        let count = lines.len() / LINE_LEN_BYTES;
        if count == 0 {
            return;
        }
        // SAFETY: `lines` holds `count` lines and so does the target; the processor has what `wide` says.
        unsafe {
            match wide {
                Wide::Avx512 => store_nt_avx512(to, lines.as_ptr(), count),
                Wide::Avx => store_nt_avx(to, lines.as_ptr(), count),
                Wide::Sse2 => store_nt_sse2(to, lines.as_ptr(), count),
            }
        }
    }

    /// One line at a time in one register. Written as assembly, since the intrinsics are newer than the oldest
    /// compiler supported. Registers from 16 on leave the processor in a state that costs older code nothing.
    ///
    /// # Safety
    /// As [`super::Stores::store_nt`], with at least one line.
    #[inline]
    unsafe fn store_nt_avx512(to: *mut u8, from: *const u8, count: usize) {
        // SAFETY: reads and writes `count` lines, which the caller vouches for; the target is line aligned.
        unsafe {
            asm!(
                "2:",
                "vmovdqu64 zmm16, [{from}]",
                "vmovntdq [{to}], zmm16",
                "add {from}, 64",
                "add {to}, 64",
                "dec {count}",
                "jnz 2b",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                count = inout(reg) count => _,
                out("xmm16") _,
                options(nostack),
            );
        }
    }

    /// # Safety
    /// As [`super::Stores::store_nt`].
    #[target_feature(enable = "avx")]
    unsafe fn store_nt_avx(to: *mut u8, from: *const u8, count: usize) {
        for n in 0..count * 2 {
            // SAFETY: `n` counts half lines, and `count` lines are there on both sides.
            unsafe {
                let half = _mm256_loadu_si256(from.cast::<__m256i>().add(n));
                _mm256_stream_si256(to.cast::<__m256i>().add(n), half);
            }
        }
    }

    /// # Safety
    /// As [`super::Stores::store_nt`].
    unsafe fn store_nt_sse2(to: *mut u8, from: *const u8, count: usize) {
        for n in 0..count * 4 {
            // SAFETY: `n` counts quarters of lines, and `count` lines are there on both sides.
            unsafe {
                let quarter = _mm_loadu_si128(from.cast::<__m128i>().add(n));
                _mm_stream_si128(to.cast::<__m128i>().add(n), quarter);
            }
        }
    }

    /// # Safety
    /// As [`super::Stores::flush_line`].
    #[inline]
    pub unsafe fn flush_line(flush: Flush, line: *mut u8) {
        // SAFETY: the line is mapped, and the processor has the instruction.
        unsafe {
            match flush {
                Flush::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                Flush::Clflushopt => asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)),
                Flush::Clflush => _mm_clflush(line),
            }
        }
    }

    #[inline]
    pub fn fence() {
        // SAFETY: every x86-64 processor has the instruction.
        #[allow(unused_unsafe)]
        unsafe {
            _mm_sfence()
        };
    }

    /// # Safety
    /// As [`super::Stores::load`].
    #[inline]
    pub unsafe fn load(from: *const u8, buf: &mut [u8]) {
        // SAFETY: copies `buf.len()` bytes, readable and writable as the caller vouches; the direction flag is
        // clear by the calling convention.
        unsafe {
            asm!(
                "rep movsb",
                inout("rsi") from => _,
                inout("rdi") buf.as_mut_ptr() => _,
                inout("rcx") buf.len() => _,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod portable {
    //! Plain copies, for processors whose durable stores are not known here.

    use std::sync::atomic::{AtomicU8, Ordering};

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Wide;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Flush;

    impl Wide {
        #[cfg(test)]
        pub fn all() -> &'static [Self] {
            &[Self]
        }

        #[cfg(test)]
        pub fn is_known(self) -> bool {
            true
        }

        pub fn detect() -> Self {
            Self
        }

        pub fn name(self) -> &'static str {
            "plain stores"
        }
    }

    impl Flush {
        #[cfg(test)]
        pub fn all() -> &'static [Self] {
            &[Self]
        }

        #[cfg(test)]
        pub fn is_known(self) -> bool {
            true
        }

        pub fn detect() -> Self {
            Self
        }

        pub fn name(self) -> &'static str {
            "no flush"
        }
    }

    /// # Safety
    /// As [`super::Stores::store_nt`].
    pub unsafe fn store_nt(_wide: Wide, to: *mut u8, lines: &[u8]) {
        // SAFETY: passed on.
        unsafe { super::store_words(to, lines) };
    }

    /// # Safety
    /// None: nothing is done.
    pub unsafe fn flush_line(_flush: Flush, _line: *mut u8) {}

    pub fn fence() {
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// # Safety
    /// As [`super::Stores::load`].
    pub unsafe fn load(from: *const u8, buf: &mut [u8]) {
        for (n, byte) in buf.iter_mut().enumerate() {
            // SAFETY: `n` is inside the range that the caller vouches for.
            *byte = unsafe { AtomicU8::from_ptr(from.add(n).cast_mut()) }.load(Ordering::Relaxed);
        }
    }
}
