//! Sets of numbers, as in `1:4,7,9:*`.

/// Ranges with both ends in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set(Vec<(u32, u32)>);

impl Set {
    /// `last` is what a star stands for. Nothing: it is no set.
    pub fn read(text: &str, last: u32) -> Option<Self> {
        let number = |text: &str| match text {
            "*" => Some(last),
            digits => digits.parse::<u32>().ok().filter(|number| *number > 0),
        };
        let range = |part: &str| {
            let (from, to) = part.split_once(':').unwrap_or((part, part));
            let (from, to) = (number(from)?, number(to)?);
            // `9:*` with fewer than nine is the last one.
            Some((from.min(to), from.max(to)))
        };
        text.split(',').map(range).collect::<Option<Vec<_>>>().map(Self)
    }

    pub fn has(&self, number: u32) -> bool {
        self.0.iter().any(|(from, to)| (*from..=*to).contains(&number))
    }
}

/// As short as it can be said.
pub fn write(numbers: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, to)) if *to + 1 == *number => *to = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let range = |(from, to): &(u32, u32)| if from == to { from.to_string() } else { format!("{from}:{to}") };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_and_written() {
        let set = Set::read("1:3,7,20:*", 9).unwrap();
        let inside: Vec<u32> = (1..=25).filter(|number| set.has(*number)).collect();

        assert_eq!(inside, [1, 2, 3, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]);
        assert_eq!(write(&[1, 2, 3, 7, 9, 10]), "1:3,7,9:10");
        for wrong in ["", "0", "a", "1:", "1,,2"] {
            assert_eq!(Set::read(wrong, 9), None, "{wrong}");
        }
    }
}
