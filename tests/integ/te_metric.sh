#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# MC_TE_METRIC, MC_LOG_LEVEL and MC_LOG_DIR: the log lines of libtransfer_engine, their destination, and silence.
. "${top_srcdir:-.}/tests/lib/functions.sh"

# run FILE - write the output of the program to FILE
run() {
	"$top_builddir/tests/integ/te_batches" >"$1" 2>&1 || fail "te_batches: status $?: $(tail -n 20 "$1")"
}

run "$tmp/silent"
fails grep -E 'te\.metric|info' "$tmp/silent"

MC_TE_METRIC=1 MC_TE_METRIC_INTERVAL_SECONDS=1 run "$tmp/told"
grep 'info te\.metric: segment=' "$tmp/told" >"$tmp/lines"
# all numbers are there, and some bytes were moved
grep -qE ' seconds=[0-9.]+ throughput_MBps=[0-9.]+( (local|mapped|process_vm|tcp)_MBps=[0-9.]+)+ requests=[1-9][0-9]* failed=[0-9]+ batches=[0-9]+ batch_us_p50=[0-9.]+ batch_us_p90=[0-9.]+ batch_us_p99=[0-9.]+ batch_us_p999=[0-9.]+' "$tmp/lines" ||
	fail "$(head -n 3 "$tmp/told")"
grep -qE 'throughput_MBps=[0-9.]*[1-9]' "$tmp/lines"
MC_TE_METRIC=0 run "$tmp/off"
fails grep te.metric "$tmp/off"

mkdir "$tmp/log"
MC_LOG_DIR=$tmp/log MC_LOG_LEVEL=INFO MC_TE_METRIC=1 run "$tmp/out"
fails grep te.metric "$tmp/out"
grep -q 'info te\.metric' "$tmp"/log/*
# invalid values do not stop the engine
MC_LOG_LEVEL=LOUD MC_LOG_DIR=$tmp/none/log run "$tmp/odd"
grep -q 'MC_LOG_LEVEL=LOUD' "$tmp/odd"
grep -q "logging to stderr" "$tmp/odd"
