//! Write amplification of uniform random writes in closed form, as a reference for the model.

/// Write amplification of uniform random writes with over-provisioning `op_percent`: `a / (a + W(-a e^-a))` with
/// `a` = physical by logical size and W the principal branch of Lambert's function.
///
/// It is exact for the oldest superblock as the victim and large superblocks; greedy collection lies just below it.
/// Not a number unless `op_percent` is above zero.
pub fn uniform_waf(op_percent: f64) -> f64 {
    let a = 1.0 + op_percent / 100.0;
    if a <= 1.0 {
        return f64::NAN;
    }
    a / (a + lambert_w(-a * (-a).exp()))
}

/// Write amplification of uniform random writes where the victim is any superblock: a victim is as full as the
/// drive, so of each of its blocks `1 / a` is copied.
pub fn uniform_waf_random_victims(op_percent: f64) -> f64 {
    let a = 1.0 + op_percent / 100.0;
    a / (a - 1.0)
}

/// The w in [-1, 0] with `w e^w = x`, for x in [-1/e, 0]. There `w e^w` only rises, so halving finds it.
fn lambert_w(x: f64) -> f64 {
    let (mut low, mut high) = (-1.0f64, 0.0f64);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if middle * middle.exp() < x {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_the_published_ones() {
        for (op_percent, waf) in [(7.0, 7.82), (15.0, 4.02), (28.0, 2.48), (50.0, 1.716)] {
            assert!(
                (uniform_waf(op_percent) - waf).abs() < 0.005,
                "{op_percent}: {}",
                uniform_waf(op_percent)
            );
        }
        assert!(uniform_waf(0.0).is_nan());
    }

    #[test]
    fn lambert_inverts() {
        for w in [-1.0, -0.9, -0.5, -0.1, -1e-3, 0.0f64] {
            // Near -1 the function is flat, so its inverse is only as good as the root of the rounding.
            assert!((lambert_w(w * w.exp()) - w).abs() < 1e-7, "{w}");
        }
    }
}
