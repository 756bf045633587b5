# SPDX-License-Identifier: Apache-2.0
"""python -m mooncake.cli_client: the program mooncake_client."""

import sys

from mooncake.cli import become


def main():
    become("mooncake_client", sys.argv[1:])


if __name__ == "__main__":
    main()
