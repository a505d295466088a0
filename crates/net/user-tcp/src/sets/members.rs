//! Requested and pending events of the members of one epoll set. This does for connections of stacks what the kernel
//! does for its own descriptors.
//!
//! As in the kernel, a member that is ready when it is added or changed is reported. After that:
//!
//! * with EPOLLET it is reported again when something new has arrived;
//! * with EPOLLONESHOT it is not reported again until it is changed;
//! * with neither it is reported as long as it is ready, in turn with the others.
//!
//! Invariants: a member is in the queue once at most, and the queue has no place without a member. An enabled member
//! with news of a requested event is in the queue. A queued member need not be ready.

use libc::epoll_event;
use std::collections::VecDeque;

const ONCE: u32 = libc::EPOLLONESHOT as u32;
const ON_CHANGE: u32 = libc::EPOLLET as u32;
/// Reported even if not requested.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

struct Member<Owner> {
    owner: Owner,
    events: u32,
    data: u64,
    /// With EPOLLONESHOT: it has not been reported since the last request.
    is_enabled: bool,
    /// It has events that were not reported.
    is_news: bool,
    is_queued: bool,
}

impl<Owner> Member<Owner> {
    fn wanted(&self) -> u32 {
        self.events | ALWAYS
    }
}

/// Members of one epoll set and the queue of those to report.
pub struct Members<Owner> {
    all: Vec<Option<Member<Owner>>>,
    free: Vec<u32>,
    queue: VecDeque<u32>,
    /// Number of queued members with news.
    news: usize,
}

impl<Owner> Default for Members<Owner> {
    fn default() -> Self {
        Self { all: Vec::new(), free: Vec::new(), queue: VecDeque::new(), news: 0 }
    }
}

impl<Owner: Copy> Members<Owner> {
    /// Adds a member with its current events, and returns its place.
    pub fn add(&mut self, owner: Owner, asked: epoll_event, ready: u32) -> u32 {
        let place = self.free.pop().unwrap_or(self.all.len() as u32);
        if place as usize == self.all.len() {
            self.all.push(None);
        }
        if let Some(free) = self.all.get_mut(place as usize) {
            let (is_enabled, is_news, is_queued) = (true, false, false);
            *free = Some(Member { owner, events: 0, data: 0, is_enabled, is_news, is_queued });
        }
        self.change(place, asked, ready);
        place
    }

    /// Changes the requested events of a member.
    pub fn change(&mut self, place: u32, asked: epoll_event, ready: u32) {
        if let Some(Some(member)) = self.all.get_mut(place as usize) {
            (member.events, member.data) = (asked.events, asked.u64);
            member.is_enabled = true;
            self.note(place, ready);
        }
    }

    /// Removes a member, and returns its owner and the events that are still requested.
    pub fn remove(&mut self, place: u32) -> Option<(Owner, epoll_event)> {
        let member = self.all.get_mut(place as usize)?.take()?;
        if member.is_queued {
            self.queue.retain(|queued| *queued != place);
            self.news -= usize::from(member.is_news);
        }
        self.free.push(place);
        let events = if member.is_enabled { member.events } else { 0 };
        Some((member.owner, epoll_event { events, u64: member.data }))
    }

    /// Adds new events of a member.
    pub fn note(&mut self, place: u32, events: u32) {
        let Some(Some(member)) = self.all.get_mut(place as usize) else { return };
        if !member.is_enabled || events & member.wanted() == 0 {
            return;
        }
        if !std::mem::replace(&mut member.is_queued, true) {
            self.queue.push_back(place);
        }
        self.news += usize::from(!std::mem::replace(&mut member.is_news, true));
    }

    /// Reports at most `most` members; `ready` returns the current events of each.
    pub fn tell(
        &mut self,
        most: usize,
        ready: impl Fn(Owner) -> u32,
        mut tell: impl FnMut(epoll_event),
    ) -> usize {
        let mut told = 0;
        for _ in 0..self.queue.len() {
            if told == most {
                break;
            }
            let Some(place) = self.queue.pop_front() else { break };
            let Some(Some(member)) = self.all.get_mut(place as usize) else { continue };
            member.is_queued = false;
            let is_news = std::mem::replace(&mut member.is_news, false);
            self.news -= usize::from(is_news);
            let events = ready(member.owner) & member.wanted();
            if events == 0 {
                continue;
            }
            tell(epoll_event { events, u64: member.data });
            told += 1;
            if member.events & ONCE != 0 {
                member.is_enabled = false;
            } else if member.events & ON_CHANGE == 0 {
                member.is_queued = true;
                self.queue.push_back(place);
            }
        }
        told
    }

    /// Number of members that may have to be reported.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Number of members with unreported news.
    pub fn news(&self) -> usize {
        self.news
    }

    /// Owners of all members.
    pub fn owners(&self) -> Vec<Owner> {
        self.all.iter().flatten().map(|member| member.owner).collect()
    }
}

#[cfg(test)]
mod tests;
