//! Parses the lists in `data/`, which are compiled into the program: one entry a line.

/// Returns the lines of a list.
pub fn entries(list: &'static str) -> Vec<&'static str> {
    list.lines().filter(|line| !line.is_empty()).collect()
}

/// Returns the lines of a list, each split at ` | `.
///
/// # Panics
///
/// If a line has another number of columns. The lists are part of the program, so tests would show it.
pub fn rows<const N: usize>(list: &'static str) -> Vec<[&'static str; N]> {
    entries(list)
        .into_iter()
        .map(|line| {
            let columns: Vec<&str> = line.split(" | ").collect();
            columns.try_into().expect("every line of a list has the same number of columns")
        })
        .collect()
}
