# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# s3.sh - an S3 server for tests: versitygw, built once from the Go module proxy and kept in the build tree.
# shellcheck disable=SC2154  # variables of functions.sh

VERSITYGW=github.com/versity/versitygw/cmd/versitygw@v1.8.0

# start_s3 - sets S3_PID and the environment of clients; skips the test if the server cannot be built
start_s3() {
	local dir=$top_builddir/tests/wheels/versitygw go number
	for go in go /usr/local/go/bin/go; do command -v "$go" >/dev/null && break; done
	command -v "$go" >/dev/null || skip "no S3 server: Go is not installed"
	mkdir -p "$top_builddir/tests/wheels"
	exec 9>"$dir.lock"
	flock 9
	if ! [ -x "$dir/versitygw" ]; then
		GOBIN=$dir GOPATH=$dir.gopath GOFLAGS=-modcacherw timeout 500 "$go" install "$VERSITYGW" >"$tmp/go.log" 2>&1 ||
			skip "no S3 server: $VERSITYGW cannot be built: $(tail -n 1 "$tmp/go.log")"
		rm -rf "$dir.gopath"
	fi
	exec 9>&-
	free_port number
	mkdir -p "$tmp/s3/snapshots"
	spawn s3 "$dir/versitygw" --access test-id --secret test-secret --region us-east-1 --port "127.0.0.1:$number" \
		posix "$tmp/s3"
	S3_PID=$SPAWNED
	started "$S3_PID" "the S3 server" 20 connects "127.0.0.1:$number"
	export MOONCAKE_S3_ENDPOINT=http://127.0.0.1:$number MOONCAKE_S3_BUCKET=snapshots MOONCAKE_S3_REGION=us-east-1 \
		MOONCAKE_S3_ACCESS_KEY_ID=test-id MOONCAKE_S3_SECRET_ACCESS_KEY=test-secret
}
