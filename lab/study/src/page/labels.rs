//! Labels in a column: each as near to its wish as possible, none nearer to another than `gap`.

/// The places for labels that wish to stand at `wishes`, in their order, between `low` and `high`.
/// If there is no room for all they are spread evenly.
pub(super) fn place(wishes: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let count = wishes.len();
    if count == 0 {
        return Vec::new();
    }
    let gap = gap.min((high - low) / count as f64);
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| wishes[*a].total_cmp(&wishes[*b]));
    // Clusters of labels that touch: the sum of the wishes for the first one's place, and their
    // number.
    let mut clusters: Vec<(f64, usize)> = Vec::new();
    for index in order.iter().copied() {
        let wish = wishes[index].clamp(low, high);
        clusters.push((wish, 1));
        while let [.., (before, size), (last, last_size)] = clusters[..] {
            let (first, next) = (before / size as f64, last / last_size as f64);
            if first + size as f64 * gap <= next {
                break;
            }
            clusters.pop();
            clusters.pop();
            // Each of the later cluster stands `size` gaps further from the common first place.
            let sum = before + last - (size * last_size) as f64 * gap;
            clusters.push((sum, size + last_size));
        }
    }
    let mut places = vec![0.0; count];
    let mut order = order.into_iter();
    let mut at_least = low;
    let mut left = count;
    for (sum, size) in clusters {
        let room = high - (left - 1) as f64 * gap;
        let first = (sum / size as f64).min(room).max(at_least);
        for (step, index) in order.by_ref().take(size).enumerate() {
            places[index] = first + step as f64 * gap;
        }
        at_least = first + size as f64 * gap;
        left -= size;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_keep_apart_and_inside() {
        let mut rng: u64 = 7;
        for round in 0..500 {
            let wishes: Vec<f64> = (0..round % 9)
                .map(|_| {
                    rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (rng >> 33) as f64 / f64::from(1u32 << 31) * 240.0 - 20.0
                })
                .collect();
            let mut places = place(&wishes, 14.0, 0.0, 200.0);
            assert_eq!(places.len(), wishes.len());
            places.sort_by(f64::total_cmp);
            assert!(places.iter().all(|y| (-1e-6..200.0 + 1e-6).contains(y)));
            assert!(
                places.windows(2).all(|two| two[1] - two[0] > 14.0 - 1e-6),
                "{places:?}"
            );
        }
    }

    #[test]
    fn wishes_come_true_where_there_is_room() {
        assert_eq!(place(&[50.0, 10.0], 14.0, 0.0, 100.0), [50.0, 10.0]);
        assert_eq!(place(&[50.0, 50.0], 10.0, 0.0, 100.0), [45.0, 55.0]);
    }
}
