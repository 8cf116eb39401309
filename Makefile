# Each target is a thin call: what it does, and why, is in its script. ARGS reaches the program behind `demo` and `bench ingest`; `make bench ARGS=api` measures the API.

.DEFAULT_GOAL := help
.PHONY: demo soak test test-imap test-api test-shipped test-all lint bench chaos facts docs help

demo: ## build Mailroom and show everything at work until Ctrl-C (ARGS=--once: take all in, compare, exit)
	@scripts/demo.sh $(ARGS)

soak: ## half an hour of the demo at 20 times its speed, with a fault a second (MINUTES, RATE, FAULTS, SEED)
	@scripts/soak.sh

test: ## run every test on SQLite and PostgreSQL; installs and starts what the tests need
	@scripts/test.sh

test-imap: ## run the IMAP tests against a second server, a Cyrus, and those of JMAP at a real server
	@scripts/test-imap.sh

test-api: ## hold the API against its description, with thousands of requests per operation (EXAMPLES, SEED)
	@EXAMPLES=$${EXAMPLES:-2000} scripts/test-api.sh

test-shipped: ## build the program as it is shipped and check that it has no testing code
	@scripts/check-shipped.sh

lint: ## formatting, clippy without warnings, links of the papers, licences and forbidden dependencies
	@scripts/lint.sh

chaos: ## crash tests with a random seed, for longer (MAILROOM_TEST_SEED repeats a run)
	@scripts/chaos.sh

test-all: lint test test-imap test-api test-shipped chaos ## lint, test, test-imap, test-api, test-shipped and chaos, one after the other

bench: ## measure ingest, search and jobs with the shipped profile and durable databases (ARGS=api: the API)
	@scripts/bench.sh $(ARGS)

facts: ## compare our parser with a second one over a corpus of mail
	@scripts/facts.sh $(ARGS)

docs: ## write the pages that are generated from code (docs/metrics.md, docs/events.md, docs/sql-schema.md)
	@cargo run --quiet -p domain --example metrics_page >docs/metrics.md.new && mv docs/metrics.md.new docs/metrics.md
	@cargo run --quiet -p domain --example events_page >docs/events.md.new && mv docs/events.md.new docs/events.md
	@cargo run --quiet -p store --example sql_schema_page >docs/sql-schema.md.new && mv docs/sql-schema.md.new docs/sql-schema.md

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The scripts share one target folder and two cores; side by side they would only wait for each other.
.NOTPARALLEL:
