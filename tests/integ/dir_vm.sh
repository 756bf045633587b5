#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A shared directory on NFS, by the kernel's server and clients in a virtual machine: two nodes in network namespaces with
# a mount each; killed and cut off owners, a server that does not answer, files that are removed and replaced.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/vm.sh"
unless_sanitized "an emulated machine is slow enough without; shared_dir.sh runs"
requires_vm
requires_memory 3000
in_vm 580 -m 2G -c 2 -M nfsd,nfsv4,veth -- "$top_srcdir/tests/integ/dir_guest.sh" "$top_builddir" "$top_srcdir"
grep -E '^case ' "$tmp/vm.log"
