//! A straight line through points, by least squares.

/// A line, with how well the points follow it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Change of y per unit of x.
    pub slope: f64,
    /// The value of y where x is 0.
    pub intercept: f64,
    /// Pearson's correlation coefficient, -1 to 1; 0 if all y are equal.
    pub correlation: f64,
}

impl Line {
    /// Fits a line to points (x, y); `None` for fewer than two different x, or a point that is not
    /// finite.
    pub fn fit(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x_mean, y_mean) = (mean(|point| point.0), mean(|point| point.1));
        let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
        for (x, y) in points {
            let (dx, dy) = (x - x_mean, y - y_mean);
            xx += dx * dx;
            xy += dx * dy;
            yy += dy * dy;
        }
        let is_sound = xx > 0.0 && [xx, xy, yy].iter().all(|sum: &f64| sum.is_finite());
        is_sound.then(|| Self {
            slope: xy / xx,
            intercept: y_mean - xy / xx * x_mean,
            correlation: if yy > 0.0 { xy / (xx * yy).sqrt() } else { 0.0 },
        })
    }

    /// Returns the x at which y is 0; `None` for a level line.
    pub fn x_intercept(&self) -> Option<f64> {
        (self.slope != 0.0).then(|| -self.intercept / self.slope)
    }

    /// Returns the y of the line at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_a_line_give_the_line() {
        let line = Line::fit(&[(1.0, 98.0), (2.0, 96.0), (4.0, 92.0)]).unwrap();
        assert!((line.slope + 2.0).abs() < 1e-12 && (line.intercept - 100.0).abs() < 1e-12);
        assert!((line.correlation + 1.0).abs() < 1e-12);
        assert!((line.x_intercept().unwrap() - 50.0).abs() < 1e-9);
        assert!((line.at(10.0) - 80.0).abs() < 1e-9);
    }

    #[test]
    fn a_known_sample_has_its_known_regression() {
        // Anscombe's first quartet (1973).
        let x = [10.0, 8.0, 13.0, 9.0, 11.0, 14.0, 6.0, 4.0, 12.0, 7.0, 5.0];
        let y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68];
        let line = Line::fit(&x.into_iter().zip(y).collect::<Vec<_>>()).unwrap();
        assert!((line.slope - 0.5001).abs() < 1e-4 && (line.intercept - 3.0001).abs() < 1e-4);
        assert!((line.correlation - 0.8164).abs() < 1e-4);
    }

    #[test]
    fn points_without_a_direction_have_no_line() {
        assert_eq!(Line::fit(&[]), None);
        assert_eq!(Line::fit(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(Line::fit(&[(1.0, f64::NAN), (2.0, 3.0)]), None);
        let level = Line::fit(&[(1.0, 5.0), (2.0, 5.0)]).unwrap();
        assert_eq!((level.correlation, level.x_intercept()), (0.0, None));
    }
}
