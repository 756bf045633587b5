# SPDX-License-Identifier: Apache-2.0
"""python -m mooncake.http_metadata_server [--host H] [--port N] [--log-level L]: the key-value server at which
transfer engines meet, the program mooncake_http_metadata_server."""

import argparse

from mooncake.cli import become


def main():
    parser = argparse.ArgumentParser(prog="mooncake_http_metadata_server", description=__doc__.partition(": ")[2])
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="port (%(default)s)")
    parser.add_argument("--log-level", default="INFO", type=str.upper,
                        choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), help="least level that is logged")
    args, more = parser.parse_known_args()
    level = "ERROR" if args.log_level == "CRITICAL" else args.log_level
    become("mooncake_http_metadata_server",
           [f"--host={args.host}", f"--port={args.port}", f"--log_level={level}"] + more)


if __name__ == "__main__":
    main()
