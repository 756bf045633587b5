# SPDX-License-Identifier: Apache-2.0
"""python -m mooncake.cli_bench: the program transfer_engine_bench."""

import sys

from mooncake.cli import become


def main():
    become("transfer_engine_bench", sys.argv[1:])


if __name__ == "__main__":
    main()
