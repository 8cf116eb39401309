use proptest::prelude::*;

use super::*;

fn zone(name: &str) -> TimeZone {
    TimeZone::get(name).unwrap()
}

/// The next times as a wall clock shows them, with the offset.
fn times(line: &str, after: &str, zone_name: &str, count: usize) -> Vec<String> {
    let (cron, zone) = (Cron::parse(line).unwrap(), zone(zone_name));
    let show = |at: &Timestamp| at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M %:z").to_string();
    cron.upcoming(after.parse().unwrap(), &zone, count).iter().map(show).collect()
}

#[test]
fn lists_ranges_steps_and_names_are_understood() {
    let next = |line| times(line, "2026-03-10T10:07:30Z", "UTC", 3);
    let utc = |times: [&str; 3]| times.map(|time| format!("2026-{time} +00:00"));

    assert_eq!(next("*/20 * * * *"), utc(["03-10 10:20", "03-10 10:40", "03-10 11:00"]));
    assert_eq!(next("5/25 9-17/4 * * *"), utc(["03-10 13:05", "03-10 13:30", "03-10 13:55"]));
    assert_eq!(next("0 0 1,15 * *"), utc(["03-15 00:00", "04-01 00:00", "04-15 00:00"]));
    assert_eq!(next("30 6 * MAY-jun Mon"), utc(["05-04 06:30", "05-11 06:30", "05-18 06:30"]));
    assert_eq!(next("0 12 * * fri-sun"), utc(["03-13 12:00", "03-14 12:00", "03-15 12:00"]));
    assert_eq!(next("0 12 * * 7"), next("0 12 * * 0"));
    assert_eq!(next("@daily"), utc(["03-11 00:00", "03-12 00:00", "03-13 00:00"]));
    assert_eq!(next("@hourly"), utc(["03-10 11:00", "03-10 12:00", "03-10 13:00"]));
    assert_eq!(next("  7   10 10 3 *  ")[0], "2027-03-10 10:07 +00:00");
}

#[test]
fn day_and_weekday_are_either_unless_one_is_open() {
    let next = |line| times(line, "2026-03-01T12:00:00Z", "UTC", 3);

    assert_eq!(next("0 0 13 * 5"), ["2026-03-06 00:00 +00:00", "2026-03-13 00:00 +00:00", "2026-03-20 00:00 +00:00"]);
    assert_eq!(next("0 0 13 * *"), ["2026-03-13 00:00 +00:00", "2026-04-13 00:00 +00:00", "2026-05-13 00:00 +00:00"]);
    assert_eq!(next("0 0 */10 * 6")[0], "2026-03-21 00:00 +00:00");
}

#[test]
fn a_day_that_is_rare_is_found() {
    assert_eq!(times("0 0 29 2 *", "2097-01-01T00:00:00Z", "UTC", 1), ["2104-02-29 00:00 +00:00"]);
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    for (line, column, says) in [
        ("", 1, "the minute is missing"),
        ("* * *", 6, "the month is missing"),
        ("* * * * * *", 11, "the sixth"),
        ("60 * * * *", 1, "\"60\" is no minute; write 0 to 59"),
        ("0  24 * * *", 4, "\"24\" is no hour"),
        ("0 1,2,x * * *", 7, "\"x\" is no hour"),
        ("0 0 0 * *", 5, "write 1 to 31"),
        ("0 0 * foo *", 7, "or jan to dec"),
        ("0 0 * * mon-funday", 13, "\"funday\" is no weekday"),
        ("0 9-5 * * *", 5, "ends before it begins"),
        ("*/0 * * * *", 3, "is no step"),
        ("*/ * * * *", 3, "is no step"),
        ("+5 * * * *", 1, "is no minute"),
        ("0 0 30 2 *", 5, "none of the months has such a day"),
        ("0 0 31 4,6 *", 5, "none of the months has such a day"),
        ("@often", 1, "there is no @often; there are @yearly"),
        ("0 0 ü * *", 5, "\"ü\" is no day"),
    ] {
        let error = Cron::parse(line).unwrap_err();
        assert_eq!(error.column, column, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn a_time_that_is_skipped_comes_at_the_first_moment_after_the_gap() {
    let night = "2026-03-28T12:00:00Z"; // 02:00 becomes 03:00 on the 29th
    assert_eq!(times("30 2 * * *", night, "Europe/Berlin", 2), ["2026-03-29 03:00 +02:00", "2026-03-30 02:30 +02:00"]);
    // Several in the gap are one moment.
    assert_eq!(
        times("0,30 2,3 * * *", night, "Europe/Berlin", 3),
        ["2026-03-29 03:00 +02:00", "2026-03-29 03:30 +02:00", "2026-03-30 02:00 +02:00"]
    );
    // The clocks of Lord Howe go half an hour forward.
    assert_eq!(times("15 2 * * *", "2026-10-03T12:00:00Z", "Australia/Lord_Howe", 1), ["2026-10-04 02:30 +11:00"]);
}

#[test]
fn a_time_that_is_repeated_comes_once() {
    let night = "2026-10-24T12:00:00Z"; // 03:00 becomes 02:00 on the 25th
    assert_eq!(times("30 2 * * *", night, "Europe/Berlin", 2), ["2026-10-25 02:30 +02:00", "2026-10-26 02:30 +01:00"]);
    // Asked in the second pass.
    assert_eq!(times("30 2 * * *", "2026-10-25T01:10:00Z", "Europe/Berlin", 1), ["2026-10-26 02:30 +01:00"]);
}

#[test]
fn every_few_minutes_is_every_few_minutes_in_those_nights_too() {
    for night in ["2026-03-29T00:30:00Z", "2026-10-25T00:30:00Z"] {
        let (cron, zone) = (Cron::parse("*/15 * * * *").unwrap(), zone("Europe/Berlin"));
        let times = cron.upcoming(night.parse().unwrap(), &zone, 12);
        let gaps: Vec<i64> = times.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs()).collect();
        assert_eq!(gaps, [900; 11], "{times:?}");
    }
}

fn item(least: u8, most: u8) -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("*".to_owned()),
        2 => (least..=most).prop_map(|number| number.to_string()),
        2 => (least..=most, least..=most).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => (1..=most.max(2)).prop_map(|step| format!("*/{step}")),
        1 => (least..=most, least..=most).prop_map(|(a, b)| format!("{a},{b}")),
    ]
}

fn line() -> impl Strategy<Value = String> {
    // Days that every month has, so that each line comes soon.
    (item(0, 59), item(0, 23), item(1, 28), item(1, 12), item(0, 6))
        .prop_map(|(minute, hour, day, month, weekday)| format!("{minute} {hour} {day} {month} {weekday}"))
}

fn zone_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])
}

/// What the wall shows matches the line, read in the plainest way.
fn shows_match(cron: &Cron, wall: DateTime) -> bool {
    cron.minutes.has(wall.minute())
        && cron.hours.has(wall.hour())
        && cron.months.has(wall.month())
        && cron.matches_day(wall.date())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn nothing_makes_it_panic(line in "[-*/,@0-9a-z ü]{0,30}", seconds in 0_i64..4_000_000_000) {
        if let Ok(cron) = Cron::parse(&line) {
            cron.next_after(Timestamp::from_second(seconds).unwrap(), &zone("Europe/Berlin"));
        }
    }

    #[test]
    fn times_go_up_and_each_is_one_that_the_line_means(line in line(), seconds in 1_500_000_000_i64..2_000_000_000, zone_name in zone_name()) {
        let (cron, zone) = (Cron::parse(&line).unwrap(), zone(zone_name));
        let mut last = Timestamp::from_second(seconds).unwrap();
        for at in cron.upcoming(last, &zone, 5) {
            prop_assert!(at > last);
            let is_after_gap = zone.following(at - 1.second()).next().is_some_and(|change| change.timestamp() == at);
            prop_assert!(shows_match(&cron, zone.to_datetime(at)) || is_after_gap, "{line} at {at} in {zone_name}");
            last = at;
        }
    }

    #[test]
    fn no_minute_that_matches_is_left_out(line in line(), seconds in 1_700_000_000_i64..1_800_000_000, zone_name in zone_name()) {
        let (cron, zone) = (Cron::parse(&line).unwrap(), zone(zone_name));
        let after = Timestamp::from_second(seconds).unwrap();
        let next = cron.next_after(after, &zone);
        // Two days, minute by minute.
        let minutes = (1..2880).map(|n| after + (60 * n).seconds());
        let whole = minutes.map(|at| at - i64::from(zone.to_datetime(at).second()).seconds());
        let first = whole.filter(|at| *at > after).find(|at| {
            let wall = zone.to_datetime(*at);
            // The second pass of a repeated hour counts only for lines that follow time as it passes.
            shows_match(&cron, wall) && (cron.hours.bits == (1 << 24) - 1 || moment(&zone, wall) == Some(*at))
        });
        if let Some(first) = first {
            prop_assert!(next.is_some_and(|next| next <= first), "{line} in {zone_name} after {after}: {next:?}, not {first}");
        }
    }

    #[test]
    fn asking_from_anywhere_before_gives_the_same_time(line in line(), seconds in 1_500_000_000_i64..2_000_000_000, part in 0.0_f64..1.0) {
        let (cron, zone) = (Cron::parse(&line).unwrap(), zone("Europe/Berlin"));
        let after = Timestamp::from_second(seconds).unwrap();
        if let Some(next) = cron.next_after(after, &zone) {
            let between = after + ((next.duration_since(after).as_secs() as f64 * part) as i64).seconds();
            if between < next {
                prop_assert_eq!(cron.next_after(between, &zone), Some(next));
            }
        }
    }
}
