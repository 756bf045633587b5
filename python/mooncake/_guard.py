# SPDX-License-Identifier: Apache-2.0
"""The rule for listeners that other hosts reach: they need credentials, or the operator's permission."""

import os

from mooncake._setup import Log

log = Log("mooncake.guard")

TRUE = ("1", "true", "yes", "on")


def is_on(variable):
    return os.environ.get(variable, "").strip().lower() in TRUE


def is_loopback(host):
    """Is the host an address of the loopback, or localhost?  Other names are not looked up: no."""
    # Late, because most processes do not need it and importing takes time.
    import ipaddress
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host.lower() == "localhost"
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def refusal(option, host, harm, secure, secured, allowed):
    """Why the program must not listen at the host, which the user has given, or None.  Logs a warning where only the
    permission admits it."""
    if secured or is_loopback(host):
        return None
    if not allowed:
        return (f"{option}={host}: every host that reaches this address could {harm}: {secure}, or use --allow_insecure "
                "(MC_ALLOW_INSECURE=1) in a network of trusted hosts, or a loopback address such as 127.0.0.1")
    log.warning("no security: every host that reaches %s=%s can %s: %s, or admit only trusted hosts with a firewall", option,
                host, harm, secure)
    return None


_warned = []


def warn_of_library(host, harm):
    """For a library that listens at the host: one warning per process, unless the variable is set."""
    if not _warned and not is_loopback(host) and not is_on("MC_ALLOW_INSECURE"):
        _warned.append(host)
        log.warning("no security: every host that reaches %s can %s: admit only trusted hosts with a firewall, or use a "
                    "loopback address; MC_ALLOW_INSECURE=1 silences this line", host or "this host", harm)
