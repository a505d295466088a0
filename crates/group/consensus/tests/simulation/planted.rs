//! Every planted bug is found: the simulation can fail.

use crate::world::World;
use crate::{BEGINNINGS, EVERYTHING, seeds, trouble_and_heal};
use redoubt_consensus::{Bug, Settings};

#[derive(Clone, Copy, Debug)]
enum Mistake {
    /// A bug of a member.
    Member(Bug),
    /// A bug of the world as the caller: every read of the log returns its first record.
    FirstRecordRead,
}

impl Mistake {
    fn name(self) -> String {
        match self {
            Self::Member(bug) => format!("{bug:?}"),
            Self::FirstRecordRead => format!("{self:?}"),
        }
    }
}

const PLANTED: [Mistake; 15] = [
    Mistake::Member(Bug::AnsweredBeforeDurable),
    Mistake::Member(Bug::OwnerContinuesAfterPromise),
    Mistake::Member(Bug::RestartedOwnerContinues),
    Mistake::Member(Bug::AcceptedAfterPromise),
    Mistake::Member(Bug::NewMembersAlone),
    Mistake::Member(Bug::TrailingSkipsDelivered),
    Mistake::Member(Bug::DeliveredTwice),
    Mistake::Member(Bug::PromiseForgotten),
    Mistake::Member(Bug::QuestionOfOtherEpoch),
    Mistake::Member(Bug::EpochsOfOthersIgnored),
    Mistake::Member(Bug::NoMajorityAsked),
    Mistake::Member(Bug::BarrierWithoutMajority),
    Mistake::Member(Bug::ChosenByOthersAcknowledged),
    Mistake::Member(Bug::MoreReportedThanRead),
    Mistake::FirstRecordRead,
];

/// Each bug breaks a check in one of these worlds.
#[test]
#[ignore = "minutes: for make simulate"]
fn every_planted_bug_is_found() {
    let only = redoubt_test_support::setting_text("REDOUBT_CONSENSUS_BUG");
    let is_chosen = |mistake: &Mistake| only.as_ref().is_none_or(|only| *only == mistake.name());
    let chosen: Vec<_> = PLANTED.into_iter().filter(is_chosen).collect();
    assert!(!chosen.is_empty(), "REDOUBT_CONSENSUS_BUG={only:?} is none of {PLANTED:?}");
    let mut missed = Vec::new();
    for mistake in chosen {
        let mut worlds = seeds(1, 3000).flat_map(|seed| [(seed, EVERYTHING), (seed, BEGINNINGS)]);
        let found = worlds.find_map(|(seed, trouble)| {
            let result = std::panic::catch_unwind(|| {
                let mut settings = Settings::default();
                if let Mistake::Member(bug) = mistake {
                    settings.planted = Some(bug);
                }
                let mut world = World::new(seed, 3..=5, trouble, settings);
                world.reads_first_record = matches!(mistake, Mistake::FirstRecordRead);
                trouble_and_heal(&mut world);
            });
            result.err().map(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
        });
        match found {
            Some(failure) => println!("{}: {failure}", mistake.name()),
            None => missed.push(mistake.name()),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn planted_bugs_leave_their_marker() {
    redoubt_test_support::planted::require_compiled_in();
}
