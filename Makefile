# make demo | test | bench | check

CARGO ?= cargo
PYTHON ?= python3
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

.PHONY: demo test bench check tools

# Starts a daemon with everything embedded and services that speak through it, shows what crosses
# and what doesn't, and leaves it up until Ctrl-C; where nobody watches it ends by itself. Needs
# only Rust. DEMO=--once ends it by itself at a terminal too.
demo:
	$(CARGO) build --release --bin crossway
	@if [ -t 1 ]; then once=; else once=--once; fi; \
	  exec $(CARGO) run --quiet --release --bin crossway -- demo $${DEMO-$$once}

# All tests, against real servers.
test: tools
	$(CARGO) test --workspace

# The relay beside the bare loop, in one run.
bench: tools
	$(CARGO) build --release --bin crossway
	$(CARGO) bench --package crossway --bench relay
	$(CARGO) bench --package crossway --bench relay -- translation

# What a change must pass before it is committed.
check:
	$(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items

# What the tests need and the machine may not have.
tools:
	@command -v redis-server >/dev/null && command -v redis-cli >/dev/null \
	  || { $(SUDO) apt-get update -q && $(SUDO) apt-get install -y -q redis-server redis-tools; }
	@$(PYTHON) -c 'import redis' 2>/dev/null \
	  || $(PYTHON) -m pip install --quiet --user redis 2>/dev/null \
	  || $(PYTHON) -m pip install --quiet --user --break-system-packages redis \
	  || { $(SUDO) apt-get update -q && $(SUDO) apt-get install -y -q python3-redis; }
