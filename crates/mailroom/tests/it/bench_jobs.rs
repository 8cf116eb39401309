//! `mailroom bench jobs` says what it promises, whatever the figures are.

use serde_json::Value;
use store::testing;

use crate::installation::TestInstallation;

#[test]
fn job_benchmark_reports_every_figure() {
    let mailroom = TestInstallation::sqlite();
    let server = testing::server_url();
    let sizes = ["--jobs", "300", "--rate", "100", "--seconds", "1", "--finished", "1000"];

    let all = mailroom.object(&[&["bench", "jobs", "--postgres", &server], &sizes[..]].concat());

    for database in ["sqlite", "postgresql"] {
        let figures = &all[database];
        let names = [
            "enqueued_per_second",
            "completed_per_second",
            "fair_per_second",
            "fifo_per_second",
            "fair_to_fifo",
            "bare_sql_per_second",
            "fair_to_bare_sql",
            "beside_floods_per_second",
            "beside_floods_to_without",
            "beside_finished_per_second",
            "beside_finished_to_empty",
        ];
        for name in names {
            assert!(figures[name].as_f64().is_some_and(|value| value > 0.0), "{name} of {database}: {figures}");
        }
        for name in ["idle_latency_ms", "mix_wait_big_tenant_ms", "mix_wait_small_tenants_ms"] {
            for share in ["p50", "p95", "p99"] {
                assert!(figures[name][share].is_f64(), "{name} of {database}: {figures}");
            }
        }
        assert_eq!((&figures["jobs"], &figures["finished"]), (&Value::from(300), &Value::from(1000)));
    }
    assert!(all["postgresql"]["with_pinned_snapshot_per_second"].is_f64());
}
