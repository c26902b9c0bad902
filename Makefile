# The commands that matter. `make` alone lists them.

.PHONY: help build packages test-packages check test-unit test-system test-faults test-rdma test-kernel test-gpu test-browser \
	test test-long fuzz fuzz-corpus mutants fmt doc hosts rails

help: ## List these commands.
	@sed -n 's/^\([a-z-]*\): ## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

build: ## Build the program, optimised, as target/release/tonnage.
	cargo build --release --locked

packages: ## A wheel, a .deb, a tarball, an image, in target/packages: make packages ARCHITECTURES="x86_64 aarch64"
	@ARCHITECTURES="$(ARCHITECTURES)" bash scripts/make-packages.sh

test-packages: ## Install each of them and run it; before that, make packages.
	@bash scripts/test-packages.sh

check: ## Formatting, lints, documentation: before a commit.
	@bash scripts/test.sh check

test-unit: ## Tests beside the code, and those in the documentation.
	@bash scripts/test.sh unit

test-system: ## The program from outside, hosts on this machine, crates as others use them.
	@bash scripts/test.sh system

test-faults: ## Signals to random ranks at random moments: make test-faults FAULTS=170 FAULT_SEED=410 FAULT_CASE= FAULT_HOSTS_CASE=
	@FAULTS=$(FAULTS) FAULT_SEED=$(FAULT_SEED) FAULT_CASE=$(FAULT_CASE) FAULT_HOSTS_CASE=$(FAULT_HOSTS_CASE) \
	bash scripts/test.sh faults

test-browser: ## Pages of `tonnage report` in a real browser (root once, for Chromium).
	@bash scripts/test.sh browser

test-rdma: ## The program inside a guest with Soft-RoCE devices (root once, for packages).
	@bash scripts/test.sh rdma

test-kernel: ## The kernel's module in that guest: make test-kernel FUZZ=60 FUZZ_SEED=7, or in Linux 6.12: KERNEL=backports
	@KREAD_FUZZ_S=$(FUZZ) KREAD_FUZZ_SEED=$(FUZZ_SEED) KREAD_KERNEL=$(KERNEL) bash scripts/test.sh kernel

test-gpu: ## Engines and plans of GPUs on those of this machine; figures beside a raw loop of the driver's calls.
	@bash scripts/test.sh gpu

fuzz: ## Each fuzz target for SECONDS with coverage, or one: make fuzz SECONDS=3600 TARGET=plan
	@FUZZ_SECONDS=$(SECONDS) FUZZ_TARGET=$(TARGET) bash scripts/test.sh fuzz

fuzz-corpus: ## Fewest inputs that reach what any has reached, for fuzz/corpus: make fuzz-corpus TARGET=plan
	@FUZZ_TARGET=$(TARGET) bash scripts/test.sh corpus

mutants: ## Changes that no unit test notices: make mutants FILES='crates/loops/src/*.rs' DIFF= TESTS= SECONDS=1800
	@MUTANT_FILES="$(FILES)" MUTANT_DIFF=$(DIFF) MUTANT_TESTS="$(TESTS)" MUTANT_SECONDS=$(SECONDS) bash scripts/test.sh mutants

test: ## Everything that must pass before a change.
	@bash scripts/test.sh check unit system rdma kernel gpu

test-long: ## The search for rare faults, half an hour, before an issue or a release is called done: make test-long SECONDS=60
	@FAULTS=$(or $(FAULTS),500) FAULT_SEED=$(FAULT_SEED) FUZZ_SECONDS=$(or $(SECONDS),60) KREAD_FUZZ_S=$(or $(SECONDS),60) \
	KREAD_FUZZ_SEED=$(strip $(shell od -An -N2 -tu2 /dev/urandom)) KREAD_KERNEL=both bash scripts/test.sh faults fuzz kernel

fmt: ## Format the source.
	cargo fmt

doc: ## Build the documentation of the source, as target/doc/tonnage_engine/index.html.
	cargo doc --workspace --no-deps --locked

hosts: ## N hosts on this machine and a shell beside them (root): make hosts N=2 LINKS=2 RATE=10gbit SEND=1gbit RECEIVE= SLURM=1
	@cargo run --quiet --locked -p tonnage-testbed -- --count $(or $(N),2) $(if $(LINKS),--links $(LINKS)) \
	$(if $(RATE),--rate $(RATE)) $(if $(SEND),--send-rate $(SEND)) $(if $(RECEIVE),--receive-rate $(RECEIVE)) \
	$(if $(SLURM),--slurm)

rails: ## Rails beside each other over two shaped links (root): make rails RATE=1gbit
	@bash scripts/rails.sh $(or $(RATE),1gbit)
