//! Fill, warm-up, measurement and what the outcome says of them.

use super::*;

/// Rewrites a ring of whole blocks, `per_lap` of them in a lap, with a committed transaction for each.
struct Ring {
    blocks: u32,
    per_lap: u32,
    next: u32,
    origin: Origin,
}

impl Source for Ring {
    fn occurs(&self) -> [bool; 7] {
        Origin::ALL.map(|origin| origin == self.origin)
    }

    fn used_blocks(&self) -> u32 {
        self.blocks
    }

    fn fill(&self, cold_blocks: u32, place: &mut impl FnMut(u32, Origin)) {
        (0..self.blocks + cold_blocks).for_each(|block| place(block, self.origin));
    }

    fn lap(&mut self, apply: &mut impl FnMut(&Step)) -> Lap {
        for _ in 0..self.per_lap {
            let sector = u64::from(self.next) * 8;
            apply(&Step { sector, sectors: 8, trim: false, origin: self.origin });
            self.next = (self.next + 1) % self.blocks;
        }
        Lap { transactions: u64::from(self.per_lap), pages: u64::from(self.per_lap), page_len_bytes: 4096 }
    }
}

/// Random writes to all its blocks; or to few of them now and then, so that nothing is ever stable.
struct Random {
    random: fastrand::Rng,
    blocks: u32,
    among: u32,
    shrink: bool,
    laps: u32,
}

impl Source for Random {
    fn occurs(&self) -> [bool; 7] {
        Origin::ALL.map(|origin| origin == Origin::Data)
    }

    fn used_blocks(&self) -> u32 {
        self.blocks
    }

    fn fill(&self, cold_blocks: u32, place: &mut impl FnMut(u32, Origin)) {
        (0..self.blocks + cold_blocks).for_each(|block| place(block, Origin::Data));
    }

    fn lap(&mut self, apply: &mut impl FnMut(&Step)) -> Lap {
        for _ in 0..8192 {
            let sector = u64::from(self.random.u32(..self.among)) * 8;
            apply(&Step { sector, sectors: 8, trim: false, origin: Origin::Data });
        }
        self.laps += 1;
        if self.shrink {
            // Alternately hot and uniform, a drive write of each: spans never agree.
            self.among = if self.laps % 4 < 2 { self.blocks } else { 64 };
        }
        Lap::default()
    }
}

fn settings() -> Settings {
    Settings {
        logical_blocks: 16384,
        superblock_blocks: 64,
        over_provisioning_percent: 15.0,
        utilisation_percent: 100.0,
        gc: GcDestination::Shared,
        policy: Policy::One,
        coalesce_small: true,
        warm_up_drive_writes: 2.0,
        measured_drive_writes: 3.0,
    }
}

#[test]
fn a_sequential_load_is_measured_to_the_byte() {
    let ring = Ring { blocks: 16384, per_lap: 5000, next: 0, origin: Origin::Journal };
    let mut seen = Vec::new();
    let outcome = run(ring, &settings(), &mut |done| seen.push(done)).unwrap();
    assert_eq!(outcome.waf, 1.0);
    // Whole laps: 4 x 5000 blocks are the first beyond a drive write, which is a span, 10 the first beyond three.
    assert_eq!((outcome.warm_up_laps, outcome.measured_laps, outcome.stable), (8, 10, true));
    assert_eq!(outcome.host_bytes, 10 * 5000 * 4096);
    assert_eq!((outcome.transactions, outcome.pages), (50_000, 50_000));
    assert_eq!(outcome.nand_bytes_per_transaction, Some(4096.0));
    assert_eq!(outcome.host_bytes_per_transaction, Some(4096.0));
    assert_eq!(outcome.nand_bytes_per_page_byte, Some(1.0));
    assert_eq!(outcome.origins.len(), 1);
    assert_eq!(outcome.origins[0].origin, Origin::Journal);
    assert_eq!(outcome.origins[0].host_bytes, outcome.host_bytes);
    assert!(outcome.windows.len() >= 45 && outcome.windows.iter().all(|window| window.waf == 1.0));
    assert!(outcome.windows.is_sorted_by(|one, next| one.drive_writes < next.drive_writes));
    assert!(seen.iter().all(|done| (0.0..=1.0).contains(done)) && seen.last() == Some(&1.0), "{seen:?}");
}

#[test]
fn random_writes_have_the_write_amplification_of_the_closed_form() {
    let random =
        Random { random: fastrand::Rng::with_seed(1), blocks: 16384, among: 16384, shrink: false, laps: 0 };
    let outcome = run(random, &settings(), &mut |_| ()).unwrap();
    let expected = crate::closed_form::uniform_waf(15.0);
    // A small drive with small superblocks is up to 8 % below the formula.
    assert!((0.92..1.0).contains(&(outcome.waf / expected)), "{} {expected}", outcome.waf);
    assert!(outcome.stable);
    assert_eq!(outcome.nand_bytes_per_transaction, None);
    assert_eq!(outcome.nand_bytes_per_page_byte, None);
    let copied: u64 = outcome.origins.iter().map(|origin| origin.copied_bytes).sum();
    let programmed: u64 = outcome.origins.iter().map(|origin| origin.programmed_bytes).sum();
    assert_eq!(copied + programmed, outcome.nand_bytes);
    assert_eq!(outcome.streams.iter().map(|stream| stream.copied_bytes).sum::<u64>(), copied);
    assert_eq!(outcome.streams.iter().map(|stream| stream.erases).sum::<u64>(), outcome.erases);
    assert!(outcome.streams.iter().all(|stream| (0.0..1.0).contains(&stream.victim_validity)));
}

#[test]
fn still_data_fills_the_drive_and_takes_spare_space() {
    let run_at = |utilisation_percent: f64| {
        let random =
            Random { random: fastrand::Rng::with_seed(1), blocks: 8192, among: 8192, shrink: false, laps: 0 };
        run(random, &Settings { utilisation_percent, ..settings() }, &mut |_| ()).unwrap()
    };
    let (half, full) = (run_at(50.0), run_at(100.0));
    assert_eq!((half.used_percent, full.used_percent), (50.0, 50.0));
    assert!(half.waf * 1.2 < full.waf, "{} {}", half.waf, full.waf);
}

#[test]
fn a_load_that_is_never_stable_says_so_and_ends() {
    let random =
        Random { random: fastrand::Rng::with_seed(1), blocks: 16384, among: 16384, shrink: true, laps: 0 };
    let outcome = run(random, &settings(), &mut |_| ()).unwrap();
    assert!(!outcome.stable);
    assert!(
        (MAX_WARM_UP_DRIVE_WRITES..MAX_WARM_UP_DRIVE_WRITES + 1.0).contains(&outcome.warm_up_drive_writes)
    );
}

#[test]
fn loads_and_settings_that_do_not_fit_are_refused() {
    let ring = || Ring { blocks: 16000, per_lap: 100, next: 0, origin: Origin::Redo };
    let refused = |settings: Settings| run(ring(), &settings, &mut |_| ()).unwrap_err().to_string();
    let message = refused(Settings { utilisation_percent: 90.0, ..settings() });
    assert!(message.contains("97.7 %") && message.contains("raise the utilisation"), "{message}");
    for utilisation_percent in [0.0, 101.0, f64::NAN] {
        assert!(refused(Settings { utilisation_percent, ..settings() }).contains("utilisation"));
    }
    assert!(refused(Settings { warm_up_drive_writes: -1.0, ..settings() }).contains("warm-up"));
    assert!(refused(Settings { measured_drive_writes: f64::NAN, ..settings() }).contains("measurement"));
    assert!(refused(Settings { superblock_blocks: 100, ..settings() }).contains("power of two"));
    let idle = Ring { per_lap: 0, ..ring() };
    assert!(run(idle, &settings(), &mut |_| ()).unwrap_err().to_string().contains("writes nothing"));
}

#[test]
fn superblocks_shrink_with_the_drive() {
    assert_eq!(superblock_blocks_for(1 << 21, 4096), 4096);
    assert_eq!(superblock_blocks_for((1 << 21) - 1, 4096), 2048);
    assert_eq!(superblock_blocks_for(1000, 4096), 64);
}
