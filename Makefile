# The commands that matter. `make` alone lists them.

.PHONY: help build check test fmt doc hosts

help: ## List these commands.
	@sed -n 's/^\([a-z]*\): ## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

build: ## Build the program, optimised, as target/release/tonnage.
	cargo build --release --locked

check: ## Formatting and lints only: quick, before a commit.
	cargo fmt --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

test: ## Everything that must pass: formatting, lints, documentation, licences, all tests.
	@bash scripts/test.sh

fmt: ## Format the source.
	cargo fmt

doc: ## Build the documentation of the source, as target/doc/tonnage_engine/index.html.
	cargo doc --workspace --no-deps --locked

hosts: ## N hosts on this machine and a shell beside them (root): make hosts N=2 RATE=10gbit SLURM=1
	@cargo run --quiet --locked -p tonnage-testbed -- --count $(or $(N),2) $(if $(RATE),--rate $(RATE)) $(if $(SLURM),--slurm)
