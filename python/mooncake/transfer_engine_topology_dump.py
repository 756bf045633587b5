# SPDX-License-Identifier: Apache-2.0
"""python -m mooncake.transfer_engine_topology_dump: the devices that the transfer engine finds, or a file describes."""

import argparse
import json
import os
import sys


def parse():
    parser = argparse.ArgumentParser(prog="transfer_engine_topology_dump",
                                     description="Print the topology that the transfer engine works with.")
    parser.add_argument("--device-name", default="", help="only these network devices, joined by commas")
    parser.add_argument("--backend", choices=("auto", "te", "tent"), default="auto",
                        help="accepted; there is one engine, whose topology is printed")
    parser.add_argument("--use-custom-topo", action="store_true",
                        help="keep MC_CUSTOM_TOPO_JSON of the environment; without this it is not looked at")
    parser.add_argument("--custom-topo-json", metavar="PATH", help="read the topology from this file instead of discovering it")
    return parser.parse_args()


def main():
    args = parse()
    custom = args.custom_topo_json or (os.environ.get("MC_CUSTOM_TOPO_JSON") if args.use_custom_topo else None)
    # read by the engine when it starts
    os.environ.pop("MC_CUSTOM_TOPO_JSON", None)
    if custom:
        if not os.path.isfile(custom):
            sys.exit(f"transfer_engine_topology_dump: {custom}: no such file")
        os.environ["MC_CUSTOM_TOPO_JSON"] = custom
    from mooncake.engine import TransferEngine

    engine = TransferEngine()
    if engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", args.device_name):
        sys.exit("transfer_engine_topology_dump: the transfer engine does not start")
    found = engine.get_local_topology(args.device_name or None)
    print(f"Local topology [te/{'custom' if custom else 'discover'}]: {json.dumps(json.loads(found), indent=4)}")


if __name__ == "__main__":
    main()
