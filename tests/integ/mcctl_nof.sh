#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mcctl nof: with a program that prints what nvme-cli prints, of two versions.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires jq
mkdir "$tmp/bin"
export FAKE=$tmp PATH=$tmp/bin:$PATH
nqn=nqn.2026-11.org.example:kv
cat >"$tmp/bin/nvme" <<'FAKE_NVME'
#!/bin/bash
# State: $FAKE/connected, $FAKE/refuse (the message of an error), $FAKE/version (1 or 2).
echo "$*" >>"$FAKE/calls"
version=$(cat "$FAKE/version")
address='traddr=192.0.2.7,trsvcid=4420'
local_disk='{"Name": "nvme-subsys9", "NQN": "nqn.2014.local", "Paths": [{"Name": "nvme9", "Transport": "pcie", "Address": "0000:01:00.0", "State": "live"}]}'
if [ -e "$FAKE/refuse" ]; then
	{ cat "$FAKE/refuse"; echo "usage: and so on"; } >&2
	exit 1
fi
case $1 in
connect) touch "$FAKE/connected" ;;
disconnect) rm "$FAKE/connected" && echo "NQN:$2 disconnected 1 controller(s)" ;;
list-subsys)
	[ -e "$FAKE/connected" ] || { [ "$version" = 1 ] || echo "[{\"HostNQN\": \"h\", \"Subsystems\": [$local_disk]}]"; exit; }
	path="{\"Name\": \"nvme1\", \"Transport\": \"tcp\", \"Address\": \"$address\", \"State\": \"live\"}"
	down=${path/live/connecting}
	name='"Name": "nvme-subsys1", "NQN": "nqn.2026-11.org.example:kv"'
	if [ "$version" = 1 ]; then
		echo "{\"Subsystems\": [{$name}, {\"Paths\": [$path]}]}"
	else
		echo "[{\"HostNQN\": \"h\", \"Subsystems\": [$local_disk, {$name, \"Paths\": [$down, $path]}]}]"
	fi ;;
list)
	[ -e "$FAKE/connected" ] || { echo '{"Devices": []}'; exit; }
	space='{"NameSpace": "nvme1n1", "NSID": 1, "PhysicalSize": 268435456, "SectorSize": 512}'
	[ ! -e "$FAKE/empty" ] || space=
	if [ "$version" = 1 ]; then
		echo "{\"Devices\": [{\"Subsystem\": \"nvme-subsys1\", \"SubsystemNQN\": \"nqn.2026-11.org.example:kv\", \"Controllers\": [{\"Controller\": \"nvme1\", \"Namespaces\": [$space]}]}]}"
	else
		echo "{\"Devices\": [{\"HostNQN\": \"h\", \"Subsystems\": [{\"Subsystem\": \"nvme-subsys1\", \"SubsystemNQN\": \"nqn.2026-11.org.example:kv\", \"Controllers\": [{\"Controller\": \"nvme1\", \"Namespaces\": []}], \"Namespaces\": [$space]}]}]}"
	fi ;;
esac
FAKE_NVME
chmod +x "$tmp/bin/nvme"

nof() {
	"$top_builddir/tools/mcctl" nof "$@"
}
# status WANTED COMMAND... - check the exit status; the output is in $tmp/out, $tmp/stderr
status() {
	local wanted=$1 got=0
	shift
	"$@" >"$tmp/out" 2>"$tmp/stderr" || got=$?
	[ "$got" -eq "$wanted" ] || fail "status $got instead of $wanted: $*: $(cat "$tmp/stderr")"
}
says() {
	grep -q -- "$1" "$tmp/stderr" || fail "no \"$1\": $(cat "$tmp/stderr")"
}

for version in 1 2; do
	echo $version >"$tmp/version"
	: >"$tmp/calls"
	status 0 nof
	equal "output without devices" "$(cat "$tmp/out")" ""
	status 1 nof disconnect $nqn
	says "is not connected"
	status 0 nof connect $nqn 192.0.2.7
	grep -qxF -- "connect --transport=tcp --traddr=192.0.2.7 --trsvcid=4420 --nqn=$nqn --ctrl-loss-tmo=-1" \
		"$tmp/calls" || fail "$(cat "$tmp/calls")"
	says "cannot set fast_io_fail_tmo of $nqn: "
	grep -qE "^/dev/nvme1n1 .*256 MiB .*tcp .*live .*traddr=192.0.2.7,trsvcid=4420 .*$nqn" "$tmp/out" || fail "$(cat "$tmp/out")"
	status 0 nof list --json
	jq -e "length == 1 and .[0] == {device: \"/dev/nvme1n1\", stable_name: \"\", bytes: 268435456, transport: \"tcp\",
		address: \"traddr=192.0.2.7,trsvcid=4420\", state: \"live\", nqn: \"$nqn\"}" "$tmp/out" >/dev/null || fail "$(cat "$tmp/out")"
	status 0 nof disconnect $nqn
	equal "output" "$(cat "$tmp/out")" "disconnected $nqn"
	status 0 nof connect --transport=rdma $nqn '[2001:db8::1]:4421'
	grep -q -- "--transport=rdma --traddr=2001:db8::1 --trsvcid=4421" "$tmp/calls" || fail "$(cat "$tmp/calls")"
	status 0 nof disconnect --json $nqn
	jq -e '.[0].device == "/dev/nvme1n1"' "$tmp/out" >/dev/null || fail "$(cat "$tmp/out")"
done

echo "no namespace"
touch "$tmp/empty"
status 3 nof connect --timeout=0.3 $nqn 192.0.2.7
says "has no namespace that this host may use"
rm "$tmp/empty"

echo "nvme fails"
echo "failed to write to nvme-fabrics device: Connection refused" >"$tmp/refuse"
status 3 nof connect $nqn 192.0.2.7
says "nvme connect failed: failed to write to nvme-fabrics device: Connection refused"
[ -e /dev/nvme-fabrics ] || says "modprobe nvme-tcp"
status 3 nof
says "nvme list-subsys failed"
rm "$tmp/refuse"

echo "wrong arguments"
for args in "connect" "connect $nqn" "connect kv 192.0.2.7" "connect $nqn 192.0.2.7:x" "connect --transport=fc $nqn 192.0.2.7" \
	"disconnect" "disconnect --nqn" "other"; do
	# shellcheck disable=SC2086  # words
	status 2 nof $args
done

echo "no nvme, and one that prints something else"
printf '#!/bin/sh\necho usage: nvme\n' >"$tmp/bin/nvme"
status 3 nof
says "printed no JSON"
printf '#!/bin/sh\nexec sleep 60\n' >"$tmp/bin/nvme"
status 3 nof --timeout=0.2
says "cannot run nvme list-subsys: "
rm "$tmp/bin/nvme"
if ! command -v nvme >/dev/null; then
	status 3 nof
	says "package nvme-cli"
fi

# The init script and the unit, which read the same settings.
[ -r /lib/lsb/init-functions ] || exit 0
echo "init script"
sed -e "s|@bindir@|$top_builddir/tools|; s|@sysconfdir@|$tmp/etc|" "$top_srcdir/init/mooncake-nof.in" >"$tmp/init"
chmod +x "$tmp/init"
init() {
	_SYSTEMCTL_SKIP_REDIRECT=1 "$tmp/init" "$@"
}
cat >"$tmp/bin/nvme" <<'FAKE_NVME'
#!/bin/bash
# State: a file below $FAKE/up for each subsystem that is connected.
mkdir -p "$FAKE/up"
for arg; do case $arg in --nqn=*) nqn=${arg#--nqn=} ;; esac; done
names=$(ls "$FAKE/up")
case $1 in
connect) echo "$*" >>"$FAKE/calls" && touch "$FAKE/up/$nqn" ;;
disconnect) rm "$FAKE/up/$nqn" ;;
list-subsys)
	for n in $names; do
		echo "{\"Name\": \"nvme-subsys1\", \"NQN\": \"$n\", \"Paths\": [{\"Name\": \"nvme1\", \"Transport\": \"tcp\", \"State\": \"live\"}]}"
	done | jq -s '[{Subsystems: .}]' ;;
list)
	for n in $names; do
		echo "{\"SubsystemNQN\": \"$n\", \"Namespaces\": [{\"NameSpace\": \"nvme1n1\", \"PhysicalSize\": 4096}]}"
	done | jq -s '{Devices: [{Subsystems: .}]}' ;;
esac
FAKE_NVME
chmod +x "$tmp/bin/nvme"
: >"$tmp/calls"
status 0 init start
mkdir -p "$tmp/etc/default"
printf 'NQN=nqn.org:one\nADDRESS=192.0.2.7\n' >"$tmp/etc/default/mooncake-nof@one"
printf 'NQN=nqn.org:two\nADDRESS=192.0.2.8:4421\nTRANSPORT=rdma\n' >"$tmp/etc/default/mooncake-nof@two"
status 3 init status
status 0 init start two
equal "connected" "$(ls "$tmp/up")" nqn.org:two
status 0 init start
equal "calls" "$(cut -d' ' -f2-5 "$tmp/calls")" "--transport=rdma --traddr=192.0.2.8 --trsvcid=4421 --nqn=nqn.org:two
--transport=tcp --traddr=192.0.2.7 --trsvcid=4420 --nqn=nqn.org:one"
status 0 init status
grep -qx 'two is connected: nqn.org:two' "$tmp/out" || fail "$(cat "$tmp/out")"
status 0 init restart one
status 0 init stop one
equal "connected" "$(ls "$tmp/up")" nqn.org:two
status 0 init stop
equal "connected" "$(ls "$tmp/up")" ""
echo 'ADDRESS=192.0.2.7' >"$tmp/etc/default/mooncake-nof@bad"
status 6 init start
says "set NQN and ADDRESS"
equal "connected" "$(ls "$tmp/up")" "nqn.org:one
nqn.org:two"
status 2 init
if command -v systemd-analyze >/dev/null; then
	sed -e "s|@bindir@|$top_builddir/tools|; s|@sysconfdir@|$tmp/etc|" "$top_srcdir/init/mooncake-nof@.service.in" \
		>"$tmp/mooncake-nof@one.service"
	systemd-analyze verify --man=no "$tmp/mooncake-nof@one.service" >"$tmp/out" 2>&1 || fail "$(cat "$tmp/out")"
	found mooncake-nof <"$tmp/out" && fail "$(cat "$tmp/out")"
fi
exit 0
