#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [CASE...] - released engines with our package, unmodified: each case passes, fails, or is
# skipped with the reason.  setup.sh installs the engines, in MC_ENGINES (/opt/mc-engines).
# files:KIND is a file back end on two mounts (files.py).
. "${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
dir=${MC_ENGINES:-/opt/mc-engines}
engine_python=$dir/venv/bin/python
[ -x "$engine_python" ] || skip "no engines in $dir (tests/engines/setup.sh, 7 GB)"
MC_PYTHON=$engine_python python_package
here=$top_srcdir/tests/engines
master=$top_builddir/master/mooncake_master
cases=("$@")
files=(vllm_fs vllm_example sglang sglang_capped lmcache_fs lmcache_fs_direct lmcache_disk lmcache_disk_direct lmcache_gds
	lmcache_l2_fs lmcache_l2_fs_direct lmcache_l2_native lmcache_l2_native_direct)
[ ${#cases[@]} -gt 0 ] || cases=(sglang_hicache sglang_pd lmcache_remote lmcache_remote_meta lmcache_l2 vllm_store vllm_p2p
	vllm_store_gpu vllm_p2p_gpu sglang_pd_gpu "${files[@]/#/files:}")

# LMCache's own sources with include/mooncake/cxx, linked only with libmooncake_store.
l2_extension() {
	local src=$dir/lmcache-src/csrc/storage_backends out=$tmp/lmcache_mooncake.so torch include
	[ -d "$src/mooncake" ] || return 0
	torch=$(echo "$dir"/venv/lib/python3*/site-packages/torch)
	include=$("$engine_python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
	echo "# compiling LMCache's mooncake_store extension"
	"${CXX:-c++}" -O1 -std=c++20 -fPIC -shared -DYLT_ENABLE_IBV -I "$src" -I "$src/mooncake" -I "$top_srcdir/include/mooncake/cxx" \
		-I "$top_srcdir/include" -I "$torch/include" -I "$include" "$src"/mooncake/*.cpp \
		-L "$top_builddir/client/.libs" -lmooncake_store "-Wl,-rpath,$top_builddir/client/.libs" -o "$out" \
		>"$tmp/extension.log" 2>&1 || fail "LMCache's mooncake_store extension cannot be compiled: $tmp/extension.log"
	export MC_L2_EXTENSION=$out
}

# CASE_gpu: with memory of the fake GPU (memory.py).
run_case() {
	local rpc='' http='' gpu=()
	case $1 in
	*_gpu)
		gpu=(env MC_ENGINES_GPU=1 LD_LIBRARY_PATH="$top_builddir/tests/lib/.libs")
		set -- "${1%_gpu}"
		;;
	esac
	case $1 in
	files:*) (requires_fuse) || return 77 ;;
	esac
	case $1 in
	vllm_p2p) set -- "$here/p2p.py" vllm ;;
	sglang_pd) set -- "$here/p2p.py" sglang ;;
	*)
		[ "$1" != lmcache_l2 ] || l2_extension
		export MC_MOUNTS=$tmp/mounts-${1#*:}
		free_port rpc
		free_port http
		set -- "$here/case.py" "$1" "$master" "$rpc" "$http"
		;;
	esac
	timeout "${MC_ENGINE_TIMEOUT:-600}" "${gpu[@]}" "$engine_python" "$@"
}

bad=0
for name in "${cases[@]}"; do
	echo "== $name"
	r=0
	run_case "$name" >"$tmp/$name.out" 2>"$tmp/$name.log" || r=$?
	grep -E '^(ok|SKIP|FAILED|#)' "$tmp/$name.out" "$tmp/$name.log" -h || :
	case $r in
	0) echo "$name: passed" ;;
	77) echo "$name: skipped" ;;
	*)
		echo "$name: failed ($r)"
		tail -n 15 "$tmp/$name.log"
		bad=1
		;;
	esac
done
exit $bad
