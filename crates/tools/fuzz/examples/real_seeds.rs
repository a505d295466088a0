//! Makes seeds for the corpus from what real servers and nodes wrote.
//!
//! `cargo run --release -p redoubt-fuzz --example real_seeds -- OUT stock DATADIR...` takes pages and redo of data
//! directories of killed servers (any page size); `... -- OUT volume DIR...` takes frames and the checkpoint of
//! volumes. `OUT/TARGET/` gets files named by content. Afterwards `scripts/fuzz --minimise` leaves what adds
//! coverage.

#![allow(clippy::unwrap_used, reason = "a tool for those who make the corpus")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redoubt_fuzz::{page_bytes, page_files, record_applier};
use redoubt_logdev::{FileLogDevice, LogDevice, SegmentOptions};
use redoubt_page::layout::page_type;
use redoubt_page::{SpaceFlags, flags_of_page0};
use redoubt_redo::Mtr;
use redoubt_redo::mariadb::LogScan;
use redoubt_storage::{RealDir, RealDirOptions};
use redoubt_wire::{FrameHeader, HEADER_LEN_BYTES};

/// Longer pieces make a fuzzer slow.
const MAX_REDO: usize = 1500;

struct Out(PathBuf);

impl Out {
    fn put(&self, target: &str, content: &[u8]) {
        let directory = self.0.join(target);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(format!("real-{:08x}", crc32c::crc32c(content))), content).unwrap();
    }
}

fn files_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_below(&path, found) } else { found.push(path) }
    }
}

fn position(formats: &[u32], flags: SpaceFlags) -> Option<u8> {
    formats.iter().position(|format| *format == flags.0).map(|at| at as u8)
}

/// One page of each type of each file, and the newest image of each page by (space, page number).
fn pages(out: &Out, directory: &Path) -> BTreeMap<(u32, u32), (SpaceFlags, Vec<u8>)> {
    let mut files = Vec::new();
    files_below(directory, &mut files);
    let (mut seen, mut images) = (BTreeSet::new(), BTreeMap::new());
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !(name.ends_with(".ibd") || name.starts_with("ibdata") || name.starts_with("undo00")) {
            continue;
        }
        let content = std::fs::read(&path).unwrap();
        let Ok(flags) = flags_of_page0(&content) else { continue };
        for (page_no, page) in content.chunks_exact(flags.physical_page_size_bytes()).enumerate() {
            let space = u32::from_be_bytes(page[34..38].try_into().unwrap());
            images.insert((space, page_no as u32), (flags, page.to_vec()));
            if page.iter().all(|byte| *byte == 0) || !seen.insert((flags.0, page_type(page))) {
                continue;
            }
            let format = position(&page_bytes::FORMATS, flags).unwrap_or(0);
            out.put("page_bytes", &[&[format, 0], page].concat());
        }
    }
    images
}

fn stock(out: &Out, directory: &Path) {
    let images = pages(out, directory);
    let content = std::fs::read(directory.join("ib_logfile0")).unwrap();
    let scan = LogScan::open(&content[..]).unwrap();
    let (mut stream, mut records) = (Vec::new(), vec![9, 2, 3]);
    let mut kinds = BTreeSet::new();
    let formats: Vec<u32> = record_applier::FORMATS.iter().map(|flags| flags.0).collect();
    let mut visit = |mtr: &Mtr<'_, '_>| {
        if mtr.bytes.len() <= MAX_REDO {
            stream.extend_from_slice(mtr.bytes);
            records.extend_from_slice(mtr.records);
            records.push(0xff);
        }
        if stream.len() > MAX_REDO {
            out.put("redo_parser", &std::mem::take(&mut stream));
            out.put("redo_views", &std::mem::replace(&mut records, vec![9, 2, 3]));
        }
        for run in mtr.runs {
            let bytes = mtr.run_bytes(run);
            let id = (run.page.space.0, run.page.page_no.0);
            let Some((flags, page)) = images.get(&id) else { continue };
            // One run of each shape: first bytes of its records, by page type.
            let shape = (flags.0, page_type(page), bytes.len().ilog2(), bytes[0] & 0x70);
            if let Some(format) = position(&formats, *flags)
                && bytes.len() < MAX_REDO
                && kinds.insert(shape)
            {
                out.put("record_applier", &[&[format, 0x80, 0], &page[..], bytes].concat());
                out.put("record_applier", &[&[format, 0, 0], bytes].concat());
            }
        }
    };
    let end = scan.walk(scan.checkpoint().checkpoint_lsn, &mut visit).unwrap();
    println!("{}: redo up to {}", directory.display(), end.end_lsn);
    // A whole log file of the smallest kind: header, checkpoint, and the redo from there, at its place.
    let start = scan.geometry().offset_of(scan.checkpoint().checkpoint_lsn) as usize;
    if start < 64 << 10 {
        out.put("redo_parser", &content[..(start + 4096).min(content.len())]);
    }
}

fn volume(out: &Out, directory: &Path) {
    let log = RealDir::open_with(&directory.join("log"), RealDirOptions::default()).unwrap();
    let device = FileLogDevice::open_on(Arc::new(log), SegmentOptions::default()).unwrap();
    let mut at = device.start();
    let (mut frames, mut raw) = (Vec::new(), 0);
    while at < device.end() {
        let mut header = [0; HEADER_LEN_BYTES];
        device.read_at(at, &mut header).unwrap();
        let header = FrameHeader::decode(&header);
        let mut wire = vec![0; header.total_len_bytes() as usize];
        device.read_at(at, &mut wire).unwrap();
        at.0 += wire.len() as u64;
        let payload = &wire[HEADER_LEN_BYTES..];
        if payload.len() > MAX_REDO || header.compressed {
            continue;
        }
        if raw < 40 {
            out.put("frame_decoder", &[&[1, 0, 0], &wire[..]].concat());
            out.put("frame_decoder", &[&[2, header.kind, 0], payload].concat());
            raw += 1;
        }
        let mut content = payload.to_vec();
        if header.kind == 1 {
            content.clear();
            let collect = &mut |mtr: &Mtr<'_, '_>| {
                content.extend_from_slice(mtr.records);
                content.push(0xff);
            };
            let rule = redoubt_redo::mariadb::SequenceRule::Any;
            redoubt_redo::mariadb::walk_mtrs(payload, redoubt_redo::Lsn(12_288), rule, collect).unwrap();
            content.pop();
        }
        frames.push(header.kind);
        frames.extend_from_slice(&(content.len() as u16).to_le_bytes());
        frames.extend(content);
        if frames.len() > 3 * MAX_REDO {
            out.put("node_frames", &std::mem::take(&mut frames));
        }
    }
    let checkpoint = std::fs::read(directory.join("checkpoint")).unwrap();
    out.put("node_files", &[&[2], &checkpoint[..]].concat());
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("names-")) {
            out.put("node_files", &[&[6], &std::fs::read(path).unwrap()[..]].concat());
        }
    }
    let identity = std::fs::read(directory.join("volume")).unwrap();
    out.put("node_files", &[&[3], &identity[..]].concat());
    out.put("page_files", &[&[4], &page_files::journal_start()[..]].concat());
    if let Ok(identity) = std::fs::read(directory.join("pages/pages.identity")) {
        out.put("page_files", &[&[2], &identity[..]].concat());
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (out, kind) = (Out(arguments.next().unwrap().into()), arguments.next().unwrap());
    for directory in arguments {
        match kind.as_str() {
            "stock" => stock(&out, Path::new(&directory)),
            _ => volume(&out, Path::new(&directory)),
        }
    }
}
