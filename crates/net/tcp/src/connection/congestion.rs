//! Congestion control: CUBIC (RFC 9438) with its Reno-friendly region; slow start, and a restart after a pause, as in
//! RFC 5681; the initial window is that of RFC 6928.

use crate::time::Micros;

const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// Growth in the Reno-friendly region until the window before the loss is reached.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
const INITIAL_SEGMENTS: u32 = 10;
/// Limit of the window growth per acknowledgement in slow start, in segments (L in RFC 9406, 4.3, without pacing).
const MAX_SLOW_START_SEGMENTS: u32 = 8;
const MAX_WINDOW: u32 = 1 << 30;

/// Windows in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Congestion {
    mss: u32,
    pub(crate) window: u32,
    pub(crate) slow_start_threshold: u32,
    /// Fraction of a byte by which the window has grown.
    fraction: f32,
    /// W_max, cwnd_prior and W_est in segments.
    max: f32,
    prior: f32,
    reno: f32,
    /// Start of congestion avoidance after the last loss; [`Micros::NEVER`] before that.
    epoch: Micros,
    /// Seconds from `epoch` to W_max.
    until_max: f32,
}

impl Congestion {
    pub(crate) fn new(mss: u32) -> Self {
        // RFC 6928: fewer segments if they are large.
        let window = (INITIAL_SEGMENTS * mss).min((2 * mss).max(14_600));
        Self {
            mss,
            window,
            slow_start_threshold: u32::MAX,
            fraction: 0.0,
            max: 0.0,
            prior: 0.0,
            reno: 0.0,
            epoch: Micros::NEVER,
            until_max: 0.0,
        }
    }

    fn initial(&self) -> u32 {
        Self::new(self.mss).window
    }

    fn segments(&self, bytes: u32) -> f64 {
        f64::from(bytes) / f64::from(self.mss)
    }

    /// New data was acknowledged while the window was the limit.
    pub(crate) fn acknowledged(&mut self, now: Micros, bytes: u32, round_trip_us: u32) {
        if self.window < self.slow_start_threshold {
            let room = self.slow_start_threshold - self.window;
            let growth = bytes.min(MAX_SLOW_START_SEGMENTS * self.mss).min(room);
            self.window = (self.window + growth).min(MAX_WINDOW);
            return;
        }
        let window = self.segments(self.window);
        if self.epoch == Micros::NEVER {
            self.begin_epoch(now, window);
        }
        let acknowledged = self.segments(bytes);
        let alpha = if f64::from(self.reno) >= f64::from(self.prior) { 1.0 } else { ALPHA };
        let reno = f64::from(self.reno) + alpha * acknowledged / window;
        self.reno = reno as f32;
        let at = |micros: u64| {
            let elapsed = micros as f64 / 1e6 - f64::from(self.until_max);
            C * elapsed * elapsed * elapsed + f64::from(self.max)
        };
        let elapsed = now.since(self.epoch);
        let growth = if at(elapsed) < reno {
            reno - window
        } else {
            let target = at(elapsed + u64::from(round_trip_us)).clamp(window, window * 1.5);
            (target - window) / window * acknowledged
        };
        // Never more than in slow start.
        let growth = growth.clamp(0.0, acknowledged) * f64::from(self.mss) + f64::from(self.fraction);
        let whole = growth.floor();
        self.fraction = (growth - whole) as f32;
        self.window = self.window.saturating_add(whole as u32).min(MAX_WINDOW);
    }

    fn begin_epoch(&mut self, now: Micros, window: f64) {
        self.epoch = now;
        self.reno = window as f32;
        if window < f64::from(self.max) {
            self.until_max = ((f64::from(self.max) - window) / C).cbrt() as f32;
        } else {
            self.max = window as f32;
            self.until_max = 0.0;
        }
    }

    /// New data was acknowledged, but less was sent than the window allows. The window does not grow, and this time
    /// does not count.
    pub(crate) fn is_not_used(&mut self) {
        self.epoch = Micros::NEVER;
    }

    /// A loss with `in_flight` bytes: sets the slow start threshold. The window follows in recovery.
    pub(crate) fn lost(&mut self, in_flight: u32) {
        let window = self.segments(self.window) as f32;
        // Fast convergence.
        self.max = if window < self.max { window * ((1.0 + BETA as f32) / 2.0) } else { window };
        self.prior = window;
        self.epoch = Micros::NEVER;
        self.fraction = 0.0;
        let threshold = (f64::from(in_flight.min(self.window)) * BETA) as u32;
        self.slow_start_threshold = threshold.max(2 * self.mss);
    }

    /// The retransmission timeout has expired: the window is one segment.
    pub(crate) fn collapse(&mut self) {
        self.window = self.mss;
    }

    /// Nothing was sent for longer than the retransmission timeout (RFC 5681, 4.1).
    pub(crate) fn restart(&mut self) {
        self.window = self.window.min(self.initial());
        self.epoch = Micros::NEVER;
    }
}
