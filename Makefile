# The front door. `make demo` and `make test` do all the set-up themselves;
# everything real is in meson.build and tools/.
all:
	@tools/build
demo:
	@tools/demo
test:
	@tools/test
soak:
	@tools/test --soak
bench:
	@tools/bench
package:
	@tools/package
install: all
	@DESTDIR="$(DESTDIR)" tools/build --install "$(or $(PREFIX),/usr/local)"
clean:
	rm -rf build build-*
.PHONY: all demo test soak bench package install clean
