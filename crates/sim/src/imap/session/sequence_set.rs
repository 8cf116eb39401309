//! Sequence sets, as in `1:4,7,9:*`.

/// A sequence set as inclusive ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequenceSet(Vec<(u32, u32)>);

impl SequenceSet {
    /// Parses a set; `last` replaces `*`. Returns `None` on a syntax error.
    pub fn read(text: &str, last: u32) -> Option<Self> {
        text.split(',')
            .map(|part| {
                let (from, to) = part.split_once(':').unwrap_or((part, part));
                let (from, to) = (parse_number(from, last)?, parse_number(to, last)?);
                // `9:*` with fewer than nine messages means the last one.
                Some((from.min(to), from.max(to)))
            })
            .collect::<Option<Vec<_>>>()
            .map(Self)
    }

    pub fn has(&self, number: u32) -> bool {
        self.0.iter().any(|(from, to)| (*from..=*to).contains(&number))
    }
}

fn parse_number(text: &str, last: u32) -> Option<u32> {
    if text == "*" { Some(last) } else { text.parse::<u32>().ok().filter(|number| *number > 0) }
}

/// Renders numbers as the shortest set.
pub fn write(numbers: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, to)) if *to + 1 == *number => *to = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    ranges
        .iter()
        .map(|(from, to)| if from == to { from.to_string() } else { format!("{from}:{to}") })
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_sets_are_parsed_and_rendered() {
        let set = SequenceSet::read("1:3,7,20:*", 9).unwrap();
        let inside: Vec<u32> = (1..=25).filter(|number| set.has(*number)).collect();

        assert_eq!(inside, [1, 2, 3, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]);
        assert_eq!(write(&[1, 2, 3, 7, 9, 10]), "1:3,7,9:10");
        for wrong in ["", "0", "a", "1:", "1,,2"] {
            assert_eq!(SequenceSet::read(wrong, 9), None, "{wrong}");
        }
    }
}
